"""Forgetting producers that have been silent for long (spec segment 10.4, cursus 5, replication
4.4).

The leader writes a record with a cut-off, now and then, and every replica forgets the
same producers at the same place of the log: never by a clock of its own (SETTLED B9).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import structlog
import trio

from paceline.errors import PacelineError
from paceline.types import Acks
from paceline.wire.batch import ProducerNamespace, read_header
from paceline_node.env import Env
from paceline_node.replication.partition import Partition, ProduceResult
from paceline_node.replication.table import PartitionTable
from paceline_node.services.answer import Answer
from paceline_node.services.segments import SegmentService
from paceline_node.storage.numbered import silent
from paceline_node.storage.numbered_batches import expire_batch

_TIMEOUT_S = 30.0


class ProducerKind(Protocol):
    """Producers of one kind, in the logs that this node leads."""

    def led_here(self) -> Iterator[Partition]:
        """Logs that may hold some."""

    def has_silent(self, partition: Partition, cutoff_ms: int) -> bool:
        """Whether any of them has been silent since before then."""

    async def expire(self, partition: Partition, cutoff_ms: int, *, timeout_s: float) -> None:
        """Write the record that forgets those. Raises PacelineError."""


class ProducerExpiry:
    """Looks at all logs of a kind every ``pause_s``."""

    def __init__(self, env: Env, kind: ProducerKind, *, ttl_ms: int, pause_s: float) -> None:
        self._env = env
        self._kind = kind
        self._ttl_ms = ttl_ms
        self._pause_s = pause_s
        self._log = structlog.get_logger(component="producers")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(self._pause_s)
            cutoff_ms = self._env.host.wall_ms() - self._ttl_ms
            for partition in list(self._kind.led_here()):
                if self._kind.has_silent(partition, cutoff_ms):
                    await self._expire(partition, cutoff_ms)
                else:
                    await trio.lowlevel.checkpoint()

    async def _expire(self, partition: Partition, cutoff_ms: int) -> None:
        try:
            await self._kind.expire(partition, cutoff_ms, timeout_s=_TIMEOUT_S)
        except PacelineError as error:
            # Nothing depends on when it happens: the next round tries again.
            self._log.warning("producers not expired", partition=str(partition), error=str(error))


class SegmentWriters:
    """Those who append Events."""

    def __init__(self, segments: SegmentService) -> None:
        self._segments = segments

    def led_here(self) -> Iterator[Partition]:
        return iter(self._segments.led_here())

    def has_silent(self, partition: Partition, cutoff_ms: int) -> bool:
        writers = partition.log.producers.writers()
        return any(writer.last_timestamp < cutoff_ms for writer in writers.values())

    async def expire(self, partition: Partition, cutoff_ms: int, *, timeout_s: float) -> None:
        await self._segments.expire_writers(partition, cutoff_ms, timeout_s=timeout_s)


class NumberedProducers:
    """Those who number their records (``storage/numbered.py``)."""

    def __init__(self, env: Env, table: PartitionTable) -> None:
        self._env = env
        self._table = table

    def led_here(self) -> Iterator[Partition]:
        return (partition for partition in self._table.partitions if partition.is_leader)

    def has_silent(self, partition: Partition, cutoff_ms: int) -> bool:
        return any(silent(partition.log.producers, cutoff_ms))

    async def expire(self, partition: Partition, cutoff_ms: int, *, timeout_s: float) -> None:
        await _store(partition, expire_batch(cutoff_ms, self._env.host.wall_ms()), timeout_s)


class _Mark(NamedTuple):
    """Where a log ended at a time, in one leadership."""

    at: float
    end_offset: int
    leader_epoch: int


class PlainProducers:
    """Those of v2 batches: idempotent and transactional producers.

    Their clients choose their timestamps, which may lie far back, so silence is told by offsets:
    whoever has written nothing above where the log ended ``ttl_s`` ago. That is remembered for one
    leadership; after each change of leader it takes ``ttl_s`` again.
    """

    def __init__(self, env: Env, table: PartitionTable, *, ttl_s: float) -> None:
        self._env = env
        self._table = table
        self._ttl_s = ttl_s
        self._marks: dict[Partition, _Mark] = {}

    def led_here(self) -> Iterator[Partition]:
        led = [partition for partition in self._table.partitions if partition.is_leader]
        self._marks = {each: self._marks[each] for each in led if each in self._marks}
        return iter(led)

    def has_silent(self, partition: Partition, cutoff_ms: int) -> bool:
        mark = self._marks.get(partition)
        if mark is not None and mark.leader_epoch == partition.leader_epoch:
            if self._env.now() - mark.at < self._ttl_s:
                return False
            if any(partition.log.producers.idle_before(mark.end_offset)):
                return True
        self._mark(partition)
        return False

    async def expire(self, partition: Partition, cutoff_ms: int, *, timeout_s: float) -> None:
        offset = self._marks[partition].end_offset
        now_ms = self._env.host.wall_ms()
        await _store(partition, expire_batch(offset, now_ms, ProducerNamespace.NONE), timeout_s)
        partition.gate.forget_gone(partition.log.producers)
        self._mark(partition)

    def _mark(self, partition: Partition) -> None:
        mark = _Mark(self._env.now(), partition.log_end_offset, partition.leader_epoch)
        self._marks[partition] = mark


async def _store(partition: Partition, batch: bytearray, timeout_s: float) -> None:
    """Append a record of the leader's own and wait until it is committed. Raises PacelineError."""
    answer: Answer[ProduceResult] = Answer()
    partition.produce(
        batch,
        [read_header(batch, 0)],
        acks=Acks.ALL,
        timeout_s=timeout_s,
        done=answer.deliver,
    )
    await answer.wait()
