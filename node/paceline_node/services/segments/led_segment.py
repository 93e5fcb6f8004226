"""A segment that this node leads, and its writers, for whoever was found to be allowed to use them.

Appending is synchronous, as everywhere: the compare-and-set of the writer's level, the segment's
end and the log's end are looked at and moved without an await in between (DESIGN 7).
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from paceline.errors import NotEnoughReplicas, OffsetOutOfRange, RequestTimedOut
from paceline.types import Acks
from paceline.values import dataclass
from paceline.wire.batch import PayloadKind, ProducerNamespace
from paceline.wire.batch_header import Buffer, read_header
from paceline_node.env import Env
from paceline_node.replication.partition import Done, Partition, PartitionKey, ProduceResult
from paceline_node.services.future import Future
from paceline_node.services.segments.segment_reads import SegmentBounds, SegmentReads, bounds_of
from paceline_node.services.segments.segment_writers import SegmentWriters, Turn
from paceline_node.storage.byte_positions import batch_at
from paceline_node.storage.byte_segment_batches import (
    Run,
    expire_batch,
    run_batch,
    seal_batch,
    truncate_batch,
)
from paceline_node.storage.byte_segment_state import level_of, require_next, writer_key


def _allowed() -> None:
    """This node may do by itself what it does."""


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A segment as its leader knows it. ``last_modified_ms``: timestamp of its newest batch."""

    bounds: SegmentBounds
    last_modified_ms: int


