"""Batches: the published vectors, both dialects, every compression, and damage."""

from __future__ import annotations

import contextlib
import gzip

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import ConfigurationError, RemoteProtocolError
from paceline.types import Acks, Compression
from paceline.wire.compression import compress
from paceline.wire.cursus.batch import (
    CursusBatch,
    CursusRecord,
    Dialect,
    encode_batch,
    parse_batch,
    record_bytes,
)
from paceline.wire.cursus.commands import WORDS
from paceline.wire.cursus.compression import CompressorRegistry
from paceline.wire.cursus.errors import CursusError
from paceline.wire.cursus.frames import MAX_FRAME_BYTES, FrameReader, framed
from paceline.wire.cursus.inbound import CommandText, read_frame
from tests.unit.wire_cursus.vectors import FRAMES

BODIES = {name: frame[4:] for name, frame in FRAMES.items()}
ONE = CursusRecord(0, 1, b"py-7f", b"k1", 1_700_000_000, b"hello")
T3 = CursusBatch(Dialect.REAL, "orders", 1, Acks.LEADER, False, [ONE])
TWO = [CursusRecord(0, 7, b"p", b"", 3, b"a"), CursusRecord(0, 8, b"p", b"", 3, b"b")]
T5 = CursusBatch(Dialect.REAL, "t", 0, Acks.ALL, True, TWO)
SEED = Dialect.SEED
EMPTY = CursusBatch(Dialect.REAL, "orders", 1, Acks.LEADER, False, [])

VECTORS = {
    "T3": T3,
    "T4": T3._replace(dialect=SEED),
    "T5": T5,
    "T6": T5._replace(dialect=SEED),
    "T7": T5,
    "T8": T5,
    "T10": EMPTY,
    "T11": EMPTY._replace(dialect=SEED),
}
COMMANDS = {
    "T1": CommandText("CREATE", " topic=orders partitions=2"),
    "T2": CommandText("METADATA", " topic=orders"),
    "T9": CommandText("CONSUME", " orders 1 42"),
    "T13": CommandText("LIST", " topic=orders"),
}


@pytest.mark.parametrize("name", sorted(VECTORS))
def test_batch_vectors(name: str) -> None:
    assert read_frame(BODIES[name], WORDS) == VECTORS[name]
    if name not in ("T7", "T8"):
        assert framed(encode_batch(VECTORS[name])) == FRAMES[name]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_command_vectors(name: str) -> None:
    assert read_frame(BODIES[name], WORDS) == COMMANDS[name]


def test_a_byte_too_many_is_refused() -> None:
    with pytest.raises(CursusError, match="batch_decode_failed"):
        parse_batch(BODIES["T3"] + b"\x00")


def test_a_real_partition_that_looks_like_seed_is_tried_as_both() -> None:
    body = BODIES["T3"].replace(bytes.fromhex("0000000101"), bytes.fromhex("0001303101"), 1)
    assert parse_batch(body) == T3._replace(partition=77_873)


def test_unknown_acks_in_a_sound_batch() -> None:
    body = BODIES["T3"].replace(b"\x011\x00", b"\x019\x00", 1)
    with pytest.raises(CursusError) as caught:
        parse_batch(body)
    assert caught.value.line() == "ERROR: invalid_acks value=9"


@pytest.mark.parametrize("acks", ["", "0", "1", "-1", "all", "ALL"])
@pytest.mark.parametrize("name", ["T3", "T4"])
def test_acks_by_any_name(acks: str, name: str) -> None:
    before = b"\x00\x00\x00\x01" if name == "T3" else b"\x00\x011"
    old = before + (b"\x011\x00" if name == "T3" else b"\x00\x011\x00")
    head = before + (bytes([len(acks)]) if name == "T3" else len(acks).to_bytes(2, "big"))
    body = BODIES[name].replace(old, head + acks.encode() + b"\x00", 1)
    expected = {"0": Acks.NONE, "-1": Acks.ALL, "all": Acks.ALL, "ALL": Acks.ALL}
    assert parse_batch(body).acks is expected.get(acks, Acks.LEADER)


