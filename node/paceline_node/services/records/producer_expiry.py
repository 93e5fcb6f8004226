"""Forgetting producers that have been silent for long (DESIGN 6).

The leader writes a record with a cut-off, now and then, and every replica forgets the
same producers at the same place of the log: never by a clock of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import structlog
import trio

from paceline.errors import PacelineError
from paceline.types import NO_EPOCH, Acks
from paceline.wire.batch import ProducerNamespace, read_header
from paceline_node.env import Env
from paceline_node.replication.hosted_partitions import HostedPartitions
from paceline_node.replication.partition import Partition, ProduceResult
from paceline_node.services.future import Future
from paceline_node.services.segments.segment_service import SegmentService
from paceline_node.storage import byte_segment_state, sequenced_records
from paceline_node.storage.byte_segment_state import WriterState
from paceline_node.storage.producer_state import ProducerKey, State
from paceline_node.storage.producers import idle_before
from paceline_node.storage.sequenced_batches import EVERYBODY, expire_batch
from paceline_node.storage.sequenced_records import SequencedState
from paceline_node.storage.state_map import SLICES, expiry_key

_TIMEOUT_S = 30.0
_NEVER = 0
"""A cut-off, by time or by offset, before which nobody wrote."""
_MARKS_A_TTL = 4
"""How often it is noted how far a log is committed: so much longer may a producer be silent."""

States = Iterable[tuple[ProducerKey, State]]


class ProducerKind(Protocol):
    """Producers of one kind, in the logs that this node leads."""

    def led_here(self) -> Iterator[Partition]:
        """Logs that may hold some."""

    def cutoff(self, partition: Partition) -> int | None:
        """Who has been silent since then is to be forgotten; None: nobody yet."""

    def silent(self, states: States, cutoff: int) -> Iterator[ProducerKey]:
        """Which of them have been."""

    def sparing(self, partition: Partition, gone: Sequence[ProducerKey], cutoff: int) -> int:
        """``cutoff``, or an earlier one that spares those of ``gone`` who are here still; all,
        where the log has another history by now."""

    async def expire(
        self, partition: Partition, cutoff: int, key: bytes, *, timeout_s: float
    ) -> None:
        """Write the record that forgets them; ``key`` is its producer key, which says of which
        slice. Raises PacelineError."""


class ProducerExpiry:
    """Looks at all logs of a kind every ``pause_s``: at one slice of the producers at a time, so
    that neither looking nor forgetting holds the loop up, here or on any replica. Before each
    look it does ``first``: an open transaction keeps its producer."""

    def __init__(
        self,
        env: Env,
        kind: ProducerKind,
        *,
        pause_s: float,
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._env = env
        self._first = first
        self._kind = kind
        self._pause_s = pause_s
        self._log = structlog.get_logger(component="producers")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(self._pause_s)
            if self._first is not None:
                await self._first()
            for partition in list(self._kind.led_here()):
                await trio.lowlevel.checkpoint()
                await self._look(partition)

    async def _look(self, partition: Partition) -> None:
        kind, table = self._kind, partition.log.producers
        cutoff = kind.cutoff(partition)
        if cutoff is None:
            return
        numbers: Iterable[int | None] = (None,) if table.shard_count == 1 else range(SLICES)
        try:
            for number in numbers:
                await trio.lowlevel.checkpoint()
                if not partition.is_leader:
                    return
                states = table if number is None else table.states_of(number)
                gone = list(kind.silent(states, cutoff))
                sparing = kind.sparing(partition, gone, cutoff)
                if sparing < cutoff:
                    gone = list(kind.silent(states, sparing))
                if gone:
                    key = EVERYBODY if number is None else expiry_key(number)
                    await kind.expire(partition, sparing, key, timeout_s=_TIMEOUT_S)
                    partition.gate.forget(each for each in gone if table.state(each) is None)
        except PacelineError as error:
            # Nothing depends on when it happens: the next round tries again.
            self._log.warning("producers not expired", partition=str(partition), error=str(error))


class _Mark(NamedTuple):
    """How far a log was committed at a time: what lies below was written before. ``epoch`` is the
    leader epoch of the last record there, ``generation`` the log's: after an unclean election
    other records may lie below the same offset."""

    at: float
    end_offset: int
    epoch: int
    generation: int

    @classmethod
    def of(cls, partition: Partition, now: float) -> _Mark:
        end, log = partition.high_watermark, partition.log
        return cls(now, end, log.epochs.epoch_at(end - 1), log.generation)

    def is_of(self, partition: Partition) -> bool:
        """Whether ``partition`` has that history still."""
        log = partition.log
        if self.end_offset > partition.high_watermark or self.generation != log.generation:
            return False
        # Of what lies below the oldest record the table says nothing; nothing has replaced it.
        return log.epochs.epoch_at(self.end_offset - 1) in (self.epoch, NO_EPOCH)


class _Marks:
    """How far logs were committed ``ttl_s`` ago, by a clock that does not jump. That is remembered
    on every replica, so a new leader need not wait anew; only a node's restart forgets it, and
    another history in the log's place."""

    def __init__(self, env: Env, table: HostedPartitions, ttl_s: float) -> None:
        self._env = env
        self._table = table
        self._ttl_s = ttl_s
        self._marks: dict[Partition, deque[_Mark]] = {}

    def renew(self) -> Iterator[Partition]:
        """Note how far logs are now; those that know producers."""
        former, self._marks = self._marks, {}
        for partition in self._table.partitions:
            if len(partition.log.producers):
                marks = self._marks[partition] = former.get(partition) or deque()
                self._mark(partition, marks)
        return iter(list(self._marks))

    def _mark(self, partition: Partition, marks: deque[_Mark]) -> None:
        now = self._env.now()
        if not all(each.is_of(partition) for each in marks):
            marks.clear()
        if not marks or now - marks[-1].at >= self._ttl_s / _MARKS_A_TTL:
            marks.append(_Mark.of(partition, now))
        while len(marks) > 1 and now - marks[1].at >= self._ttl_s:
            marks.popleft()

    def end(self, partition: Partition) -> int | None:
        """Where ``partition`` was committed to then; None: nobody here remembers."""
        marks = self._marks.get(partition)
        if not marks or self._env.now() - marks[0].at < self._ttl_s:
            return None
        if not marks[0].is_of(partition):
            return None
        return marks[0].end_offset


