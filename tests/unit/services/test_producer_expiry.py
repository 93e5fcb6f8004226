"""When silent producers are forgotten, and a slice of them at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
import trio
import trio.testing

from paceline.wire.batch import build_batch
from paceline.wire.batch_header import ProducerNamespace, read_header
from paceline.wire.records import Record
from paceline_node.services import producer_expiry
from paceline_node.services.producer_expiry import PlainProducers, ProducerExpiry, SegmentWriters
from paceline_node.services.segment_writers import SegmentWriters as Claims
from paceline_node.storage.producer_state import ProducerKey, State
from paceline_node.storage.producers import ProducerTable, read_detail
from paceline_node.storage.segment_state import WriterState, writer_key

TTL_S = 100.0
_MANY = 3000
_EACH = 100


class FakePartition:
    """A log that is committed at once, and who leads it."""

    def __init__(self) -> None:
        self.producers = ProducerTable()
        self.log = SimpleNamespace(producers=self.producers)
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


def test_a_writer_whose_connection_is_open_is_not_forgotten() -> None:
    """Nor anybody who wrote after it: the record forgets by time."""
    key = (UUID(int=1), 0)
    times = {b"older": 10, b"idle": 20, b"newer": 30}
    states: dict[ProducerKey, State] = {
        writer_key(ProducerNamespace.SEGMENT_SEED, name): WriterState(100, 5, time)
        for name, time in times.items()
    }
    partition: Any = SimpleNamespace(
        key=key, log=SimpleNamespace(producers=SimpleNamespace(state=states.get))
    )
    writers = Claims()
    segments: Any = SimpleNamespace(writers=writers)
    kind = SegmentWriters(mock.Mock(), segments, ttl_ms=1000)
    assert kind.sparing(partition, list(states), 99) == 99

    def fence() -> None:
        raise AssertionError("nobody comes after it")

    writers.claim((key, b"idle"), writers.arrived(), fence)
    cutoff = kind.sparing(partition, list(states), 99)
    assert [name for _, name in kind.silent(states.items(), cutoff)] == [b"older"]
    writers.release((key, b"idle"), fence)
    assert kind.sparing(partition, list(states), 99) == 99
