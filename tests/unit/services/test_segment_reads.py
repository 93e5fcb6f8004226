"""Where sequential readers of a segment go on, whatever became of its log."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import pytest

from paceline.errors import NotLeader
from paceline.wire.batch import ProducerNamespace
from paceline_node.replication.partition import Partition, PartitionKey, ReadResult
from paceline_node.services.segments.segment_reads import SegmentReads
from paceline_node.storage.byte_segment_batches import Run, run_batch, truncate_batch
from paceline_node.storage.log import Log
from paceline_node.storage.memory_disk import MemoryDisk
from tests.unit.storage.world import new_log

SEED = ProducerNamespace.SEGMENT_SEED


class LedLog:
    """A log that is committed at once, and its leader epoch."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.key = cast(PartitionKey, (UUID(int=1), 0))
        self.leader_epoch = 1

    def read(self, offset: int, max_bytes: int, *, from_follower: bool) -> ReadResult:
        end = self.log.log_end_offset
        found = self.log.locate(offset, max_bytes, end)
        return ReadResult(found, end, end, 0, end, cast(Any, self.leader_epoch), ())

    def append(self, data: bytes) -> None:
        marks = self.log.producers.marks
        run = Run(SEED, b"w" * 16, marks.end_position, marks.end_position + len(data), 1, data)
        self.log.append_leader(run_batch(run, marks, 1_000), self.leader_epoch, 1_000)

    async def bytes_at(self, reads: SegmentReads, position: int) -> bytes:
        return b"".join(await reads.read(cast(Partition, self), position, 1))


async def test_a_reader_goes_on_in_the_history_that_is_led_now() -> None:
    """After an unclean election it was given the bytes of another position."""
    led, reads = LedLog(await new_log(MemoryDisk())), SegmentReads()
    for letter in (b"a", b"b", b"c", b"d"):
        led.append(letter * 10)
    assert await led.bytes_at(reads, 0) == b"a" * 10
    assert await led.bytes_at(reads, 10) == b"b" * 10
    led.log.truncate(1)  # as its new leader's log, which goes on otherwise
    led.leader_epoch = 2
    for letter in (b"t", b"u"):
        led.append(letter * 20)
    assert await led.bytes_at(reads, 20) == b"t" * 10
    assert await led.bytes_at(reads, 30) == b"u" * 20
    led.log.abandon()


async def test_a_read_that_a_new_leader_epoch_overtakes_gives_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    led, reads = LedLog(await new_log(MemoryDisk())), SegmentReads()
    led.append(b"a" * 10)
    marks = led.log.producers.marks
    led.log.append_leader(truncate_batch(5, marks, 1_000), 1, 1_000)
    led.append(b"b" * 10)
    await led.bytes_at(reads, 0)
    whole = led.read

    def overtaken(offset: int, max_bytes: int, *, from_follower: bool) -> ReadResult:
        found = whole(offset, max_bytes, from_follower=from_follower)
        if offset == 1:
            led.log.truncate(2)
            led.leader_epoch = 2
            led.append(b"x" * 5)
            led.append(b"y" * 5)
        return found

    monkeypatch.setattr(led, "read", overtaken)
    with pytest.raises(NotLeader):
        await led.bytes_at(reads, 10)
    assert await led.bytes_at(reads, 10) == b"x" * 5
    led.log.abandon()