@pytest.mark.parametrize("name", ["T3", "T4", "T5", "T6", "T10", "T11"])
def test_every_cut_is_refused(name: str) -> None:
    body = BODIES[name]
    for end in range(2, len(body)):
        with pytest.raises(CursusError, match="batch_decode_failed"):
            parse_batch(body[:end])


def test_numbers_beyond_63_bits_are_refused() -> None:
    for number in (b"\x80" + b"\x00" * 7, b"\xff" * 8):
        body = BODIES["T3"].replace(b"\x00" * 7 + b"\x01\x00\x05py", number + b"\x00\x05py", 1)
        assert body != BODIES["T3"]
        with pytest.raises(CursusError, match="batch_decode_failed"):
            parse_batch(body)


def test_a_count_that_the_bytes_cannot_hold_allocates_nothing() -> None:
    body = BODIES["T10"][:-4] + (100_000).to_bytes(4, "big")
    with pytest.raises(CursusError, match="100000 records in 0 bytes"):
        parse_batch(body)
    with pytest.raises(CursusError, match="100001 records, expected"):
        parse_batch(BODIES["T10"][:-4] + (100_001).to_bytes(4, "big"))


# --- round trips ----------------------------------------------------------------------------------

short = st.binary(max_size=40)
numbers = st.integers(0, 2**63 - 1)
records = st.builds(
    CursusRecord,
    numbers,
    numbers,
    short,
    short,
    st.integers(-(2**63), 2**63 - 1),
    st.binary(max_size=200),
    short,
    st.integers(0, 2**31 - 1),
    numbers,
    short,
)
batches = st.builds(
    CursusBatch,
    st.sampled_from(Dialect),
    st.text("abcXYZ019._-", min_size=1, max_size=30),
    st.integers(0, 65_534),
    st.sampled_from(Acks),
    st.booleans(),
    st.lists(records, max_size=6),
)


@given(batches)
@settings(deadline=None)
def test_round_trip_in_both_dialects(batch: CursusBatch) -> None:
    body = encode_batch(batch)
    assert parse_batch(body) == batch
    head = len(encode_batch(batch._replace(records=[])))
    assert len(body) == head + record_bytes(batch.records)


@pytest.mark.parametrize("count", [64, 65, 1000])
def test_many_records_are_what_few_are(count: int) -> None:
    """From some number on they stay bytes until they are asked for."""
    made = [CursusRecord(0, n + 1, b"p", b"k%d" % n, 1, b"x" * n) for n in range(count)]
    batch = CursusBatch(Dialect.REAL, "orders", 0, Acks.ALL, True, made)
    body = encode_batch(batch)
    parsed = parse_batch(body)
    assert list(parsed.records) == made
    assert len(parsed.records) == count
    for at in (0, 1, count - 1, -1, -count, 7):
        assert parsed.records[at] == made[at]
    assert list(parsed.records[3:9]) == made[3:9]
    with pytest.raises(IndexError):
        parsed.records[count]
    assert record_bytes(parsed.records) == record_bytes(made)
    assert encode_batch(parsed) == body
    with pytest.raises(CursusError, match="batch_decode_failed"):
        parse_batch(body[:-1])


@given(batches, st.sampled_from([c for c in Compression if c]))
@settings(deadline=None)
def test_every_compression_in_both_dialects(batch: CursusBatch, codec: Compression) -> None:
    assert read_frame(compress(codec, encode_batch(batch)), WORDS) == batch


@given(batches)
@settings(deadline=None)
def test_bare_snappy_blocks(batch: CursusBatch) -> None:
    body = encode_batch(batch)
    assert read_frame(bytes(cramjam.snappy.compress_raw(body)), WORDS) == batch


def outcome_of(body: bytes) -> None:
    with contextlib.suppress(CursusError):
        read_frame(body, WORDS)


