"""A group of V1, whose members the broker assigns partitions to: its commands, where this node
coordinates it (groups/DESIGN 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.v1_groups import MemberRef, Membership, V1Groups
from paceline_node.services.groups.open_group import OpenGroup

R = TypeVar("R")


class V1Member(NamedTuple):
    """Who says to be a member of a group, and in which generation."""

    topic: str
    consumer_id: str
    generation: int


class OpenV1Group(OpenGroup):
    """``commit_s`` is how long what an answer says has until it is committed. All raise as
    :meth:`OpenGroup.perform`; a member's commands GroupNotFound, IllegalGeneration and
    UnknownMember, too."""

    __slots__ = ()

    async def join(
        self,
        topic: str,
        consumer_id: str,
        assignor: str | None,
        partition_count: int,
        *,
        commit_s: float,
    ) -> Membership:
        """Become a member, or stay one. Raises GroupFull, InvalidGroup."""
        name = self.key.group
        return await self.perform(
            lambda engine: engine.v1.join(name, topic, consumer_id, assignor, partition_count),
            commit_s=commit_s,
        )

    async def sync(self, member: V1Member, *, commit_s: float) -> Membership:
        """A member's assignment."""
        return await self._for(member, V1Groups.sync, commit_s)

    async def heartbeat(self, member: V1Member, *, commit_s: float) -> None:
        """Keep a member's session."""
        await self._for(member, V1Groups.heartbeat, commit_s)

    async def leave(self, member: V1Member, *, commit_s: float) -> None:
        """Be no member any more."""
        await self._for(member, V1Groups.leave, commit_s)

    async def store(
        self, member: V1Member, partition: int, offset: int, *, commit_s: float
    ) -> None:
        """Store how far a member has read. Raises PartitionNotOwned, UnknownTopicOrPartition,
        GroupFull."""

        def commit(groups: V1Groups, who: MemberRef) -> None:
            groups.commit(who, partition, offset, self._account)

        await self._for(member, commit, commit_s)

    async def committed(self, topic: str, partition: int, *, commit_s: float) -> int | None:
        """The committed offset; None where there is none, or no group."""
        found = await self.perform(
            lambda engine: engine.offsets.fetch(self.key, topic, partition), commit_s=commit_s
        )
        return None if found is None else found.offset

    async def _for(
        self, member: V1Member, command: Callable[[V1Groups, MemberRef], R], commit_s: float
    ) -> R:
        def run(engine: GroupEngine) -> R:
            count = self._coordination.partition_count(member.topic)
            return command(engine.v1, MemberRef(self.key.group, *member, count))

        return await self.perform(run, commit_s=commit_s)