class LedSegment:
    """What a segment's leader does. Every method that says so returns once that is committed; all
    raise NotLeader when another node leads by then. ``ask`` raises AuthorizationFailed once that is
    not allowed any more for which it was opened: who appends, or reads, for long is asked again."""

    __slots__ = ("_env", "_partition", "_reads", "_writers", "ask", "key")

    def __init__(
        self,
        env: Env,
        partition: Partition,
        reads: SegmentReads,
        writers: SegmentWriters,
        ask: Callable[[], None] = _allowed,
    ) -> None:
        self._env = env
        self.ask = ask
        self._partition = partition
        self._reads = reads
        self._writers = writers
        self.key: PartitionKey = partition.key

    def __str__(self) -> str:
        return str(self._partition)

    def check_serving(self) -> None:
        """Raise NotLeader unless this node leads, and knows so from a controller."""
        self._partition.check_serving()

    # --- appending --------------------------------------------------------------------------------

    def writer(self, namespace: ProducerNamespace, writer: bytes) -> SegmentWriter:
        """One who appends to it."""
        return SegmentWriter(self, namespace, writer)

    @property
    def log_end(self) -> int:
        """The position behind its last byte, committed or not."""
        return self._partition.log.producers.marks.end_position

    @property
    def is_sealed(self) -> bool:
        """Whether it takes no more: its seal need not be committed."""
        return self._partition.log.producers.marks.is_sealed

    async def expire_writers(self, cutoff_ms: int, key: bytes, *, timeout_s: float) -> None:
        """Forget writers whose last batch is older, on every replica; ``key`` says which slice of
        them. Raises as :meth:`seal`."""
        marks = self._partition.log.producers.marks
        await self._write(expire_batch(cutoff_ms, marks, self._env.stamp_ms(), key), timeout_s)

    def _produce(self, batch: bytearray, timeout_s: float, done: Done, client: str = "") -> None:
        headers = [read_header(batch)]
        self._partition.produce(
            batch, headers, acks=Acks.ALL, timeout_s=timeout_s, done=done, client=client
        )

    async def _write(self, batch: bytearray, timeout_s: float) -> None:
        answer: Future[ProduceResult] = Future()
        self._produce(batch, timeout_s, answer.deliver)
        await self._outcome(answer, timeout_s)

    async def _begin_term(self, deadline: float) -> None:
        """Commit something of this term that says nothing new."""
        marks = self._partition.log.producers.marks
        nothing = truncate_batch(marks.start_position, marks, self._env.stamp_ms())
        await self._write(nothing, max(0.0, deadline - self._env.now()))

    async def _outcome(self, answer: Future[ProduceResult], timeout_s: float) -> None:
        """Return once what was appended is committed."""
        with trio.move_on_after(timeout_s + 1):
            await answer.wait()
            return
        raise RequestTimedOut(f"{self}: not committed in {timeout_s:g} s; outcome unknown")

    # --- ending -----------------------------------------------------------------------------------

    async def seal(self, *, timeout_s: float) -> None:
        """End it; returns once the seal is committed, also when it was sealed before.

        Raises NotLeader, NotEnoughReplicas, and errors of unknown outcome.
        """
        marks = self._partition.log.producers.marks
        if not marks.is_sealed:
            await self._write(seal_batch(marks, self._env.stamp_ms()), timeout_s)
            return
        await self._committed(marks.sealed_at + 1, self._env.now() + timeout_s)

    async def truncate(self, start: int, *, timeout_s: float) -> None:
        """Give up all bytes before ``start``, 0 or more; no effect when they are gone already.
        Returns once that is committed.

        Raises OffsetOutOfRange beyond the readable end, and as :meth:`seal`.
        """
        partition = self._partition
        deadline = self._env.now() + timeout_s
        if start > self.bounds().end:
            await self._confirmed(deadline)
        bounds = self.bounds()
        if not 0 <= start <= bounds.end:
            raise OffsetOutOfRange(f"{self}: byte {start} is outside 0..{bounds.end}")
        marks = partition.log.producers.marks
        if start <= bounds.start:
            if start:
                # An earlier wish may lie in the log and not be committed; it is not known where.
                await self._committed(marks.last_offset + 1, deadline)
            return
        timeout_s = max(0.0, deadline - self._env.now())
        await self._write(truncate_batch(start, marks, self._env.stamp_ms()), timeout_s)
        partition.check_serving()
        kept = batch_at(partition.log, start)
        if kept is not None:
            partition.log.advance_start(min(kept.base_offset, partition.high_watermark))

    # --- looking ----------------------------------------------------------------------------------

    def bounds(self) -> SegmentBounds:
        """What may be read now. Raises CorruptMessage where the log is damaged."""
        return bounds_of(self._partition)

    async def info(self, *, timeout_s: float) -> SegmentInfo:
        """Its bounds and age. Its length never falls, and what was sealed stays so: a new leader
        answers when it knows as much as earlier ones. Raises as :meth:`SegmentWriter.level`."""
        await self._confirmed(self._env.now() + timeout_s)
        newest = max(segment.max_timestamp for segment in self._partition.log.segments)
        return SegmentInfo(self.bounds(), max(0, newest))

    async def read(self, position: int, max_bytes: int) -> list[memoryview]:
        """As :meth:`SegmentReads.read`."""
        self.ask()
        return await self._reads.read(self._partition, position, max_bytes)

    async def wait_for_more(self, wait_s: float) -> None:
        """Return once more is committed, the role changes, or ``wait_s`` are over."""
        await self._readable(self._partition.high_watermark, wait_s)

    async def _confirmed(self, deadline: float) -> None:
        """Return once the readable end covers all that a client was ever told: a new leader holds
        that, and knows only later how much of it is committed. Raises as :meth:`_committed`."""
        self._partition.check_serving()
        leader = self._partition.replica.leader
        assert leader is not None
        await self._committed(leader.start_offset, deadline)

    async def _committed(self, end: int, deadline: float) -> None:
        """Return once everything below offset ``end`` is committed. Raises NotLeader, and
        NotEnoughReplicas when that does not come to pass in time."""
        partition = self._partition
        partition.check_serving()
        while partition.high_watermark < end:
            if not await self._readable(end - 1, deadline - self._env.now()):
                raise NotEnoughReplicas(
                    f"{partition}: offset {end - 1} is not committed, "
                    f"in-sync replicas {list(partition.isr)}"
                )
            partition.check_serving()

    async def _readable(self, offset: int, wait_s: float) -> bool:
        """Wait until ``offset`` is committed or the role changes; False when neither happened."""
        happened = trio.Event()
        token = self._partition.when_readable(offset, happened.set)
        try:
            with trio.move_on_after(max(0.0, wait_s)):
                await happened.wait()
        finally:
            self._partition.cancel(token)
        return happened.is_set()


