"""The topics and partitions of the whole cluster, as any node shows them: each leader is asked for
its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import trio

from paceline.errors import (
    LeaderNotAvailable,
    PacelineError,
    RemoteProtocolError,
    UnknownTopicOrPartition,
)
from paceline.types import NodeId, is_internal_topic
from paceline.wire.frame import Frame
from paceline.wire.native.data import PartitionDescription, TopicDescription
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.cluster_queries import PartitionsAsked, PartitionsDescribed
from paceline.wire.peer.names import PartitionName
from paceline_node.controller.image import Image, TopicImage
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.loop_turns import Turns
from paceline_node.peers.server import PeerServer, Session
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.admin.partition_descriptions import DescriptionService, undescribed
from paceline_node.services.leader_routing import LeaderRouting
from paceline_node.services.paging import Paged, in_order
from paceline_node.services.topics.topic_service import TopicService
from paceline_node.sliced_work import Work

_ANSWER_S = 3.0
_AT_A_TIME = 64
"""Partitions that a node is asked for at once: it packs them in one go."""
_TOPIC_UNITS = 4
"""What it costs to ask the policy about a topic."""


_TROUBLES: Mapping[str, Callable[[PartitionRegistration], bool]] = {
    "leaderless": lambda each: each.leader < 0,
    "under-replicated": lambda each: len(each.isr) < len(each.replicas),
    "under-min-isr": lambda each: len(each.isr) < each.min_isr,
}
TROUBLES = tuple(_TROUBLES)
"""What may be wrong with a partition as it is registered."""


class Wanted(NamedTuple):
    """Which partitions: of a ``topic``, or of all, with the ``internal`` ones or without; with a
    replica on ``node``; with one of :data:`TROUBLES`. None: whatever it is."""

    topic: str | None = None
    internal: bool = True
    node: NodeId | None = None
    trouble: str | None = None

    def fits(self, partition: PartitionRegistration) -> bool:
        """Whether a partition of such a topic is meant."""
        return (self.node is None or self.node in partition.replicas) and (
            self.trouble is None or _TROUBLES[self.trouble](partition)
        )


class Registered(NamedTuple):
    """A partition as metadata have it."""

    topic: str
    number: int
    registration: PartitionRegistration


class NamedPartition(NamedTuple):
    """A partition with its topic's name."""

    topic: str
    description: PartitionDescription


