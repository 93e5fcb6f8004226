"""V1 JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT and OFFSET, at the group's coordinator (groups/DESIGN 3).

Every node takes them; another one than the coordinator sends the line on (DESIGN 4.2). Never
NOT_LEADER: SDKs would break off. UNAVAILABLE says that nothing was done, REPLICATION_TIMEOUT that a
JOIN, LEAVE or COMMIT may have been.
"""

from __future__ import annotations

import math
from collections.abc import Callable

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
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.keys import GROUPS_TOPIC
from paceline_node.groups.v1_groups import MemberRef, v1_key
from paceline_node.listeners.v1.records import V1Records
from paceline_node.listeners.v1.routing import Call, Router
from paceline_node.replication.partition import Partition
from paceline_node.security.principals import Operation
from paceline_node.services.groups import GroupService
from paceline_node.services.open_group import OpenGroup


class V1Groups:
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

    async def join(self, request: Join, call: Call) -> bytes:
        """Become a member; the topic is created when it is unknown."""
        opened = self._groups.open_to_member(call.principal, v1_key(request.group), request.topic)
        topic = await self._records.ensure_for_reading(request.topic, call)
        assignor = None if request.assignor is None else request.assignor.value

        def serve(engine: GroupEngine) -> bytes:
            membership = engine.v1.join(
                request.group, request.topic, request.consumer_id, assignor, len(topic.partitions)
            )
            return replies.assignment_payload(
                generation=membership.generation, assigned=membership.partitions
            )

        return await self._change(call, opened, serve)

    async def sync(self, request: Sync, call: Call) -> bytes:
        """The member's assignment."""
        opened = self._groups.open(call.principal, Operation.JOIN_GROUP, v1_key(request.group))

        def serve(engine: GroupEngine) -> bytes:
            membership = engine.v1.sync(self._member(request))
            return replies.assignment_payload(
                generation=membership.generation, assigned=membership.partitions
            )

        return await self._look(call, opened, serve)

    async def heartbeat(self, request: Heartbeat, call: Call) -> bytes:
        """Keep the session."""
        opened = self._groups.open(call.principal, Operation.JOIN_GROUP, v1_key(request.group))

        def serve(engine: GroupEngine) -> bytes:
            engine.v1.heartbeat(self._member(request))
            return replies.HEARTBEAT_PAYLOAD

        return await self._look(call, opened, serve)

    async def leave(self, request: Leave, call: Call) -> bytes:
        """Be no member any more."""
        opened = self._groups.open(call.principal, Operation.JOIN_GROUP, v1_key(request.group))

        def serve(engine: GroupEngine) -> bytes:
            engine.v1.leave(self._member(request))
            return replies.LEAVE_PAYLOAD

        return await self._change(call, opened, serve)

    async def commit(self, request: Commit, call: Call) -> bytes:
        """Store how far a member has read."""
        opened = self._groups.open(call.principal, Operation.COMMIT_OFFSETS, v1_key(request.group))

        def serve(engine: GroupEngine) -> bytes:
            member, account = self._member(request), call.principal.account
            engine.v1.commit(member, request.partition, request.offset, account)
            return replies.COMMIT_PAYLOAD

        return await self._change(call, opened, serve)

    async def committed(self, request: CommittedOffset, call: Call) -> bytes:
        """OFFSET: the committed position, 0 when there is none; asks for no membership."""
        opened = self._groups.open(call.principal, Operation.DESCRIBE, v1_key(request.group))

        def serve(engine: GroupEngine) -> bytes:
            found = engine.offsets.fetch(v1_key(request.group), request.topic, request.partition)
            return replies.offset_payload(0 if found is None else found.offset)

        return await self._look(call, opened, serve)

    def _member(self, request: Sync | Heartbeat | Leave | Commit) -> MemberRef:
        return MemberRef(
            request.group,
            request.topic,
            request.consumer_id,
            request.generation,
            self._groups.partition_count(request.topic),
        )

    # --- where ------------------------------------------------------------------------------------

    async def _look(
        self, call: Call, group: OpenGroup, serve: Callable[[GroupEngine], bytes]
    ) -> bytes:
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

    async def _change(
        self, call: Call, group: OpenGroup, serve: Callable[[GroupEngine], bytes]
    ) -> bytes:
        """Run what must not run twice; RequestTimedOut and the like: outcome unknown."""
        until = self._env.now() + self._coordinator_wait_s
        return await self._at_coordinator(call, group, serve, until)

    async def _at_coordinator(
        self,
        call: Call,
        group: OpenGroup,
        serve: Callable[[GroupEngine], bytes],
        until: float,
        *,
        patience_s: float = math.inf,
    ) -> bytes:
        async def here(_: Partition) -> bytes:
            left_s = min(until, call.deadline) - self._env.now()
            try:
                return await group.perform(serve, commit_s=max(left_s, 0.0))
            except (NotCoordinator, CoordinatorLoadInProgress, CoordinatorNotAvailable) as error:
                raise NotLeader(str(error)) from error

        try:
            number = await self._groups.wait_partition(
                group.key, timeout_s=max(0.0, until - self._env.now())
            )
            return await self._router.on_leader(
                call, GROUPS_TOPIC, number, here, until=until, patience_s=patience_s
            )
        except (NotLeader, NotEnoughReplicas):
            if call.forwarded:
                raise
            raise _unavailable(group.key.group) from None
        except (CoordinatorNotAvailable, UnknownTopicOrPartition):
            raise _unavailable(group.key.group) from None


def _unavailable(group: str) -> V1Error:
    return V1Error(V1Code.UNAVAILABLE, f"no coordinator of group {group} can be reached")