class SegmentWriter:
    """One who appends to a segment, by its id, which is one of the dialect ``namespace``."""

    __slots__ = ("_fence", "_id", "_key", "_namespace", "segment")

    def __init__(self, segment: LedSegment, namespace: ProducerNamespace, writer: bytes) -> None:
        self.segment = segment
        self._namespace = namespace
        self._id = writer
        self._key = writer_key(namespace, writer)
        self._fence: Callable[[], None] | None = None

    def claim(self, turn: Turn, fence: Callable[[], None]) -> None:
        """Be it from now on; see :meth:`SegmentWriters.claim`."""
        self._fence = fence
        self.segment._writers.claim((self.segment.key, self._id), turn, fence)

    def release(self) -> None:
        """Be it no longer; no effect when somebody else has claimed it meanwhile."""
        fence, self._fence = self._fence, None  # whose owner refers to this writer
        if fence is not None:
            self.segment._writers.release((self.segment.key, self._id), fence)

    async def level(self, *, timeout_s: float) -> int:
        """What is stored of it, once all of that is committed (``byte_segment_state.level_of``).
        What was on its way to an earlier leader will not be stored any more (DESIGN 7.4).

        Raises NotLeader, NotEnoughReplicas when that does not come to pass in time, StorageFull.
        """
        segment, partition = self.segment, self.segment._partition
        deadline = segment._env.now() + timeout_s
        while True:
            partition.check_serving()
            stored = partition.log.producers.writer(self._key)
            needed = 0 if stored is None else stored.last_offset + 1
            leader = partition.replica.leader
            assert leader is not None
            if leader.leader_epoch:
                needed = max(needed, leader.start_offset + 1)
                if partition.log_end_offset == leader.start_offset:
                    await segment._begin_term(deadline)
            if partition.high_watermark >= needed:
                return level_of(self._namespace, stored)
            await segment._committed(needed, deadline)

    def append(
        self,
        start: int,
        end: int,
        event_count: int,
        payload: Buffer,
        kind: PayloadKind = PayloadKind.EVENTS,
        *,
        timeout_s: float,
        done: Done,
        client: str = "",
    ) -> None:
        """Append whole Events, in order, or raw bytes, which count as one, behind its level
        ``start``, which is ``end`` from then on; ``done`` and ``client`` as for
        ``Partition.produce``.

        Raises with nothing appended: NotLeader, NotEnoughReplicas, StorageFull; SegmentSealed;
        OutOfOrderSequence when its level is not ``start``; AuthorizationFailed.
        """
        self.segment.ask()
        producers = self.segment._partition.log.producers
        level = level_of(self._namespace, producers.writer(self._key))
        require_next(producers.marks, level, start)
        run = Run(self._namespace, self._id, start, end, event_count, payload, kind)
        batch = run_batch(run, producers.marks, self.segment._env.stamp_ms())
        self.segment._produce(batch, timeout_s, done, client)

    async def append_and_wait(
        self,
        start: int,
        end: int,
        event_count: int,
        payload: Buffer,
        kind: PayloadKind = PayloadKind.EVENTS,
        *,
        timeout_s: float,
        client: str = "",
    ) -> None:
        """As :meth:`append`; returns once that is committed, and raises as :meth:`LedSegment.seal`
        too."""
        answer: Future[ProduceResult] = Future()
        done = answer.deliver
        self.append(
            start, end, event_count, payload, kind, timeout_s=timeout_s, done=done, client=client
        )
        await self.segment._outcome(answer, timeout_s)
