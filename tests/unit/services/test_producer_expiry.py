"""When silent producers are forgotten, and a slice of them at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from unittest import mock
from uuid import UUID

import pytest
import trio
import trio.testing

from paceline.wire.batch import build_batch
from paceline.wire.batch_header import ProducerNamespace, read_header
from paceline.wire.records import Record
from paceline_node.services.records import producer_expiry
from paceline_node.services.records.producer_expiry import (
    PlainProducers,
    ProducerExpiry,
    SegmentWriters,
)
from paceline_node.services.segments.segment_writers import SegmentWriters as CommittableOffsets
from paceline_node.storage.byte_segment_state import WriterState, writer_key
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.producer_state import ProducerKey, State
from paceline_node.storage.producers import ProducerTable, read_detail

TTL_S = 100.0
_MANY = 3000
_EACH = 100


class FakePartition:
    """A log that is committed at once, and who leads it."""

    def __init__(self) -> None:
        self.producers = ProducerTable()
        self.epochs = EpochCache([(1, 0)])
        self.log = SimpleNamespace(producers=self.producers, epochs=self.epochs, generation=0)
        self.gate = mock.Mock()
        self.is_leader = True
        self.high_watermark = 0
        self.steps: list[int] = []

    def write(self, producer_id: int) -> None:
        state = self.producers.producer(producer_id)
        self.append(
            build_batch(
                [Record(value=b"v", timestamp_ms=1)],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0 if state is None else state.known,
            )
        )

    def append(self, batch: bytearray) -> None:
        header = read_header(batch)
        before = len(self.producers)
        self.producers.note(header, read_detail(batch, 0, header), self.high_watermark)
        self.high_watermark += header.last_offset_delta + 1
        self.steps.append(before - len(self.producers))


@pytest.fixture
def partition(monkeypatch: pytest.MonkeyPatch) -> FakePartition:
    async def store(partition: Any, batch: bytearray, timeout_s: float) -> None:
        await trio.lowlevel.checkpoint()
        partition.append(batch)

    monkeypatch.setattr(producer_expiry, "_store", store)
    return FakePartition()


def expiring(nursery: trio.Nursery, partition: FakePartition) -> None:
    env: Any = SimpleNamespace(
        now=trio.current_time, host=SimpleNamespace(wall_ms=lambda: 1_000_000)
    )
    table: Any = SimpleNamespace(partitions=(partition,))
    expiry = ProducerExpiry(env, PlainProducers(env, table, ttl_s=TTL_S), pause_s=1.0)
    nursery.start_soon(expiry.run)


async def test_changes_of_leader_do_not_begin_the_time_anew(
    partition: FakePartition, autojump_clock: trio.testing.MockClock
) -> None:
    partition.write(1)
    async with trio.open_nursery() as nursery:
        expiring(nursery, partition)
        for _ in range(16):
            await trio.sleep(TTL_S / 10)
            partition.is_leader = not partition.is_leader
            partition.write(2)
        nursery.cancel_scope.cancel()
    assert partition.producers.producer(1) is None
    assert partition.producers.producer(2) is not None


async def test_nobody_is_forgotten_early(
    partition: FakePartition, autojump_clock: trio.testing.MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        expiring(nursery, partition)
        for number in range(200):
            partition.write(number % 10)
            if number > 10:
                assert partition.producers.producer((number + 1) % 10) is not None
            await trio.sleep(TTL_S / 11)
        nursery.cancel_scope.cancel()


def cut(partition: FakePartition, begins_anew: bool) -> None:
    """Another history takes the log's place, from its start on or from the middle."""
    if begins_anew:
        partition.producers.clear(5)
        partition.epochs.clear()
        partition.log.generation += 1
        partition.high_watermark = 5
    else:
        partition.producers.truncate(5)
        partition.epochs.truncate_end(5)
        partition.epochs.assign(2, 5)
        partition.high_watermark = 5


