"""Segments: byte sequences with exactly-once writers, on partitions of kind ``segment``.

What the segment protocol's dialects need of a broker, in no dialect's words (DESIGN 7): here which
there are, who leads them, making and removing them; what a leader does in ``led_segment.py``.
"""

from __future__ import annotations

from functools import partial

import trio

from paceline.errors import (
    NotLeader,
    UnknownOutcome,
    UnknownTopicOrPartition,
)
from paceline.types import NO_NODE, NodeId
from paceline.wire.native.admin import Done as AdminDone
from paceline.wire.peer.control import CreateSegmentRequest, DeleteSegmentRequest
from paceline.wire.segment.names import SegmentPlace
from paceline_node.env import Env
from paceline_node.replication.hosted_partitions import HostedPartitions
from paceline_node.replication.partition import Partition
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.authorization.authorizer import Authorizer
from paceline_node.services.segments.led_segment import LedSegment
from paceline_node.services.segments.segment_reads import SegmentReads
from paceline_node.services.segments.segment_writers import SegmentWriters
from paceline_node.services.topics.topic_service import TopicService

KIND = "segment"
_APPEARS_S = 0.5
"""How long a segment that this node does not know may be on its way here from the node that its
client made it at."""
_KNOWN_S = 5.0
"""How long such a segment may be on its way to a node that is not fenced."""
_TAKES_ROLE_S = 2.0
_CREATE_AGAIN_S = 0.1
_LOOK_AGAIN_S = 0.01


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
        access: Authorizer,
        table: HostedPartitions,
        topics: TopicService,
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._access = access
        self._table = table
        self._topics = topics
        self._reads = SegmentReads()
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
    ) -> LedSegment:
        """A segment that this node leads, for ``principal`` to do this to it.

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
                ask = partial(self._access.topic, principal, operation, place.topic)
                return LedSegment(self._env, partition, self._reads, self.writers, ask)
            if self.leader(place) != self._node_id or self._env.now() >= deadline:
                raise NotLeader(f"{place.name}: the leader is node {self.leader(place)}")
            await trio.sleep(_LOOK_AGAIN_S)

    def led(self, partition: Partition) -> LedSegment:
        """The segment in a partition that this node leads, for what this node does by itself."""
        return LedSegment(self._env, partition, self._reads, self.writers)

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
        return NO_NODE if registration is None else self._topics.leader(registration)

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
