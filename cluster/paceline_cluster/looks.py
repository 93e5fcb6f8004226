"""Takes the looks at a cluster of which :mod:`paceline_cluster.activity` tells how busy it is.

A look waits for nobody: what does not answer in time is missing in it. It asks each leader once for
the ends of all its partitions, and the coordinators of groups that somebody reads in.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence

import trio

from paceline.client import Client
from paceline.documents.survey import Survey
from paceline.errors import PacelineError
from paceline.types import NO_NODE, NodeId, OffsetSpec, TopicPartition
from paceline.wire.native.groups import GroupListing
from paceline.wire.native.load import NodeLoad
from paceline_cluster.activity import GroupLook, Look

ANSWER_S = 2.0
GROUPS = 100
"""Of more only the first are asked how far they are behind."""
_AT_ONCE = 8


class Looker:
    """Looks through a client. ``survey`` asks the nodes how they are."""

    def __init__(self, client: Client, survey: Callable[[], Awaitable[Survey]]) -> None:
        self._client = client
        self._survey = survey

    async def look(self) -> Look:
        """What the cluster has counted by now. Raises PacelineError where no node answers."""
        at_s = trio.current_time()
        seen: list[Survey] = []
        loads: dict[NodeId, NodeLoad | str] = {}
        leaders: dict[TopicPartition, NodeId] = {}
        ends: dict[TopicPartition, int] = {}
        groups: list[GroupLook] = []
        left_out: list[int] = []

        async def survey() -> None:
            seen.append(await self._survey())

        async def look_at_nodes() -> None:
            with trio.move_on_after(ANSWER_S), contextlib.suppress(PacelineError):
                loads.update(_told(await self._client.admin.loads()))

        async def look_at_partitions() -> None:
            with trio.move_on_after(ANSWER_S), contextlib.suppress(PacelineError):
                for topic in await self._client.admin.list_topics():
                    for each in topic.partitions:
                        leaders[TopicPartition(topic.name, each.partition)] = each.leader
                await self._find_ends(leaders, ends)

        async def look_at_groups() -> None:
            with trio.move_on_after(ANSWER_S), contextlib.suppress(PacelineError):
                listed = await self._client.admin.groups.list()
                read = [each for each in listed if each.member_count]
                left_out.append(len(read[GROUPS:]))
                await self._find_committed(read[:GROUPS], groups)

        async with trio.open_nursery() as nursery:
            for task in (survey, look_at_nodes, look_at_partitions, look_at_groups):
                nursery.start_soon(task)
        return Look(at_s, seen[0], loads, leaders, ends, groups, sum(left_out))

    async def _find_ends(
        self, leaders: Mapping[TopicPartition, NodeId], ends: dict[TopicPartition, int]
    ) -> None:
        led: dict[NodeId, list[TopicPartition]] = {}
        for at, leader in leaders.items():
            if leader != NO_NODE:
                led.setdefault(leader, []).append(at)

        async def ask(partitions: Sequence[TopicPartition]) -> None:
            wanted = dict.fromkeys(partitions, OffsetSpec.LATEST)
            with contextlib.suppress(PacelineError):
                found = await self._client.admin.find_offsets(wanted)
                ends.update((at, each.offset) for at, each in found.items())

        async with trio.open_nursery() as nursery:
            for partitions in led.values():
                nursery.start_soon(ask, partitions)

    async def _find_committed(
        self, listed: Sequence[GroupListing], groups: list[GroupLook]
    ) -> None:
        places = trio.CapacityLimiter(_AT_ONCE)

        async def ask(each: GroupListing) -> None:
            committed = None
            async with places:
                with contextlib.suppress(PacelineError):
                    found = await self._client.admin.groups.offsets(
                        each.group, family=each.family, subject=each.subject
                    )
                    committed = {at: one.offset for at, one in found.items()}
            groups.append(GroupLook(each, committed))

        async with trio.open_nursery() as nursery:
            for each in listed:
                nursery.start_soon(ask, each)


def _told(loads: Mapping[NodeId, NodeLoad | PacelineError]) -> dict[NodeId, NodeLoad | str]:
    return {node: load if isinstance(load, NodeLoad) else str(load) for node, load in loads.items()}
