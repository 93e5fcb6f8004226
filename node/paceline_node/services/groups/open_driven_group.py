"""A group whose coordinator drives the consumers: its commands, where this node coordinates it
(groups/DESIGN 6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paceline.wire.coordinator.messages import PositionsResponse, RegisterRequest
from paceline_node.groups.committed_offsets import Commit
from paceline_node.groups.driven_groups import Registered
from paceline_node.groups.driven_state import Channel
from paceline_node.groups.engine import GroupEngine
from paceline_node.services.groups.open_group import GroupMember, OpenGroup


class OpenDrivenGroup(OpenGroup):
    """What its consumers' connections say."""

    __slots__ = ()

    async def register(
        self,
        request: RegisterRequest,
        version: int,
        client_id: str,
        client_host: str,
        channel: Channel,
    ) -> Registered:
        """Take a consumer in; ``channel`` is asked from now on. Raises as
        :meth:`DrivenGroups.register` and :meth:`OpenGroup.perform`."""
        return await self.perform(
            lambda engine: engine.coordinator.register(
                request, version, client_id, channel, client_host=client_host
            )
        )

    def answered(
        self, consumer_id: str, channel: Channel, error: int, body: PositionsResponse | None
    ) -> None:
        """A consumer has answered what it was asked last."""
        self._tell(
            lambda engine: engine.coordinator.answered(self.key, consumer_id, channel, error, body)
        )

    def closed(self, consumer_id: str, channel: Channel) -> None:
        """A consumer's connection has ended."""
        self._tell(lambda engine: engine.coordinator.closed(self.key, consumer_id, channel))

    def _tell(self, news: Callable[[GroupEngine], None]) -> None:
        self._machines.tell(self._coordination.partition(self.key), news)

    async def store(self, member: GroupMember, commits: Sequence[Commit]) -> None:
        """Store offsets for a consumer, or for nobody. Raises as :meth:`DrivenGroups.check_commit`,
        GroupFull, and as :meth:`OpenGroup.perform`."""
        await self.commit(
            commits,
            lambda engine: engine.coordinator.check_commit(
                self.key, member.generation, member.member_id
            ),
        )
