"""Batches that a Kafka client could not read, made anew."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from paceline.errors import CorruptMessage
from paceline.types import Compression
from paceline.wire.batch import (
    BatchExtension,
    PayloadKind,
    ProducerNamespace,
    build_batch,
    build_raw_batch,
    iter_batches,
    stamp,
    verify,
)
from paceline.wire.batch_header import CONTROL, HEADER_BYTES, TRANSACTIONAL, seal
from paceline.wire.compression import compress
from paceline.wire.end_marker import build_passing_marker, read_end_marker
from paceline.wire.records import Record, decode_records
from paceline_node.client_memory import ClientMemory, Holding, Portion, unlimited
from paceline_node.env import RealHost
from paceline_node.listeners.kafka.batch_conversion import Converter, Made
from paceline_node.loop_turns import Turns
from paceline_node.net.transport import FilePart
from paceline_node.storage.memory_disk import MemoryDisk

HANG_S = 20
MIB = 1024 * 1024
EXTENSION = BatchExtension(
    kind=PayloadKind.RECORDS,
    namespace=ProducerNamespace.CURSUS,
    producer_key=bytes(16),
    producer_epoch=0,
    first_sequence=0,
    last_sequence=9,
    base_position=0,
    event_count=0,
)


def thinned(codec: Compression) -> bytes:
    """What compaction may leave of a batch of ten of another protocol: two records."""
    dense = build_batch([Record(-1, 1000 + i, b"k%d" % i, b"v%d" % i) for i in range(10)])
    spans = _records_bytes(bytes(dense[HEADER_BYTES:]))
    payload = spans[3] + spans[7]
    return bytes(
        build_raw_batch(
            compress(codec, payload) if codec else payload,
            record_count=2,
            last_offset_delta=9,
            attributes=int(codec),
            base_timestamp=1000,
            max_timestamp=1009,
            base_offset=100,
            leader_epoch=5,
            extension=EXTENSION,
        )
    )


def _records_bytes(payload: bytes) -> list[bytes]:
    found = []
    while payload:
        size = (payload[0] >> 1) + 1
        found.append(payload[:size])
        payload = payload[size:]
    return found


def converter() -> Converter:
    return Converter(Portion(unlimited()), RealHost(), Turns())


async def test_what_is_made_anew_for_all_clients_shares_a_budget() -> None:
    data = thinned(Compression.NONE)
    file = MemoryDisk().create("log")
    file.append([data])
    part = FilePart(file, 0, len(data))
    budget = ClientMemory(40 * MIB)  # half of it, and what one is let begin beyond
    kept = [Portion(Holding(budget, "", "", lambda _: None)) for _ in range(5)]
    done: list[Portion] = []

    async def convert(share: Portion) -> None:
        await Converter(share, RealHost(), Turns()).batches(part, 110)
        done.append(share)

    async with trio.open_nursery() as nursery:
        for share in kept:
            nursery.start_soon(convert, share)
        with trio.fail_after(HANG_S):
            for finished in (2, 4, 5):  # each takes 16 MiB, and a connection gives them back
                while len(done) < finished:
                    await wait_all_tasks_blocked()
                assert len(done) == finished
                assert budget.held_bytes <= 40 * MIB
                for share in done:
                    share.give_all()
    assert budget.held_bytes == 0


async def converted(data: bytes, next_offset: int) -> bytes:
    made = await answered(data, next_offset)
    assert isinstance(made, bytes)
    return made


async def answered(data: bytes, next_offset: int) -> FilePart | bytes:
    return (await made_of(data, next_offset)).records


async def made_of(data: bytes, next_offset: int) -> Made:
    file = MemoryDisk().create("log")
    file.append([data])
    with trio.fail_after(HANG_S):
        return await converter().batches(FilePart(file, 0, len(data)), next_offset)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
async def test_a_thinned_batch_keeps_the_records_it_has(codec: Compression) -> None:
    made = await converted(thinned(codec), 110)
    [(at, header)] = iter_batches(made)
    assert (header.base_offset, header.last_offset, header.is_extended) == (100, 109, False)
    assert header.compression == codec
    assert [(each.offset, each.timestamp_ms, each.value) for each in decode_records(made, at)] == [
        (103, 1003, b"v3"),
        (107, 1007, b"v7"),
    ]


def emptied(base: int, count: int = 1, *, flags: int = 0, kind: PayloadKind | None = None) -> bytes:
    """What compaction leaves of a batch, or the end of a segment: nothing but offsets."""
    return bytes(
        build_raw_batch(
            b"",
            record_count=0,
            last_offset_delta=count - 1,
            attributes=flags,
            base_offset=base,
            leader_epoch=base,
            extension=None if kind is None else EXTENSION._replace(kind=kind),
        )
    )


def full(base: int, *, is_extended: bool = False) -> bytes:
    plain = build_batch([Record(-1, 1, b"k", b"v%d" % base)], base_offset=base)
    if not is_extended:
        return bytes(plain)
    return bytes(
        build_raw_batch(plain[HEADER_BYTES:], record_count=1, base_offset=base, extension=EXTENSION)
    )


PLACEHOLDERS = {
    "bare": (None, 0),
    "of a producer's transaction": (None, TRANSACTIONAL),
    "of another protocol's records": (PayloadKind.RECORDS, 0),
    "the end of a segment": (PayloadKind.SEAL, 0),
}


@pytest.mark.parametrize("what", PLACEHOLDERS)
async def test_where_nothing_holds_a_record_the_last_batch_is_told(what: str) -> None:
    kind, flags = PLACEHOLDERS[what]
    data = b"".join(emptied(base, 3, flags=flags, kind=kind) for base in (7, 10, 13))
    made = await made_of(data, 16)
    assert (made.records, made.next_offset) == (b"", 16)
    assert made.emptied is not None
    assert (made.emptied.base_offset, made.emptied.last_offset, made.emptied.leader_epoch) == (
        13,
        15,
        13,
    )
    # What a client is sent in its place: its last offset, in its leader epoch.
    marker = build_passing_marker(made.emptied)
    [(at, header)] = iter_batches(marker)
    verify(marker, at)
    assert (header.last_offset, header.leader_epoch, header.is_control) == (15, 13, True)
    assert not header.has_producer
    assert not header.is_transactional
    assert read_end_marker(marker).commits


@pytest.mark.parametrize("is_extended", [True, False])
@pytest.mark.parametrize(
    ("batches", "kept"),
    [
        ("r", [0]),
        (".r", [1]),
        ("..rr", [2, 3]),
        (".r.r.", [1, 2, 3, 4]),
        ("r..", [0, 1, 2]),
        ("..c", [2]),
        ("..c..", [2, 3, 4]),
        ("c.r", [0, 1, 2]),
    ],
)
async def test_empty_batches_at_the_begin_stay_behind(
    batches: str, kept: list[int], is_extended: bool
) -> None:
    """``.``: an empty one, ``c``: a marker, even one that has lost its record, ``r``: a record.
    Where all are as they are stored, they are sent from the file."""
    kind = PayloadKind.RECORDS if is_extended else None
    data = b"".join(
        full(base, is_extended=is_extended)
        if what == "r"
        else emptied(base, flags=CONTROL if what == "c" else 0, kind=None if what == "c" else kind)
        for base, what in enumerate(batches)
    )
    made = await made_of(data, len(batches))
    assert (made.next_offset, made.emptied) == (len(batches), None)
    sent = made.records
    if isinstance(sent, FilePart):
        assert not is_extended or set(batches) == {"c"}
        sent = data[sent.position : sent.position + sent.size]
    assert [header.base_offset for _, header in iter_batches(sent)] == kept


async def test_many_heads_take_turns_with_others() -> None:
    data = b"".join(emptied(base) for base in range(20_000))
    turns = Turns()
    taken = 0

    async def others() -> None:
        nonlocal taken
        while True:
            await turns.next()
            taken += 1

    file = MemoryDisk().create("log")
    file.append([data])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        made = await Converter(Portion(unlimited()), RealHost(), turns).batches(
            FilePart(file, 0, len(data)), 20_000
        )
        assert taken
        nursery.cancel_scope.cancel()
    assert made.emptied is not None


async def test_an_empty_batch_that_has_rotted_is_told() -> None:
    data = bytearray(emptied(0))
    data[30] ^= 1  # of a time
    with pytest.raises(CorruptMessage, match="CRC"):
        await made_of(bytes(data), 1)


@pytest.mark.parametrize("place", ["first", "middle", "last"])
@pytest.mark.parametrize("size", [1, 2000, 300_000, 3_000_000])
async def test_a_batch_that_has_rotted_is_not_sent(size: int, place: str) -> None:
    """Small ones come many at a time; large ones are read piece by piece."""
    batches = [build_batch([Record(-1, 1, None, b"v" * size)], base_offset=n) for n in range(3)]
    data = b"".join(map(bytes, batches))
    assert isinstance(await answered(data, 3), FilePart)
    begin = sum(map(len, batches[: ("first", "middle", "last").index(place)]))
    end = begin + len(batches[0])
    for at in {16, 17, 21, 22, 40, HEADER_BYTES, (begin + end) // 2 - begin, end - 1 - begin}:
        rotten = bytearray(data)
        rotten[begin + at] ^= 4
        with pytest.raises(CorruptMessage):
            await answered(bytes(rotten), 3)


async def test_sizes_that_do_not_add_up_are_told_and_not_waited_for() -> None:
    good = bytes(build_batch([Record(-1, 1, None, b"v" * 100)]))
    wrong = bytearray((good + good)[:-30])
    wrong[8:12] = (len(wrong) - 12).to_bytes(4, "big")
    seal(wrong)
    wrong += bytes(30)
    with pytest.raises(CorruptMessage, match="30 bytes are left"):
        await converted(bytes(wrong), 2)


async def test_an_answer_holds_no_more_than_so_much_of_what_was_made() -> None:
    one = thinned(Compression.NONE)
    count = 3 * 1024 * 1024 // len(one)
    data = bytearray(one * count)
    for number in range(count):
        stamp(data, number * len(one), 10 * number, 5)
    made = await converted(bytes(data), 10 * count)
    assert 0 < len(made) < 1024 * 1024
    for at, _ in iter_batches(made):
        assert len(decode_records(made, at)) == 2


@pytest.mark.parametrize("value", [b"v", b"v" * 100_000])
@pytest.mark.parametrize("is_extended", [True, False])
@pytest.mark.parametrize(
    ("bases", "is_whole"),
    [
        ([100, 101, 102], True),
        ([101, 101, 102], False),
        ([100, 165, 102], False),
        ([100, 101, 38], False),
        ([100, 101], False),
    ],
)
async def test_a_batch_out_of_its_place_is_not_sent(
    bases: list[int], is_whole: bool, is_extended: bool, value: bytes
) -> None:
    """Kafka's clients take its records for those of other offsets, or pass over others."""
    data = b""
    for base in bases:
        plain = build_batch([Record(-1, 1, None, value)], base_offset=base)
        data += build_raw_batch(
            plain[HEADER_BYTES:],
            record_count=1,
            base_offset=base,
            extension=EXTENSION if is_extended else None,
        )
    if is_whole:
        assert isinstance(await answered(data, 103), bytes if is_extended else FilePart)
    else:
        with pytest.raises(CorruptMessage, match="expected"):
            await answered(data, 103)
