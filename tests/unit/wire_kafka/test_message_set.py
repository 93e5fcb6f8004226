"""Message sets of magic 0 and 1 (wire/kafka/DESIGN 4)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder

from paceline.errors import CorruptMessage
from paceline.types import Compression
from paceline.wire.compression import compress
from paceline.wire.kafka.message_set import read_message_set, write_message_set
from paceline.wire.records import Record

# What kcat sent: key k, value v.
KCAT = bytes.fromhex("0000000000000000000000101fecd70a0000000000016b0000000176")
NOW = 1_700_000_000_000

parts = st.none() | st.binary(max_size=50)
record_lists = st.lists(st.tuples(parts, parts), min_size=1, max_size=20)


def wrapped(inner: bytes, codec: Compression, magic: int = 0) -> bytes:
    packed = compress(codec, inner)
    body = bytes((magic, codec)) + (NOW.to_bytes(8, "big") if magic else b"")
    body += b"\xff\xff\xff\xff" + len(packed).to_bytes(4, "big") + packed
    message = zlib.crc32(body).to_bytes(4, "big") + body
    return bytes(8) + len(message).to_bytes(4, "big") + message


def test_what_kcat_sends() -> None:
    assert read_message_set(memoryview(KCAT)) == [Record(offset=0, key=b"k", value=b"v")]
    assert write_message_set([Record(0, -1, b"k", b"v")], magic=0, max_bytes=100) == KCAT


def messages_of(data: bytes) -> Iterator[bytes]:
    while data:
        end = 12 + int.from_bytes(data[8:12], "big")
        yield data[:end]
        data = data[end:]


@pytest.mark.parametrize("magic", [0, 1])
@given(values=record_lists)
def test_against_another_codec(magic: int, values: list[tuple[bytes | None, bytes | None]]) -> None:
    records = [Record(i, NOW if magic else -1, *pair) for i, pair in enumerate(values)]
    data = write_message_set(records, magic=magic, max_bytes=1 << 20)
    theirs = [
        (record.offset, record.timestamp, record.key, record.value)
        for message in messages_of(data)
        for record in LegacyRecordBatch(message, magic)
    ]
    assert theirs == [(r.offset, NOW if magic else None, r.key, r.value) for r in records]
    assert read_message_set(memoryview(data)) == records


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_what_another_codec_compresses(magic: int, codec: int) -> None:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for offset in range(50):
        builder.append(offset, timestamp=NOW, key=b"k%d" % offset, value=b"v" * offset)
    read = read_message_set(memoryview(bytes(builder.build())))
    assert [(r.offset, r.key, r.value) for r in read] == [
        (offset, b"k%d" % offset, b"v" * offset) for offset in range(50)
    ]
    assert {r.timestamp_ms for r in read} == {NOW if magic else -1}


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
def test_each_codec(codec: Compression) -> None:
    inner = write_message_set([Record(7, NOW, b"k", b"v" * 99)] * 2, magic=1, max_bytes=1 << 20)
    read = read_message_set(memoryview(wrapped(inner, codec, magic=1) + KCAT))
    assert read == [
        Record(0, NOW, b"k", b"v" * 99),
        Record(1, NOW, b"k", b"v" * 99),
        Record(2, -1, b"k", b"v"),
    ]


def test_a_set_is_cut_at_whole_messages_but_the_first_is_always_sent() -> None:
    records = [Record(offset, NOW, None, b"x" * 100) for offset in range(3)]
    one, two = (write_message_set(records[:n], magic=1, max_bytes=1 << 20) for n in (1, 2))
    assert write_message_set(records, magic=1, max_bytes=len(two)) == two
    assert write_message_set(records, magic=1, max_bytes=len(two) - 1) == one
    assert write_message_set(records, magic=1, max_bytes=1) == one


def test_a_bomb_ends_at_the_bound() -> None:
    inner = write_message_set([Record(0, -1, None, bytes(1 << 20))], magic=0, max_bytes=1 << 30)
    bomb = wrapped(inner, Compression.GZIP)
    with pytest.raises(CorruptMessage, match="exceeds the limit of 65536"):
        read_message_set(memoryview(bomb), max_bytes=1 << 16)
    with pytest.raises(CorruptMessage, match="exceeds the limit"):
        read_message_set(memoryview(bomb * 3), max_bytes=(1 << 21) + 100)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (KCAT[:-1], "16 bytes announced, 15 are left"),
        (KCAT[:11], "its head is cut short"),
        (KCAT[:-1] + b"w", "its checksum is wrong"),
        (KCAT[:8] + b"\xff\xff\xff\xff" + KCAT[12:], "-1 bytes announced"),
        (KCAT[:8] + b"\0\0\0\3" + KCAT[12:15], "3 bytes are too few"),
        (KCAT[:16] + b"\2" + KCAT[17:], "magic 2, expected 0 or 1"),
        (wrapped(wrapped(KCAT, Compression.GZIP), Compression.GZIP), "compressed twice"),
        (wrapped(KCAT[:-1], Compression.SNAPPY), "16 bytes announced, 15 are left"),
        (wrapped(KCAT, Compression.ZSTD), "this format has no codec 4"),
    ],
)
def test_what_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(CorruptMessage, match=said):
        read_message_set(memoryview(data))


@given(st.binary(max_size=200))
def test_noise_is_read_or_refused(noise: bytes) -> None:
    try:
        read_message_set(memoryview(noise))
    except CorruptMessage:
        return
    assert noise == b""
