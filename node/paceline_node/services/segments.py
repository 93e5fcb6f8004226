"""Segments: byte sequences with exactly-once writers, on partitions of kind ``segment``.

What the segment protocol's dialects need of a broker, in no dialect's words (DESIGN 7).
Appending is synchronous, as everywhere: the compare-and-set of the writer's level, the segment's
end and the log's end are looked at and moved without an await in between.
"""

from __future__ import annotations

import trio

from paceline.errors import (
    NotEnoughReplicas,
    NotLeader,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownOutcome,
    UnknownTopicOrPartition,
)
from paceline.types import NO_NODE, Acks, NodeId
from paceline.values import dataclass
from paceline.wire.batch_header import read_header
from paceline.wire.native.admin import Done as AdminDone
from paceline.wire.peer.control import CreateSegmentRequest, DeleteSegmentRequest
from paceline.wire.segment.names import SegmentPlace
from paceline_node.controller.topic_config import SEGMENT_NAME
from paceline_node.env import Env
from paceline_node.replication.hosted import PartitionTable
from paceline_node.replication.partition import Done, Partition, ProduceResult
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.access import Access
from paceline_node.services.answer import Answer
from paceline_node.services.segment_reads import SegmentBounds, SegmentReads, bounds_of
from paceline_node.services.segment_writers import SegmentWriters
from paceline_node.services.topics import TopicService
from paceline_node.storage.byte_positions import batch_at
from paceline_node.storage.byte_segment_batches import (
    Run,
    expire_batch,
    run_batch,
    seal_batch,
    truncate_batch,
)
from paceline_node.storage.byte_segment_state import StateKey, level_of, require_next, writer_key

