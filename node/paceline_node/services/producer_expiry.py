"""Forgetting producers that have been silent for long (spec segment 10.4, cursus 5).

The leader writes a record with a cut-off time, now and then, and every replica forgets the
same producers at the same place of the log: never by a clock of its own (SETTLED B9).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import structlog
import trio

from paceline.errors import PacelineError
from paceline.types import Acks
from paceline.wire.batch import read_header
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
        batch = expire_batch(cutoff_ms, self._env.host.wall_ms())
        answer: Answer[ProduceResult] = Answer()
        partition.produce(
            batch,
            [read_header(batch, 0)],
            acks=Acks.ALL,
            timeout_s=timeout_s,
            done=answer.deliver,
        )
        await answer.wait()