@given(batches, st.data())
@settings(max_examples=200, deadline=None)
def test_damage_never_escapes(batch: CursusBatch, data: st.DataObject) -> None:
    """Any bytes are a batch, a command or a refusal; nothing else is ever raised."""
    body = bytearray(encode_batch(batch))
    codec = data.draw(st.sampled_from(Compression))
    if codec:
        body = bytearray(compress(codec, body))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(body)))
    outcome_of(bytes(body[:cut]))


@given(st.binary(min_size=1, max_size=300))
@settings(deadline=None)
def test_noise_never_escapes(noise: bytes) -> None:
    for head in (b"", b"\xba\x7c", b"\x1f\x8b", b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd", b"\x00"):
        outcome_of(head + noise)


# --- compression ----------------------------------------------------------------------------------


def test_a_bomb_costs_no_more_than_the_limit() -> None:
    bomb = gzip.compress(bytes(MAX_FRAME_BYTES + 1), 9)
    assert len(bomb) < 100_000
    with pytest.raises(CursusError, match='decode_failed reason="decompress"'):
        read_frame(bomb, WORDS)


class Reversed:
    """A format without any magic bytes."""

    name = "reversed"

    def compress(self, data: bytes) -> bytes:
        return data[::-1]

    def decompress(self, data: bytes) -> bytes:
        if data.startswith(b"LIST"):
            raise RuntimeError("not mine")
        return data[::-1]


def test_registered_compressors_are_tried_when_nothing_else_parses() -> None:
    registry = CompressorRegistry([Reversed()])
    compressors = registry.named(["reversed"])
    packed = Reversed().compress(encode_batch(T5))
    assert read_frame(packed, WORDS, compressors) == T5
    assert read_frame(b"LIST", WORDS, compressors) == CommandText("LIST", "")
    for hopeless in (packed[1:], b"LISTEN", b"\x00"):
        with pytest.raises(CursusError, match=r"decode_failed|unknown_command"):
            read_frame(hopeless, WORDS, compressors)
    with pytest.raises(CursusError):
        read_frame(packed, WORDS)


def test_registering_what_cannot_be() -> None:
    registry = CompressorRegistry([Reversed()])
    with pytest.raises(ConfigurationError, match="'reversed': the name is taken"):
        registry.register(Reversed())
    with pytest.raises(ConfigurationError, match="no compressor"):
        registry.register(object())  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="'brotli' is not registered; known: reversed"):
        registry.named(["brotli"])


# --- frames ---------------------------------------------------------------------------------------


def test_frames_at_every_split() -> None:
    stream = b"".join(FRAMES.values()) + framed(b"") + FRAMES["T9"]
    expected = [*BODIES.values(), b"", BODIES["T9"]]
    for split in range(len(stream) + 1):
        reader = FrameReader()
        found = []
        for piece in (stream[:split], stream[split:]):
            reader.feed(piece)
            while (body := reader.next_frame()) is not None:
                found.append(body)
        assert found == expected
        assert reader.is_between_frames


def test_frames_byte_by_byte() -> None:
    reader = FrameReader()
    for index, byte in enumerate(FRAMES["T3"]):
        assert reader.next_frame() is None
        if index >= 4:
            assert reader.wanted_bytes == len(FRAMES["T3"]) - index
        reader.feed(bytes([byte]))
    assert reader.wanted_bytes == 0
    assert reader.next_frame() == BODIES["T3"]


def test_a_frame_above_64_mib_ends_the_connection() -> None:
    reader = FrameReader()
    reader.feed(bytes.fromhex("04000001"))
    with pytest.raises(RemoteProtocolError, match="67108865 bytes, limit 67108864"):
        reader.next_frame()
    largest = FrameReader()
    largest.feed(bytes.fromhex("04000000"))
    assert largest.next_frame() is None
    assert largest.wanted_bytes == MAX_FRAME_BYTES
