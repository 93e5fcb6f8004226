"""Where partitions begin and end, wherever their leaders are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import trio

from paceline.errors import PacelineError
from paceline.types import NodeId, OffsetSpec
from paceline.wire.frame import Frame
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.bounds import Bounds, BoundsAsked, BoundsFound
from paceline.wire.peer.names import PartitionName
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.groups.keys import TopicAndNumber
from paceline_node.peers.server import Session
from paceline_node.replication.hosted_partitions import HostedPartitions
from paceline_node.replication.offset_lookups import find_offset
from paceline_node.services.leader_routing import LeaderRouting

_AT_ONCE = 10_000
_UNKNOWN = -1


class BoundsService:
    """Asks this node's replicas, and every other leader once."""

    def __init__(
        self, store: MetadataStore, table: HostedPartitions, routing: LeaderRouting
    ) -> None:
        self._store = store
        self._table = table
        self._routing = routing

    async def find(
        self, partitions: Iterable[TopicAndNumber], *, budget_s: float
    ) -> Mapping[TopicAndNumber, tuple[NodeId, Bounds]]:
        """The leader and its bounds of each partition, as far as leaders answer in time."""
        by_leader: dict[NodeId, list[PartitionName]] = {}
        for topic, number in partitions:
            found = self._store.image.find_topic(topic)
            registration = None if found is None else found.partitions.get(number)
            if registration is not None and registration.leader >= 0:
                by_leader.setdefault(registration.leader, []).append(PartitionName(topic, number))
        answers: dict[TopicAndNumber, tuple[NodeId, Bounds]] = {}

        async def ask(leader: NodeId, names: list[PartitionName]) -> None:
            for start in range(0, len(names), _AT_ONCE):
                some = tuple(names[start : start + _AT_ONCE])
                for each in await self._of(leader, some, budget_s):
                    if each.end != _UNKNOWN:
                        answers[each.topic, each.partition] = leader, each

        async with trio.open_nursery() as nursery:
            for leader, names in sorted(by_leader.items()):
                nursery.start_soon(ask, leader, names)
        return answers

    async def _of(
        self, leader: NodeId, names: tuple[PartitionName, ...], budget_s: float
    ) -> tuple[Bounds, ...]:
        if leader == self._routing.node_id:
            return self._here(names)
        try:
            frame = await self._routing.ask(
                leader, PeerApi.PARTITION_BOUNDS, BoundsAsked(names), budget_s=budget_s
            )
        except PacelineError:
            return ()  # who needs the bounds does without
        return BoundsFound.unpack(frame.body).partitions

    async def serve(self, _session: Session, frame: Frame) -> tuple[BoundsFound, bytes]:
        """Answer another node (PeerApi.PARTITION_BOUNDS)."""
        return BoundsFound(self._here(BoundsAsked.unpack(frame.body).partitions)), b""

    def _here(self, names: Iterable[PartitionName]) -> tuple[Bounds, ...]:
        return tuple([self._bounds(each.topic, each.partition) for each in names])

    def _bounds(self, topic: str, number: int) -> Bounds:
        partition = self._table.get(topic, number)
        try:
            if partition is not None:
                start, _, epoch = find_offset(partition, OffsetSpec.EARLIEST)
                end = find_offset(partition, OffsetSpec.LATEST).offset
                return Bounds(topic, number, start, end, epoch)
        except PacelineError:
            pass  # it does not lead, or does not know its end yet
        return Bounds(topic, number, _UNKNOWN, _UNKNOWN, -1)