KIND = "segment"
_APPEARS_S = 0.5
"""How long a segment that this node does not know may be on its way here from the node that its
client made it at."""
_KNOWN_S = 5.0
"""How long such a segment may be on its way to a node that is not fenced."""
_TAKES_ROLE_S = 2.0
_CREATE_AGAIN_S = 0.1
_LOOK_AGAIN_S = 0.01


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A segment as its leader knows it. ``last_modified_ms``: timestamp of its newest batch."""

    bounds: SegmentBounds
    last_modified_ms: int


class OpenSegment:
    """A segment that somebody may do something to; it need not exist."""

    __slots__ = ("place",)

    def __init__(self, place: SegmentPlace) -> None:
        self.place = place


class SegmentService:
    """Creates, finds, appends to, reads and ends segments."""

    def __init__(
        self,
        env: Env,
        node_id: NodeId,
        access: Access,
        table: PartitionTable,
        topics: TopicService,
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._access = access
        self._table = table
        self._topics = topics
        self.reads = SegmentReads()
        self.writers = SegmentWriters()

    # --- finding ----------------------------------------------------------------------------------

    def open(self, principal: Principal, operation: Operation, place: SegmentPlace) -> OpenSegment:
        """A segment, for ``principal`` to do this to it. Raises AuthorizationFailed."""
        self._access.topic(principal, operation, place.topic)
        return OpenSegment(place)

    async def appears(self, place: SegmentPlace) -> None:
        """Wait a moment for a segment that was made at another node just now; no error without."""
        await self._topics.appears(place.topic, place.partition, timeout_s=_APPEARS_S)

    async def leading(
        self, principal: Principal, operation: Operation, place: SegmentPlace
    ) -> Partition:
        """This node's leading replica of a segment.

        Raises AuthorizationFailed; UnknownTopicOrPartition: there is no such segment; NotLeader:
        ask the node that :meth:`leader` names.
        """
        self.open(principal, operation, place)
        await self.appears(place)
        deadline = self._env.now() + _TAKES_ROLE_S
        while True:
            self.require(place)
            partition = self._table.get(place.topic, place.partition)
            if partition is not None and partition.is_leader:
                partition.check_serving()
                return partition
            if self.leader(place) != self._node_id or self._env.now() >= deadline:
                raise NotLeader(f"{place.name}: the leader is node {self.leader(place)}")
            await trio.sleep(_LOOK_AGAIN_S)

    def exists(self, place: SegmentPlace) -> bool:
        """Whether this node knows the segment."""
        topic = self._topics.find(place.topic)
        return topic is not None and topic.kind == KIND and place.partition in topic.partitions

    async def is_gone(self, place: SegmentPlace) -> bool:
        """Whether a segment that was made before is no more. One that this node has not heard of
        may be on its way here."""
        topic = self._topics.find(place.topic)
        if topic is not None and place.partition in topic.retired:
            return True
        return not await self._topics.appears(place.topic, place.partition, timeout_s=_KNOWN_S)

    def has_retired(self, place: SegmentPlace) -> bool:
        """Whether a segment of the topic of ``place`` was deleted, and others live on."""
        topic = self._topics.find(place.topic)
        return topic is not None and bool(topic.retired)

    def highest_number(self, place: SegmentPlace) -> int:
        """The highest number that a segment has or had in the topic of ``place``, as the metadata
        here have it; -1: none."""
        topic = self._topics.find(place.topic)
        return -1 if topic is None else max((*topic.partitions, *topic.retired), default=-1)

    def require(self, place: SegmentPlace) -> None:
        """Raise UnknownTopicOrPartition unless this node knows the segment."""
        if not self.exists(place):
            raise UnknownTopicOrPartition(f"there is no segment {place.name!r}")

    def leader(self, place: SegmentPlace) -> NodeId:
        """The node that leads, as the metadata here have it; -1: nobody, or no such segment."""
        topic = self._topics.find(place.topic)
        registration = None if topic is None else topic.partitions.get(place.partition)
        return NO_NODE if registration is None else registration.leader

    def leader_address(self, place: SegmentPlace, listener: str) -> str:
        """``host:port`` of the leader's listener; empty when nobody else is known to lead, or the
        leader has no such listener (DESIGN 3.3)."""
        leader = self.leader(place)
        broker = self._topics.image.brokers.get(leader)
        if broker is None or leader == self._node_id:
            return ""
        endpoint = broker.endpoint(listener)
        if endpoint is None:
            return ""
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        return f"{host}:{endpoint.port}"

    # --- making and removing ----------------------------------------------------------------------

    async def create(self, principal: Principal, place: SegmentPlace, *, timeout_s: float) -> None:
        """Make a segment; returns once this node knows it, leader and all.

        Raises AuthorizationFailed, TopicAlreadyExists, InvalidTopic, InvalidPartitions, and what
        the controller's absence raises.
        """
        plain = f"{place.topic.replace('_', '/', 1)}/{place.partition}"
        name = "" if place.name == plain else place.name
        request = CreateSegmentRequest(place.topic, place.partition, name, self._env.uuid())
        deadline = self._env.now() + timeout_s
        while True:
            left_s = deadline - self._env.now()
            try:
                await self._topics.administer(principal, request, AdminDone, timeout_s=left_s)
                return
            except UnknownOutcome:
                # The token tells whose it is, should it be there already.
                if self._env.now() >= deadline:
                    raise
            await trio.sleep(_CREATE_AGAIN_S)

    async def delete(self, principal: Principal, place: SegmentPlace, *, timeout_s: float) -> None:
        """Remove a segment with its bytes. Raises AuthorizationFailed, UnknownTopicOrPartition,
        PolicyViolation (the topic holds no segments)."""
        request = DeleteSegmentRequest(place.topic, place.partition)
        await self._topics.administer(principal, request, AdminDone, timeout_s=timeout_s)

    # --- appending --------------------------------------------------------------------------------

    def append(
        self, partition: Partition, run: Run, *, timeout_s: float, done: Done, client: str = ""
    ) -> None:
        """Append a run behind its writer's level; ``done`` and ``client`` as for
        ``Partition.produce``.

        Raises with nothing appended: NotLeader, NotEnoughReplicas, StorageFull; SegmentSealed;
        OutOfOrderSequence when the writer's level is not where the run begins.
        """
        producers = partition.log.producers
        key = writer_key(run.namespace, run.writer)
        level = level_of(run.namespace, producers.writer(key))
        require_next(producers.marks, level, run.start)
        batch = run_batch(run, producers.marks, self._env.stamp_ms())
        self._produce(partition, batch, timeout_s, done, client)

    def _produce(
        self,
        partition: Partition,
        batch: bytearray,
        timeout_s: float,
        done: Done,
        client: str = "",
    ) -> None:
        headers = [read_header(batch)]
        partition.produce(
            batch, headers, acks=Acks.ALL, timeout_s=timeout_s, done=done, client=client
        )

    async def level(self, partition: Partition, key: StateKey, *, timeout_s: float) -> int:
        """What is stored of a writer, once all of it is committed (``segment_state.level_of``).

        A new leader knows it only when all that earlier leaders may have committed is committed
        here too. Raises NotLeader, NotEnoughReplicas when that does not come to pass in time.
        """
        deadline = self._env.now() + timeout_s
        while True:
            partition.check_serving()
            writer = partition.log.producers.writer(key)
            leader = partition.replica.leader
            assert leader is not None
            needed = max(leader.start_offset, 0 if writer is None else writer.last_offset + 1)
            if partition.high_watermark >= needed:
                return level_of(key[0], writer)
            await self._committed(partition, needed, deadline)

    async def _confirmed(self, partition: Partition, deadline: float) -> None:
        """Return once the readable end covers all that a client was ever told: a new leader holds
        that, and knows only later how much of it is committed. Raises as :meth:`level`."""
        partition.check_serving()
        leader = partition.replica.leader
        assert leader is not None
        await self._committed(partition, leader.start_offset, deadline)

    async def _committed(self, partition: Partition, end: int, deadline: float) -> None:
        """Return once everything below offset ``end`` is committed. Raises as :meth:`level`."""
        partition.check_serving()
        while partition.high_watermark < end:
            if not await self.wait_readable(partition, end - 1, deadline - self._env.now()):
                raise NotEnoughReplicas(
                    f"{partition}: offset {end - 1} is not committed, "
                    f"in-sync replicas {list(partition.isr)}"
                )
            partition.check_serving()

    async def wait_readable(self, partition: Partition, offset: int, wait_s: float) -> bool:
        """Wait until ``offset`` is committed or the role changes; False when neither happened."""
        happened = trio.Event()
        token = partition.when_readable(offset, happened.set)
        try:
            with trio.move_on_after(max(0.0, wait_s)):
                await happened.wait()
        finally:
            partition.cancel(token)
        return happened.is_set()

    # --- ending -----------------------------------------------------------------------------------

    async def seal(self, partition: Partition, *, timeout_s: float) -> None:
        """End a segment; returns once the seal is committed, also when it was sealed before.

        Raises NotLeader, NotEnoughReplicas, and errors of unknown outcome.
        """
        marks = partition.log.producers.marks
        if not marks.is_sealed:
            await self._write(partition, seal_batch(marks, self._env.stamp_ms()), timeout_s)
            return
        await self._committed(partition, marks.sealed_at + 1, self._env.now() + timeout_s)

    async def truncate(self, partition: Partition, start: int, *, timeout_s: float) -> None:
        """Give up all bytes before ``start``, 0 or more; no effect when they are gone already.
        Returns once that is committed.

        Raises OffsetOutOfRange beyond the readable end, and as :meth:`seal`.
        """
        deadline = self._env.now() + timeout_s
        if start > bounds_of(partition).end:
            await self._confirmed(partition, deadline)
        bounds = bounds_of(partition)
        if not 0 <= start <= bounds.end:
            raise OffsetOutOfRange(f"{partition}: byte {start} is outside 0..{bounds.end}")
        marks = partition.log.producers.marks
        if start <= bounds.start:
            if start:
                # An earlier wish may lie in the log and not be committed; it is not known where.
                await self._committed(partition, marks.last_offset + 1, deadline)
            return
        timeout_s = max(0.0, deadline - self._env.now())
        batch = truncate_batch(start, marks, self._env.stamp_ms())
        await self._write(partition, batch, timeout_s)
        partition.check_serving()
        kept = batch_at(partition.log, start)
        if kept is not None:
            partition.log.advance_start(min(kept.base_offset, partition.high_watermark))

    async def expire_writers(
        self, partition: Partition, cutoff_ms: int, key: bytes, *, timeout_s: float
    ) -> None:
        """Forget writers whose last batch is older, on every replica; ``key`` says which slice of
        them. Raises as :meth:`seal`."""
        marks = partition.log.producers.marks
        batch = expire_batch(cutoff_ms, marks, self._env.stamp_ms(), key)
        await self._write(partition, batch, timeout_s)

    async def append_and_wait(
        self, partition: Partition, run: Run, *, timeout_s: float, client: str = ""
    ) -> None:
        """As :meth:`append`; returns once the run is committed. Raises as :meth:`seal` too."""
        answer: Answer[ProduceResult] = Answer()
        self.append(partition, run, timeout_s=timeout_s, done=answer.deliver, client=client)
        await _outcome(partition, answer, timeout_s)

    async def _write(self, partition: Partition, batch: bytearray, timeout_s: float) -> None:
        answer: Answer[ProduceResult] = Answer()
        self._produce(partition, batch, timeout_s, answer.deliver)
        await _outcome(partition, answer, timeout_s)

    # --- looking ----------------------------------------------------------------------------------

    async def info(self, partition: Partition, *, timeout_s: float) -> SegmentInfo:
        """A segment's bounds and age. Its length never falls, and what was sealed stays so: a new
        leader answers when it knows as much as earlier ones. Raises as :meth:`level`."""
        await self._confirmed(partition, self._env.now() + timeout_s)
        newest = max(segment.max_timestamp for segment in partition.log.segments)
        return SegmentInfo(bounds_of(partition), max(0, newest))

    def name_of(self, partition: Partition) -> str:
        """What clients call a segment."""
        topic = self._topics.find(partition.topic)
        own = "" if topic is None else topic.configs.get(SEGMENT_NAME, "")
        return own or f"{partition.topic.replace('_', '/', 1)}/{partition.partition}"


async def _outcome(partition: Partition, answer: Answer[ProduceResult], timeout_s: float) -> None:
    with trio.move_on_after(timeout_s + 1):
        await answer.wait()
        return
    raise RequestTimedOut(f"{partition}: not committed in {timeout_s:g} s; outcome unknown")
