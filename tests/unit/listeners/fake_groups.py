"""Groups that do as they are told, as listeners call them (see ``data_plane.py``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

import trio

from paceline.errors import ErrorCode, PacelineError
from paceline.types import NodeId
from paceline_node.groups.committed_offsets import Commit
from paceline_node.groups.inspection import Description, Listing
from paceline_node.groups.keys import Family, GroupKey, TopicAndNumber
from paceline_node.groups.records import Group, Phase
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.groups.offsets_to_commit import OffsetsToCommit
from paceline_node.services.groups.open_group import GroupMember, Position
from paceline_node.services.topics.cluster_view import AddressView

METADATA_MAX = 10


@dataclass
class Node:
    """A broker as the metadata have it, with these listeners."""

    node_id: NodeId
    addresses: Mapping[str, AddressView]

    def endpoint(self, name: str, /) -> AddressView | None:
        return self.addresses.get(name)


@dataclass
class FakeGroup:
    """One that is coordinated here. ``error``: what every command raises; ``leaving``: the errors
    of members who leave; ``kept``: offsets that members read, so that they cannot be deleted."""

    name: str
    error: PacelineError | None = None
    positions_of: dict[TopicAndNumber, Position] = field(default_factory=dict)
    committed: list[Commit] = field(default_factory=list)
    leaving: dict[str, ErrorCode] = field(default_factory=dict)
    kept: set[TopicAndNumber] = field(default_factory=set)
    node: Node | None = None
    is_deleted: bool = False

    async def _begin(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error

    async def store(self, member: GroupMember, commits: Sequence[Commit]) -> None:
        await self._begin()
        self.committed += commits

    async def reset(self, commits: Iterable[Commit]) -> None:
        await self._begin()
        self.committed += commits

    async def stored(self) -> Sequence[TopicAndNumber]:
        await self._begin()
        return list(self.positions_of)

    async def positions(
        self, partitions: Sequence[TopicAndNumber], *, stable: bool = False
    ) -> Sequence[Position]:
        await self._begin()
        return [self.positions_of.get(each, Position()) for each in partitions]

    async def leave(self, leavers: Sequence[tuple[str, str | None]]) -> Sequence[ErrorCode]:
        await self._begin()
        return [self.leaving.get(member, ErrorCode.NONE) for member, _ in leavers]

    async def heartbeat(self, member: GroupMember) -> None:
        await self._begin()

    async def describe(self) -> Description:
        await self._begin()
        return Description(GroupKey(Family.KAFKA, self.name), "Empty", Group(0, Phase.EMPTY), ())

    async def delete(self) -> None:
        await self._begin()
        self.is_deleted = True

    def coordinator(self, *listeners: str) -> Node:
        if self.error is not None:
            raise self.error
        assert self.node is not None
        return self.node


class FakeGroups:
    """``groups`` are there; nobody may read ``secret`` topics, and ``partitions`` exist."""

    def __init__(self, *groups: FakeGroup, partitions: Iterable[TopicAndNumber] = ()) -> None:
        self._groups = {each.name: each for each in groups}
        self._partitions = set(partitions)

    def _open(self, group: str) -> FakeGroup:
        return self._groups[group]

    def open(
        self, principal: Principal, operation: Operation, family: str, group: str, subject: str
    ) -> FakeGroup:
        return self._open(group)

    def open_kafka(self, principal: Principal, operation: Operation, group: str) -> FakeGroup:
        return self._open(group)

    def open_driven(self, principal: Principal, operation: Operation, group: str) -> NoReturn:
        raise AssertionError("no group here is driven")

    def is_driven(self, group: str) -> bool:
        return False

    def has_partition(self, topic: str, partition: int) -> bool:
        return (topic, partition) in self._partitions

    def asked_offsets(self, principal: Principal) -> OffsetsToCommit:
        return OffsetsToCommit(self.may_see_offsets(principal), self.has_partition, METADATA_MAX)

    def may_see_offsets(self, principal: Principal) -> Callable[[str], bool]:
        return lambda topic: topic != "secret"

    def may_see(self, principal: Principal, group: str) -> bool:
        return group != "secret"

    async def list(self, families: Iterable[str], states: Iterable[str]) -> list[Listing]:
        await trio.lowlevel.checkpoint()
        return [
            Listing(GroupKey(Family.KAFKA, name), "Empty", "consumer", 0, 0)
            for name in self._groups
        ]

    async def delete_offsets(
        self,
        principal: Principal,
        family: str,
        group: str,
        subject: str,
        partitions: Sequence[TopicAndNumber],
    ) -> Mapping[TopicAndNumber, ErrorCode]:
        await self._open(group)._begin()
        may_see = self.may_see_offsets(principal)
        denied = {
            each: ErrorCode.AUTHORIZATION_FAILED for each in partitions if not may_see(each[0])
        }
        read = self._open(group).kept.intersection(partitions)
        return denied | dict.fromkeys(read, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