@pytest.mark.parametrize("begins_anew", [False, True])
async def test_another_history_makes_nobody_silent(
    begins_anew: bool, partition: FakePartition, autojump_clock: trio.testing.MockClock
) -> None:
    """Whoever had written below an offset that was old in the former one was forgotten."""
    async with trio.open_nursery() as nursery:
        expiring(nursery, partition)
        for _ in range(15):
            for _ in range(5):
                partition.write(1)
            await trio.sleep(TTL_S / 10)
        cut(partition, begins_anew)
        for _ in range(10):
            partition.write(2)
        for _ in range(90):
            partition.write(3)
        await trio.sleep(TTL_S / 2)
        assert partition.producers.producer(2) is not None
        await trio.sleep(TTL_S)
        assert partition.producers.producer(2) is None
        nursery.cancel_scope.cancel()


async def test_many_are_forgotten_a_slice_at_a_time(
    partition: FakePartition, autojump_clock: trio.testing.MockClock
) -> None:
    for number in range(_MANY):
        partition.write(number)
    partition.steps.clear()
    async with trio.open_nursery() as nursery:
        expiring(nursery, partition)
        await trio.sleep(2 * TTL_S)
        nursery.cancel_scope.cancel()
    assert len(partition.producers) == 0
    assert sum(partition.steps) == _MANY
    assert max(partition.steps) < _EACH
    forgotten = [len(list(call.args[0])) for call in partition.gate.forget.call_args_list]
    assert len(forgotten) == len(partition.steps)


class Writers:
    """A segment's log, up to offset 100 since the start, and those who wrote to it."""

    def __init__(self, **written: tuple[int, int]) -> None:
        """``written`` are the last batch's offset and timestamp by writer."""
        self.states: dict[ProducerKey, State] = {
            writer_key(ProducerNamespace.SEGMENT_SEED, name.encode()): WriterState(1, *last)
            for name, last in written.items()
        }
        self.key, self.is_leader, self.high_watermark = (UUID(int=1), 0), True, 100
        producers = mock.MagicMock(state=self.states.get, __len__=lambda _: len(written))
        self.log = SimpleNamespace(producers=producers, epochs=EpochCache([(1, 0)]), generation=0)
        self.claims, self.now, self.wall = CommittableOffsets(), 0.0, 1_000_000
        self.kind = SegmentWriters(
            cast(
                Any,
                SimpleNamespace(
                    now=lambda: self.now, host=SimpleNamespace(wall_ms=lambda: self.wall)
                ),
            ),
            cast(Any, SimpleNamespace(partitions=(self,))),
            cast(Any, SimpleNamespace(writers=self.claims)),
            ttl_ms=1000,
        )

    def forgotten(self) -> list[bytes] | None:
        """Whom the next look forgets; None: it is too early for one."""
        me: Any = self
        assert list(self.kind.led_here()) == [self]
        cutoff = self.kind.cutoff(me)
        if cutoff is None:
            return None
        gone = list(self.kind.silent(self.states.items(), cutoff))
        sparing = self.kind.sparing(me, gone, cutoff)
        return [name for _, name in self.kind.silent(self.states.items(), sparing)]


def _never() -> None:
    raise AssertionError("nobody comes after it")


def test_a_writer_whose_connection_is_open_is_not_forgotten() -> None:
    """Nor anybody who wrote after it: the record forgets by time."""
    writers = Writers(older=(5, 10), idle=(6, 20), newer=(7, 30))
    assert writers.forgotten() is None
    writers.now = 1.0
    assert writers.forgotten() == [b"older", b"idle", b"newer"]
    writers.claims.claim((writers.key, b"idle"), writers.claims.arrived(), _never)
    assert writers.forgotten() == [b"older"]
    writers.claims.release((writers.key, b"idle"), _never)
    assert writers.forgotten() == [b"older", b"idle", b"newer"]


@pytest.mark.parametrize("jump_ms", [3_600_000, 0])
def test_no_clock_that_jumps_makes_a_writer_silent(jump_ms: int) -> None:
    """Neither this node's, nor that of a former leader, which was behind and gave the times."""
    busy_at = 1_000_000 if jump_ms else 20
    writers = Writers(older=(5, 10), busy=(100, busy_at))
    writers.forgotten()
    writers.now = 0.9
    writers.wall += jump_ms
    assert writers.forgotten() is None
    writers.now = 1.0
    assert writers.forgotten() == [b"older"]
