"""Past ranges of a log that compaction has emptied, within bounds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from paceline.errors import CorruptMessage, NotLeader, PacelineError
from paceline.types import LeaderEpoch
from paceline.wire.batch import build_batch, build_raw_batch, iter_batches
from paceline.wire.batch_header import HEADER_BYTES
from paceline.wire.records import Record
from paceline_node.client_memory import Portion, unlimited
from paceline_node.env import RealHost
from paceline_node.listeners.kafka.batch_conversion import Converter
from paceline_node.listeners.kafka.compacted_gaps import ReadOn
from paceline_node.loop_turns import Turns
from paceline_node.net.transport import FilePart
from paceline_node.replication.partition import ReadResult
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.reading import LogSlice

_AT_MOST = 32
_EPOCH = LeaderEpoch(3)
_MIB = 1024 * 1024


class Ranges:
    """A log of which each batch is a range of its own, as the last of a segment is. ``sizes``: of
    the batches' values; None is an empty one. ``refusals``: what reading at an offset raises."""

    def __init__(
        self, sizes: Sequence[int | None], refusals: dict[int, PacelineError] | None = None
    ) -> None:
        self._disk = MemoryDisk()
        self._refusals = refusals or {}
        self.asked: list[tuple[int, int]] = []
        self.batches = [
            build_raw_batch(
                b"", record_count=0, last_offset_delta=0, base_offset=at, leader_epoch=_EPOCH
            )
            if size is None
            else build_batch([Record(-1, 1, None, bytes(size))], base_offset=at)
            for at, size in enumerate(sizes)
        ]

    def read(self, offset: int, max_bytes: int) -> ReadResult:
        self.asked.append((offset, max_bytes))
        if offset in self._refusals:
            raise self._refusals[offset]
        return self.at(offset)

    def at(self, offset: int) -> ReadResult:
        found = None
        if offset < len(self.batches):
            file = self._disk.create(f"{offset}-{len(self.asked)}")
            data = self.batches[offset]
            file.append([data])
            found = LogSlice(file, 0, len(data), offset, offset + 1)
        end = len(self.batches)
        return ReadResult(found, end, end, 0, end, _EPOCH, ())


async def sent(
    ranges: Ranges, *, room_bytes: int = _MIB, max_bytes: int = _MIB
) -> tuple[ReadResult, list[tuple[int, bool]]]:
    """What is sent from offset 0 on: each batch's last offset, and whether it is a marker."""
    turns = Turns()
    converter = Converter(Portion(unlimited()), RealHost(), turns)
    read_on = ReadOn(converter, turns, room_bytes)
    found, records = await read_on.batches(ranges.at(0), max_bytes, ranges.read)
    if isinstance(records, FilePart):
        records = records.file.pread(records.size, records.position)
    return found, [(each.last_offset, each.is_control) for _, each in iter_batches(records)]


async def test_what_holds_records_costs_no_further_read() -> None:
    ranges = Ranges([1, None])
    assert (await sent(ranges))[1] == [(0, False)]
    assert ranges.asked == []


async def test_the_first_range_that_holds_records_is_sent_and_told_of() -> None:
    ranges = Ranges([None, None, None, 5, 5])
    found, batches = await sent(ranges)
    assert batches == [(3, False)]
    assert found.slice is not None
    assert found.slice.base_offset == 3, "aborted transactions are told of this range"
    assert [offset for offset, _ in ranges.asked] == [1, 2, 3]


async def test_an_end_that_is_empty_is_a_marker_at_its_last_offset() -> None:
    assert (await sent(Ranges([None, None, None])))[1] == [(2, True)]


@pytest.mark.parametrize(("emptied", "last"), [(_AT_MOST, 32), (_AT_MOST + 1, 32), (90, 32)])
async def test_no_more_than_so_many_are_passed_over(emptied: int, last: int) -> None:
    ranges = Ranges([*([None] * emptied), 5])
    is_reached = emptied == _AT_MOST
    assert (await sent(ranges))[1] == [(last, not is_reached)]
    assert len(ranges.asked) == _AT_MOST


async def test_an_answer_does_not_outgrow_what_was_asked_for() -> None:
    ranges = Ranges([None, None, 1000])
    needed = len(ranges.batches[2]) - HEADER_BYTES
    assert (await sent(ranges, room_bytes=needed))[1] == [(2, False)]
    assert (await sent(ranges, room_bytes=needed - 1))[1] == [(1, True)]


async def test_a_partition_is_asked_for_no_more_than_its_client_wants() -> None:
    ranges = Ranges([None, 5])
    await sent(ranges, max_bytes=100)
    assert ranges.asked == [(1, 100)]


@pytest.mark.parametrize("refusal", [NotLeader("gone"), CorruptMessage("bad")])
async def test_a_range_that_cannot_be_read_is_told_of_to_who_comes_there(
    refusal: PacelineError,
) -> None:
    assert (await sent(Ranges([None, None, 5], {2: refusal})))[1] == [(1, True)]


async def test_so_is_one_that_does_not_hold() -> None:
    ranges = Ranges([None, None, 5])
    ranges.batches[2][7] ^= 1  # a bit of its base offset
    assert (await sent(ranges))[1] == [(1, True)]
    ranges.batches[0][7] ^= 1
    with pytest.raises(CorruptMessage):
        await sent(ranges)
