"""The groups of the whole cluster, as any node shows them: coordinators are asked for theirs."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import trio

from paceline.documents.groups import is_dealt_anew
from paceline.errors import CoordinatorNotAvailable, GroupNotFound, PacelineError
from paceline.types import NodeId
from paceline.wire.frame import Frame
from paceline.wire.native.groups import GroupDescription, GroupListing
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.bounds import Bounds
from paceline.wire.peer.cluster_queries import (
    GroupAsked,
    GroupFound,
    GroupProgress,
    GroupsAsked,
    GroupsFound,
)
from paceline.wire.peer.names import GroupName, PartitionName
from paceline_node.groups.inspection import DEAD
from paceline_node.groups.keys import GROUPS_TOPIC, GroupKey, TopicAndNumber
from paceline_node.loop_turns import Turns
from paceline_node.peers.server import PeerServer, Session
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.groups.described_groups import described, listed
from paceline_node.services.groups.group_pages import GroupPages
from paceline_node.services.groups.group_service import GroupService, family_named
from paceline_node.services.groups.open_group import OpenGroup, cut
from paceline_node.services.groups.partition_bounds import BoundsService
from paceline_node.services.leader_routing import LeaderRouting
from paceline_node.services.paging import Paged, cut_off, in_order, visible
from paceline_node.services.topics.topic_service import TopicService
from paceline_node.sliced_work import Work

_ANSWER_S = 3.0
_AT_A_TIME = 64
"""Groups, or partitions of one, that a node is asked for at once: it packs them in one go."""
_NEXT = ""
"""Stands for the member that is to come."""


class GroupView(NamedTuple):
    """A group with a page of its partitions, and where those begin and end as far as their leaders
    say it."""

    description: GroupDescription
    coordinator: NodeId
    page: Paged[GroupProgress]
    bounds: Mapping[TopicAndNumber, tuple[NodeId, Bounds]]


class GroupViews:
    """Asks the nodes that coordinate, and answers them."""

    def __init__(
        self,
        groups: GroupService,
        pages: GroupPages,
        topics: TopicService,
        bounds: BoundsService,
        routing: LeaderRouting,
        turns: Turns,
    ) -> None:
        self._groups = groups
        self._pages = pages
        self._topics = topics
        self._bounds = bounds
        self._routing = routing
        self._turns = turns

    def register(self, server: PeerServer) -> None:
        """Answer other nodes."""
        server.register(PeerApi.LIST_GROUPS, self._serve_list)
        server.register(PeerApi.DESCRIBE_GROUP, self._serve_description)

    # --- all of them ------------------------------------------------------------------------------

    async def listed(
        self,
        principal: Principal,
        *,
        families: Sequence[str],
        states: Sequence[str],
        after: GroupName | None,
        limit: int,
    ) -> tuple[Paged[GroupListing], list[str]]:
        """A page of the groups that ``principal`` may see, by family, name and subject, and why
        some are not told of. Raises InvalidRequest where there is no such family."""
        for each in families:
            family_named(each)
        silent: dict[NodeId, str] = {}

        async def ask(place: GroupName | None) -> Paged[GroupListing]:
            asked = GroupsAsked(tuple(families), tuple(states), place, _AT_A_TIME)
            return await self._merged(asked, silent)

        page = await visible(
            ask, _name_of, lambda each: self._groups.may_see(principal, each.group), after, limit
        )
        reasons = [
            f"node {node} does not tell which groups it coordinates ({why})"
            for node, why in sorted(silent.items())
        ]
        topic = self._topics.find(GROUPS_TOPIC)
        partitions = () if topic is None else topic.partitions.values()
        if any(each.leader < 0 for each in partitions):
            reasons.append("some groups have no coordinator")
        return page, reasons

    def sees_all(self, principal: Principal) -> bool:
        """Whether :meth:`listed` leaves nothing out for ``principal``."""
        return self._groups.sees_all(principal)

    async def _merged(self, asked: GroupsAsked, silent: dict[NodeId, str]) -> Paged[GroupListing]:
        """The first of what all coordinators have; those that fail are ``silent`` from then on."""
        found: list[GroupsFound] = []

        async def of(node: NodeId) -> None:
            try:
                found.append(await self._listed_by(node, asked))
            except PacelineError as error:
                silent[node] = str(error)

        async with trio.open_nursery() as nursery:
            for node in self._groups.coordinators():
                if node not in silent:
                    nursery.start_soon(of, node)
        merged = heapq.merge(*(each.groups for each in found), key=_place_of)
        has_more = any(each.has_more for each in found)
        return cut_off(list(islice(merged, asked.limit + 1)), asked.limit, has_more=has_more)

    async def _listed_by(self, node: NodeId, asked: GroupsAsked) -> GroupsFound:
        if node == self._routing.node_id:
            return await self._list(asked)
        frame = await self._routing.ask(
            node, PeerApi.LIST_GROUPS, asked, budget_s=_ANSWER_S, changes_nothing=True
        )
        return GroupsFound.unpack(frame.body)

    async def _serve_list(self, _session: Session, frame: Frame) -> tuple[GroupsFound, bytes]:
        return await self._list(GroupsAsked.unpack(frame.body)), b""

    async def _list(self, asked: GroupsAsked) -> GroupsFound:
        after = None if asked.after is None else _place(asked.after)
        limit = min(asked.limit, _AT_A_TIME)
        page = await self._pages.page(asked.families, asked.states, after, limit)
        return GroupsFound(tuple([listed(each) for each in page.items]), page.has_more)

    # --- one --------------------------------------------------------------------------------------

    async def describe(
        self, principal: Principal, name: GroupName, *, after: PartitionName | None, limit: int
    ) -> GroupView:
        """A group, with a page of the partitions that ``principal`` may know of. Raises
        AuthorizationFailed, InvalidRequest where there is no such family, GroupNotFound, and what
        keeps the coordinator from answering."""
        opened = self._groups.open(
            principal, Operation.DESCRIBE, name.family, name.group, name.subject
        )
        coordinator = self._groups.leader(opened.key)
        if coordinator < 0:
            raise CoordinatorNotAvailable(f"group {name.group} has no coordinator now")
        found: list[GroupFound] = []

        async def ask(place: PartitionName | None) -> Paged[GroupProgress]:
            told = await self._found_by(coordinator, opened, GroupAsked(name, place, _AT_A_TIME))
            found.append(told)
            return Paged(told.partitions, told.has_more)

        may_see = self._groups.may_see_offsets(principal)
        page = await visible(
            ask,
            lambda each: PartitionName(each.topic, each.partition),
            lambda each: may_see(each.topic),
            after,
            limit,
        )
        bounds: dict[TopicAndNumber, tuple[NodeId, Bounds]] = {}
        for some in cut(page.items, _AT_A_TIME):
            asked = [(each.topic, each.partition) for each in some]
            bounds |= await self._bounds.find(asked, budget_s=_ANSWER_S)
        return GroupView(found[0].description, coordinator, page, bounds)

    async def _found_by(self, node: NodeId, opened: OpenGroup, asked: GroupAsked) -> GroupFound:
        if node == self._routing.node_id:
            return await self._describe(opened, asked)
        frame = await self._routing.ask(
            node, PeerApi.DESCRIBE_GROUP, asked, budget_s=_ANSWER_S, changes_nothing=True
        )
        return GroupFound.unpack(frame.body)

    async def _serve_description(self, _session: Session, frame: Frame) -> tuple[GroupFound, bytes]:
        asked = GroupAsked.unpack(frame.body)
        return await self._describe(self._groups.inside(GroupKey.named(asked.group)), asked), b""

    async def _describe(self, opened: OpenGroup, asked: GroupAsked) -> GroupFound:
        found = await opened.describe()
        if found.state == DEAD:
            name = asked.group
            raise GroupNotFound(f"group {name.group} of family {name.family} does not exist")
        topics = self._groups.listed_topics(opened.key)
        description = await self._turns.run(described(found, topics, in_full=False))
        stored = await opened.stored()
        known = await self._turns.run(self._known(description, stored))
        after = None if asked.after is None else (asked.after.topic, asked.after.partition)
        places = await self._turns.run(in_order(known, after))
        limit = min(asked.limit, _AT_A_TIME)
        some = list(islice(places, limit + 1))
        positions = await opened.positions(some[:limit])
        told = tuple(
            GroupProgress(*at, position.offset, known[at] or None)
            for at, position in zip(some, positions, strict=False)
            # What was stored of a topic that is gone is no position.
            if position.offset >= 0 or known[at] is not None
        )
        return GroupFound(description, told, len(some) > limit)

    def _known(
        self, found: GroupDescription, stored: Sequence[TopicAndNumber]
    ) -> Work[dict[TopicAndNumber, str | None]]:
        """The partitions that the group has to do with, and who reads them: a member, or the next
        one; None where there are offsets only."""
        known: dict[TopicAndNumber, str | None] = {}
        for some in cut(stored, _AT_A_TIME):
            yield 1
            known.update(dict.fromkeys(some))
        if is_dealt_anew(found):
            for topic in dict.fromkeys(topic for topic, _ in stored):
                numbers = range(self._groups.partition_count(topic))
                yield 1 + len(numbers) // _AT_A_TIME
                known.update(dict.fromkeys(((topic, number) for number in numbers), _NEXT))
        for member in found.members:
            for part in member.assigned:
                yield 1 + len(part.partitions) // _AT_A_TIME
                known.update(((part.topic, each), member.member_id) for each in part.partitions)
        return known


def _place(name: GroupName) -> tuple[str, str, str]:
    return name.family, name.group, name.subject


def _name_of(found: GroupListing) -> GroupName:
    return GroupName(found.family, found.group, found.subject)


def _place_of(found: GroupListing) -> tuple[str, str, str]:
    return _place(_name_of(found))
