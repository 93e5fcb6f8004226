"""A group of Kafka's and the native clients, whose members agree on who reads what: its commands,
where this node coordinates it (groups/DESIGN 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from paceline.errors import ErrorCode
from paceline_node.groups.committed_offsets import Commit
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.kafka_rounds import Joined, JoinRequest, Synced, SyncRequest
from paceline_node.groups.records import Protocol
from paceline_node.services.groups.open_group import GroupMember, OpenGroup


class OpenKafkaGroup(OpenGroup):
    """All raise as :meth:`OpenGroup.perform`, too."""

    __slots__ = ()

    async def join(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocol_type: str,
        protocols: Iterable[tuple[str, bytes]],
        needs_id: bool = True,
        client_host: str = "",
    ) -> Joined:
        """Become a member, or stay one; answered when the rebalance has gathered all. See
        :meth:`KafkaGroups.join`."""
        asked = JoinRequest(
            key=self.key,
            member_id=member_id,
            instance_id=instance_id,
            client_id=client_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=protocol_type,
            protocols=tuple([Protocol(name, metadata) for name, metadata in protocols]),
            needs_id=needs_id,
            client_host=client_host,
        )
        return await self.perform(lambda engine: engine.kafka.join(asked))

    async def sync(
        self,
        member: GroupMember,
        protocol_type: str,
        protocol: str,
        assignments: Sequence[tuple[str, bytes]],
    ) -> Synced:
        """Hand in the assignments, or wait for one's own. See :meth:`KafkaGroups.sync`."""
        asked = SyncRequest(self.key, *member, protocol_type, protocol, tuple(assignments))
        return await self.perform(lambda engine: engine.kafka.sync(asked))

    async def heartbeat(self, member: GroupMember) -> None:
        """Keep the session. See :meth:`KafkaGroups.heartbeat`."""
        await self.perform(lambda engine: engine.kafka.heartbeat(self.key, *member))

    async def leave(self, leavers: Sequence[tuple[str, str | None]]) -> Sequence[ErrorCode]:
        """Be no members any more, by member and instance id. See :meth:`KafkaGroups.leave`."""

        def leave(some: Sequence[tuple[str, str | None]], engine: GroupEngine) -> list[ErrorCode]:
            return list(engine.kafka.leave(self.key, some))

        return await self.in_slices(leavers, leave)

    async def store(self, member: GroupMember, commits: Sequence[Commit]) -> None:
        """Store offsets for a member, or for nobody of a group without members. Raises GroupFull,
        and as :meth:`KafkaGroups.check_commit`."""
        await self.commit(commits, self.check(member, commits))

    def check(
        self, member: GroupMember | None, commits: Sequence[Commit]
    ) -> Callable[[GroupEngine], None]:
        """Raises unless ``member`` may commit; None: one that does not say who it is."""
        if member is None:
            return lambda engine: engine.kafka.check_new(self.key)
        topics = {each.topic for each in commits}
        return lambda engine: engine.kafka.check_commit(self.key, *member, topics)