class TopicViews:
    """Asks the nodes that lead, and answers them."""

    def __init__(
        self,
        topics: TopicService,
        descriptions: DescriptionService,
        routing: LeaderRouting,
        turns: Turns,
    ) -> None:
        self._topics = topics
        self._descriptions = descriptions
        self._routing = routing
        self._turns = turns

    def register(self, server: PeerServer) -> None:
        """Answer other nodes."""
        server.register(PeerApi.DESCRIBE_PARTITIONS, self._serve)

    async def listed(
        self, principal: Principal, *, internal: bool, after: str | None, limit: int
    ) -> Paged[TopicImage]:
        """A page of the topics that ``principal`` may see, by name."""
        image = self._topics.image

        def found() -> Work[Paged[TopicImage]]:
            some: list[TopicImage] = []
            for name in (yield from in_order(image.topic_ids, after)):
                yield _TOPIC_UNITS
                topic = self._seen(principal, image, name, internal=internal)
                if topic is not None and len(some) == limit:
                    return Paged(some, has_more=True)
                if topic is not None:
                    some.append(topic)
            return Paged(some, has_more=False)

        return await self._turns.run(found())

    async def describe(
        self, principal: Principal, name: str, *, after: int | None, limit: int
    ) -> tuple[TopicDescription, bool]:
        """A topic with a page of its partitions by number, and whether there are more; settings are
        those that hold for it at this node. Raises AuthorizationFailed, UnknownTopicOrPartition."""
        topic = self._found(principal, name)
        page = await self._turns.run(_of_topic(topic, Wanted(), after, limit))
        described = await self._described(page.items)
        return self._topic(principal, topic, described), page.has_more

    async def partition(self, principal: Principal, name: str, number: int) -> NamedPartition:
        """One partition. Raises as :meth:`describe`."""
        self._found(principal, name)
        found = Registered(name, number, self._topics.partition(name, number))
        [described] = await self._described([found])
        return NamedPartition(name, described)

    async def partitions(
        self, principal: Principal, wanted: Wanted, *, after: PartitionName | None, limit: int
    ) -> Paged[NamedPartition]:
        """A page of the partitions of topics that ``principal`` may see, by topic and number.
        Raises AuthorizationFailed and UnknownTopicOrPartition about a topic that is named."""
        if wanted.topic is not None:
            self._found(principal, wanted.topic)
        page = await self._turns.run(self._matching(principal, wanted, after, limit))
        described = await self._described(page.items)
        named = [
            NamedPartition(at.topic, found) for at, found in zip(page.items, described, strict=True)
        ]
        return Paged(named, page.has_more)

    def sees_all(self, principal: Principal) -> bool:
        """Whether lists leave nothing out for ``principal``."""
        return self._topics.sees_all(principal)

    # --- which ------------------------------------------------------------------------------------

    def _found(self, principal: Principal, name: str) -> TopicImage:
        topic = self._topics.look_up(principal, Operation.DESCRIBE, name)
        if topic is None:
            raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
        return topic

    def _seen(
        self, principal: Principal, image: Image, name: str, *, internal: bool
    ) -> TopicImage | None:
        topic = image.find_topic(name)
        if topic is None or (is_internal_topic(name) and not internal):
            return None
        return topic if self._topics.may_see(principal, topic) else None

    def _matching(
        self, principal: Principal, wanted: Wanted, after: PartitionName | None, limit: int
    ) -> Work[Paged[Registered]]:
        image = self._topics.image
        named = image.topic_ids if wanted.topic is None else (wanted.topic,)
        first = "" if after is None else after.topic
        found: list[Registered] = []
        for name in (yield from in_order((each for each in named if each >= first), None)):
            yield _TOPIC_UNITS
            topic = self._seen(principal, image, name, internal=wanted.internal)
            if topic is not None:
                begun = after.partition if after is not None and after.topic == name else None
                page = yield from _of_topic(topic, wanted, begun, limit - len(found))
                found += page.items
                if page.has_more:
                    return Paged(found, has_more=True)
        return Paged(found, has_more=False)

    # --- asking -----------------------------------------------------------------------------------

    def _topic(
        self, principal: Principal, topic: TopicImage, partitions: Sequence[PartitionDescription]
    ) -> TopicDescription:
        configs = self._topics.configs(principal, topic)
        return TopicDescription(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=tuple(partitions),
            kind=topic.kind,
            configs=None if configs is None else dict(configs),
            settings=() if configs is None else self._descriptions.settings(topic),
        )

    async def _described(self, some: Sequence[Registered]) -> list[PartitionDescription]:
        """Each as its leader knows it, or why that is not known."""
        by_leader: dict[NodeId, list[Registered]] = {}
        for each in some:
            by_leader.setdefault(each.registration.leader, []).append(each)
        told: dict[tuple[str, int], PartitionDescription] = {}

        async def ask(leader: NodeId, led: Sequence[Registered]) -> None:
            for start in range(0, len(led), _AT_A_TIME):
                part = led[start : start + _AT_A_TIME]
                try:
                    answers = await self._of(leader, part)
                except PacelineError as error:
                    for each in led[start:]:
                        found = undescribed(each.number, each.registration, error)
                        told[each.topic, each.number] = found
                    return
                for each, found in zip(part, answers, strict=True):
                    told[each.topic, each.number] = found

        async with trio.open_nursery() as nursery:
            for leader, led in sorted(by_leader.items()):
                nursery.start_soon(ask, leader, led)
        return [told[each.topic, each.number] for each in some]

    async def _of(
        self, leader: NodeId, some: Sequence[Registered]
    ) -> Sequence[PartitionDescription]:
        names = tuple([PartitionName(each.topic, each.number) for each in some])
        if leader < 0:
            raise LeaderNotAvailable("it has no leader")
        if leader == self._routing.node_id:
            return await self._turns.run(self._descriptions.here(names))
        frame = await self._routing.ask(
            leader,
            PeerApi.DESCRIBE_PARTITIONS,
            PartitionsAsked(names),
            budget_s=_ANSWER_S,
            changes_nothing=True,
        )
        answers = PartitionsDescribed.unpack(frame.body).partitions
        if len(answers) != len(names):
            raise RemoteProtocolError(f"node {leader} answered {len(answers)} of {len(names)}")
        return answers

    async def _serve(self, _session: Session, frame: Frame) -> tuple[PartitionsDescribed, bytes]:
        names = PartitionsAsked.unpack(frame.body).partitions[:_AT_A_TIME]
        described = await self._turns.run(self._descriptions.here(names))
        return PartitionsDescribed(tuple(described)), b""


def _of_topic(
    topic: TopicImage, wanted: Wanted, after: int | None, limit: int
) -> Work[Paged[Registered]]:
    found: list[Registered] = []
    for number in (yield from in_order(topic.partitions, after)):
        yield 1
        registration = topic.partitions[number]
        if not wanted.fits(registration):
            continue
        if len(found) == limit:
            return Paged(found, has_more=True)
        found.append(Registered(topic.name, number, registration))
    return Paged(found, has_more=False)