class _ByTime:
    """Producers whose batches have the broker's own time.

    Their record forgets by that time, but a clock that jumps makes nobody silent: whoever has
    written above what was committed a time-out ago is spared, whatever the times say.
    """

    def __init__(self, env: Env, table: HostedPartitions, ttl_ms: int) -> None:
        self._env = env
        self._ttl_ms = ttl_ms
        self._marks = _Marks(env, table, ttl_ms / 1000)

    def led_here(self) -> Iterator[Partition]:
        return (partition for partition in self._marks.renew() if partition.is_leader)

    def cutoff(self, partition: Partition) -> int | None:
        if self._marks.end(partition) is None:
            return None
        return self._env.host.wall_ms() - self._ttl_ms

    def sparing(self, partition: Partition, gone: Sequence[ProducerKey], cutoff: int) -> int:
        end = self._marks.end(partition)
        if end is None:
            return _NEVER
        for key in gone:
            state = partition.log.producers.state(key)
            assert isinstance(state, WriterState | SequencedState)
            if state.last_offset >= end or self._is_here(partition, key):
                cutoff = min(cutoff, state.last_timestamp)
        return cutoff

    def _is_here(self, partition: Partition, key: ProducerKey) -> bool:
        return False


class SegmentWriters(_ByTime):
    """Those who append Events. One whose connection is open may be idle as long as it likes: told
    that nobody knows it, it could never go on."""

    def __init__(
        self, env: Env, table: HostedPartitions, segments: SegmentService, *, ttl_ms: int
    ) -> None:
        super().__init__(env, table, ttl_ms)
        self._segments = segments

    def silent(self, states: States, cutoff: int) -> Iterator[ProducerKey]:
        return byte_segment_state.silent(states, cutoff)

    def _is_here(self, partition: Partition, key: ProducerKey) -> bool:
        return (partition.key, key[1]) in self._segments.writers

    async def expire(
        self, partition: Partition, cutoff: int, key: bytes, *, timeout_s: float
    ) -> None:
        await self._segments.led(partition).expire_writers(cutoff, key, timeout_s=timeout_s)


class SequencedProducers(_ByTime):
    """Those who number their records (``storage/sequenced_records.py``)."""

    def __init__(self, env: Env, table: HostedPartitions, *, ttl_ms: int) -> None:
        super().__init__(env, table, ttl_ms)

    def silent(self, states: States, cutoff: int) -> Iterator[ProducerKey]:
        return sequenced_records.silent(states, cutoff)

    async def expire(
        self, partition: Partition, cutoff: int, key: bytes, *, timeout_s: float
    ) -> None:
        batch = expire_batch(cutoff, self._env.host.wall_ms(), producer_key=key)
        await _store(partition, batch, timeout_s)


class PlainProducers:
    """Those of v2 batches: idempotent and transactional producers.

    Their clients choose their timestamps, which may lie far back, so silence is told by offsets:
    whoever has written nothing above what was committed ``ttl_s`` ago.
    """

    def __init__(self, env: Env, table: HostedPartitions, *, ttl_s: float) -> None:
        self._env = env
        self._marks = _Marks(env, table, ttl_s)

    def led_here(self) -> Iterator[Partition]:
        return (partition for partition in self._marks.renew() if partition.is_leader)

    def cutoff(self, partition: Partition) -> int | None:
        return self._marks.end(partition)

    def silent(self, states: States, cutoff: int) -> Iterator[ProducerKey]:
        return idle_before(states, cutoff)

    def sparing(self, partition: Partition, gone: Sequence[ProducerKey], cutoff: int) -> int:
        return cutoff if self._marks.end(partition) is not None else _NEVER

    async def expire(
        self, partition: Partition, cutoff: int, key: bytes, *, timeout_s: float
    ) -> None:
        now_ms = self._env.host.wall_ms()
        batch = expire_batch(cutoff, now_ms, ProducerNamespace.NONE, producer_key=key)
        await _store(partition, batch, timeout_s)


async def _store(partition: Partition, batch: bytearray, timeout_s: float) -> None:
    """Append a record of the leader's own and wait until it is committed. Raises PacelineError."""
    answer: Future[ProduceResult] = Future()
    partition.produce(
        batch,
        [read_header(batch, 0)],
        acks=Acks.ALL,
        timeout_s=timeout_s,
        done=answer.deliver,
    )
    await answer.wait()
