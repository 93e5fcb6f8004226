"""V1 JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT and OFFSET, at the group's coordinator (groups/DESIGN 3).

Every node takes them; another one than the coordinator sends the line on (DESIGN 4.2). Never
NOT_LEADER: SDKs would break off. UNAVAILABLE says that nothing was done, REPLICATION_TIMEOUT that a
JOIN, LEAVE or COMMIT may have been.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

from paceline.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeader,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from paceline.wire.v1 import replies
from paceline.wire.v1.errors import V1Code, V1Error
from paceline.wire.v1.requests import Commit, CommittedOffset, Heartbeat, Join, Leave, Sync
from paceline_node.env import Env
from paceline_node.listeners.v1.records import V1Records
from paceline_node.listeners.v1.routing import Call, Router
from paceline_node.security.principals import Operation
from paceline_node.services.groups.group_service import GroupService
from paceline_node.services.groups.open_v1_group import OpenV1Group, V1Member

Serve = Callable[[float], Awaitable[bytes]]
"""Answers at the coordinator; is given how long what it says has until it is committed."""


class V1GroupRequests:
    """Handlers of the group commands; each returns the payload of the OK line."""

    def __init__(
        self,
        env: Env,
        groups: GroupService,
        records: V1Records,
        router: Router,
        *,
        coordinator_wait_s: float,
    ) -> None:
        self._env = env
        self._groups = groups
        self._records = records
        self._router = router
        self._coordinator_wait_s = coordinator_wait_s

    def _opened_to_member(self, request: Join | Sync | Heartbeat, call: Call) -> OpenV1Group:
        """Its topic's partitions are told to a member, and its session goes on while it may read
        them."""
        return self._groups.open_v1(
            call.principal, Operation.JOIN_GROUP, request.group, request.topic
        )

    async def join(self, request: Join, call: Call) -> bytes:
        """Become a member; the topic is created when it is unknown."""
        group = self._opened_to_member(request, call)
        topic = await self._records.ensure_for_reading(request.topic, call)
        assignor = None if request.assignor is None else request.assignor.value

        async def serve(commit_s: float) -> bytes:
            told = await group.join(
                request.topic,
                request.consumer_id,
                assignor,
                len(topic.partitions),
                commit_s=commit_s,
            )
            return replies.assignment_payload(generation=told.generation, assigned=told.partitions)

        return await self._change(call, group, serve)

    async def sync(self, request: Sync, call: Call) -> bytes:
        """The member's assignment."""
        group = self._opened_to_member(request, call)

        async def serve(commit_s: float) -> bytes:
            told = await group.sync(_member(request), commit_s=commit_s)
            return replies.assignment_payload(generation=told.generation, assigned=told.partitions)

        return await self._look(call, group, serve)

    async def heartbeat(self, request: Heartbeat, call: Call) -> bytes:
        """Keep the session."""
        group = self._opened_to_member(request, call)

        async def serve(commit_s: float) -> bytes:
            await group.heartbeat(_member(request), commit_s=commit_s)
            return replies.HEARTBEAT_PAYLOAD

        return await self._look(call, group, serve)

    async def leave(self, request: Leave, call: Call) -> bytes:
        """Be no member any more."""
        group = self._groups.open_v1(call.principal, Operation.JOIN_GROUP, request.group, "")

        async def serve(commit_s: float) -> bytes:
            await group.leave(_member(request), commit_s=commit_s)
            return replies.LEAVE_PAYLOAD

        return await self._change(call, group, serve)

    async def commit(self, request: Commit, call: Call) -> bytes:
        """Store how far a member has read."""
        group = self._groups.open_v1(
            call.principal, Operation.COMMIT_OFFSETS, request.group, request.topic
        )

        async def serve(commit_s: float) -> bytes:
            member = _member(request)
            await group.store(member, request.partition, request.offset, commit_s=commit_s)
            return replies.COMMIT_PAYLOAD

        return await self._change(call, group, serve)

    async def committed(self, request: CommittedOffset, call: Call) -> bytes:
        """OFFSET: the committed position, 0 when there is none; asks for no membership."""
        group = self._groups.open_v1(
            call.principal, Operation.DESCRIBE, request.group, request.topic
        )

        async def serve(commit_s: float) -> bytes:
            found = await group.committed(request.topic, request.partition, commit_s=commit_s)
            return replies.offset_payload(found or 0)

        return await self._look(call, group, serve)

    # --- where ------------------------------------------------------------------------------------

    async def _look(self, call: Call, group: OpenV1Group, serve: Serve) -> bytes:
        """Run what may run twice: a lost link, or a coordinator that hangs, is no reason to give
        up."""
        until = self._env.now() + self._coordinator_wait_s
        while True:
            try:
                return await self._at_coordinator(
                    call, group, serve, until, patience_s=self._coordinator_wait_s / 2
                )
            except RequestTimedOut:
                if call.forwarded or self._env.now() >= until:
                    raise _unavailable(group.key.group) from None

    async def _change(self, call: Call, group: OpenV1Group, serve: Serve) -> bytes:
        """Run what must not run twice; RequestTimedOut and the like: outcome unknown."""
        until = self._env.now() + self._coordinator_wait_s
        return await self._at_coordinator(call, group, serve, until)

    async def _at_coordinator(
        self,
        call: Call,
        group: OpenV1Group,
        serve: Serve,
        until: float,
        *,
        patience_s: float = math.inf,
    ) -> bytes:
        async def here() -> bytes:
            left_s = min(until, call.deadline) - self._env.now()
            try:
                return await serve(max(left_s, 0.0))
            except (NotCoordinator, CoordinatorLoadInProgress, CoordinatorNotAvailable) as error:
                raise NotLeader(str(error)) from error

        try:
            topic, number = await group.wait_place(timeout_s=max(0.0, until - self._env.now()))
            return await self._router.on_leader(
                call, topic, number, here, until=until, patience_s=patience_s
            )
        except (NotLeader, NotEnoughReplicas):
            if call.forwarded:
                raise
            raise _unavailable(group.key.group) from None
        except (CoordinatorNotAvailable, UnknownTopicOrPartition):
            raise _unavailable(group.key.group) from None


def _member(request: Sync | Heartbeat | Leave | Commit) -> V1Member:
    return V1Member(request.topic, request.consumer_id, request.generation)


def _unavailable(group: str) -> V1Error:
    return V1Error(V1Code.UNAVAILABLE, f"no coordinator of group {group} can be reached")
