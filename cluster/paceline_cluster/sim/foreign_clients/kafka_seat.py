"""A member's place in a Kafka group: its id, its generation, and the requests that keep it."""

from __future__ import annotations

from paceline.errors import ErrorCode
from paceline.wire.consumer_protocol import PROTOCOL_TYPE, Assignment, Subscription
from paceline.wire.kafka import groups as wire
from paceline_cluster.sim.foreign_clients.kafka import KafkaLink, raise_for

_REBALANCE_MS = 3000
_JOIN_S = 8.0
"""Longer than a rebalance may take."""
ANEW = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID))
"""What a member joins again for as another one."""
AGAIN = ANEW | {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.MEMBER_ID_REQUIRED,
}
"""What it joins again for."""


class KafkaSeat:
    """All its requests raise PacelineError."""

    def __init__(
        self,
        group: str,
        topic: str,
        partitions: int,
        *,
        session_ms: int,
        instance: str | None = None,
    ) -> None:
        self.id = ""
        self.generation = -1
        self._group = group
        self._topic = topic
        self._count = partitions
        self._session_ms = session_ms
        self._instance = instance
        self.dealing: dict[str, tuple[int, ...]] = {}
        """What the leader gives to whom; empty where another one leads."""

    async def join(self, link: KafkaLink) -> None:
        """Be in the next generation."""
        protocol = wire.JoinGroupRequestProtocol(
            name="range", metadata=Subscription((self._topic,)).to_bytes()
        )
        request = wire.JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=_REBALANCE_MS,
            member_id=self.id,
            group_instance_id=self._instance,
            protocol_type=PROTOCOL_TYPE,
            protocols=(protocol,),
        )
        told = await link.ask(request, 5, wire.JoinGroupResponse, within_s=_JOIN_S)
        if told.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = told.member_id
        raise_for(told.error_code, "JOIN_GROUP")
        self.id, self.generation = told.member_id, told.generation_id
        self.dealing = self._deal(told) if told.leader == self.id else {}

    async def sync(self, link: KafkaLink) -> list[int]:
        """The partitions to read."""
        request = wire.SyncGroupRequest(
            group_id=self._group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self._instance,
            assignments=tuple(
                wire.SyncGroupRequestAssignment(
                    member_id=member, assignment=Assignment({self._topic: dealt}).to_bytes()
                )
                for member, dealt in self.dealing.items()
            ),
        )
        told = await link.ask(request, 3, wire.SyncGroupResponse, within_s=_JOIN_S)
        raise_for(told.error_code, "SYNC_GROUP")
        found = Assignment.from_bytes(bytes(told.assignment)).partitions
        return sorted(found.get(self._topic, ()))

    async def beat(self, link: KafkaLink) -> None:
        """Say that it lives."""
        request = wire.HeartbeatRequest(
            group_id=self._group,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self._instance,
        )
        told = await link.ask(request, 3, wire.HeartbeatResponse)
        raise_for(told.error_code, "HEARTBEAT")

    async def leave(self, link: KafkaLink) -> None:
        """Say that it goes; whatever is answered."""
        leaver = wire.LeaveGroupRequestMember(member_id=self.id, group_instance_id=self._instance)
        request = wire.LeaveGroupRequest(group_id=self._group, members=(leaver,))
        await link.ask(request, 3, wire.LeaveGroupResponse)

    def _deal(self, told: wire.JoinGroupResponse) -> dict[str, tuple[int, ...]]:
        members = sorted(each.member_id for each in told.members)
        return {
            member: tuple(range(number, self._count, len(members)))
            for number, member in enumerate(members)
        }
