"""Kafka group requests: membership and administration, over the group engine."""

from __future__ import annotations

from paceline.errors import ErrorCode, PacelineError
from paceline.wire.kafka import groups as wire
from paceline.wire.kafka.layout import NOT_ASKED
from paceline_node.listeners.kafka.call import Call
from paceline_node.listeners.kafka.coordinator_errors import CoordinatorApi, coordinator_code
from paceline_node.security.principals import Operation, Resource, ResourceKind
from paceline_node.services.authorization.authorized_operations import AuthorizedOperations
from paceline_node.services.groups.group_service import KAFKA, GroupService
from paceline_node.services.groups.open_group import GroupMember

_WITH_REBALANCE_TIMEOUT = 1
_WITH_MEMBER_ID_REQUIRED = 4
_WITH_SEVERAL_LEAVING = 3
_LEAVE_AT_ONCE = 400
_MEMBERS_PER_UNIT = 4
_BYTES_PER_UNIT = 64 * 1024


class KafkaGroupRequests:
    """Membership; groups are of the family that the native client shares (groups/DESIGN 1.1)."""

    def __init__(self, groups: GroupService, authorized: AuthorizedOperations) -> None:
        self._groups = groups
        self._authorized = authorized

    # --- membership -------------------------------------------------------------------------------

    async def join(self, request: wire.JoinGroupRequest, call: Call) -> wire.JoinGroupResponse:
        """Answered when the rebalance has gathered all members."""
        rebalance_timeout_ms = request.rebalance_timeout_ms
        if call.version < _WITH_REBALANCE_TIMEOUT:
            rebalance_timeout_ms = request.session_timeout_ms
        try:
            group = self._groups.open_kafka(call.principal, Operation.JOIN_GROUP, request.group_id)
            protocols = [
                (each.name, bytes(each.metadata))
                async for each in call.pace.each(request.protocols)
            ]
            joined = await group.join(
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                client_id=call.client_id,
                session_timeout_ms=request.session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                protocol_type=request.protocol_type,
                protocols=protocols,
                needs_id=call.version >= _WITH_MEMBER_ID_REQUIRED,
                client_host="/" + call.host.rpartition(":")[0],  # as Kafka writes it
            )
        except PacelineError as error:
            return wire.JoinGroupResponse(
                error_code=coordinator_code(error, CoordinatorApi.JOIN_GROUP),
                member_id=request.member_id,
                protocol_name="",
            )
        told = () if joined.keep_assignment else joined.members  # for the one that assigns
        members = [
            wire.JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=each.metadata(joined.protocol),
            )
            async for each in call.pace.each(told)
        ]
        return wire.JoinGroupResponse(
            error_code=coordinator_code(joined.error, CoordinatorApi.JOIN_GROUP),
            generation_id=joined.generation,
            protocol_type=joined.protocol_type or None,
            protocol_name=joined.protocol,
            # A leader that comes back and is to keep the assignment is told of another leader,
            # since these versions cannot tell it otherwise.
            leader="" if joined.keep_assignment else joined.leader,
            member_id=joined.member_id,
            members=tuple(members),
        )

    async def sync(self, request: wire.SyncGroupRequest, call: Call) -> wire.SyncGroupResponse:
        """The leader hands in the assignments; everybody gets their own."""
        try:
            group = self._groups.open_kafka(call.principal, Operation.JOIN_GROUP, request.group_id)
            synced = await group.sync(
                GroupMember(request.generation_id, request.member_id, request.group_instance_id),
                request.protocol_type or "",
                request.protocol_name or "",
                [
                    (each.member_id, bytes(each.assignment))
                    async for each in call.pace.each(request.assignments)
                ],
            )
        except PacelineError as error:
            return wire.SyncGroupResponse(
                error_code=coordinator_code(error, CoordinatorApi.SYNC_GROUP)
            )
        return wire.SyncGroupResponse(
            error_code=0,
            protocol_type=synced.protocol_type,
            protocol_name=synced.protocol,
            assignment=synced.assignment,
        )

    async def heartbeat(self, request: wire.HeartbeatRequest, call: Call) -> wire.HeartbeatResponse:
        """Keeps the session, or tells that a rebalance is on."""
        try:
            group = self._groups.open_kafka(call.principal, Operation.JOIN_GROUP, request.group_id)
            await group.heartbeat(
                GroupMember(request.generation_id, request.member_id, request.group_instance_id)
            )
        except PacelineError as error:
            return wire.HeartbeatResponse(
                error_code=coordinator_code(error, CoordinatorApi.HEARTBEAT)
            )
        return wire.HeartbeatResponse(error_code=0)

    async def leave(self, request: wire.LeaveGroupRequest, call: Call) -> wire.LeaveGroupResponse:
        """One member below version 3, several from then on."""
        leavers = [(each.member_id, each.group_instance_id) for each in request.members]
        if call.version < _WITH_SEVERAL_LEAVING:
            leavers = [(request.member_id, None)]
        try:
            group = self._groups.open_kafka(call.principal, Operation.JOIN_GROUP, request.group_id)
            codes: list[ErrorCode] = []
            for start in range(0, len(leavers), _LEAVE_AT_ONCE) or (0,):
                some = leavers[start : start + _LEAVE_AT_ONCE]
                await call.pace.spend(1 + len(some) // _MEMBERS_PER_UNIT)
                codes += await group.leave(some)
        except PacelineError as error:
            return wire.LeaveGroupResponse(
                error_code=coordinator_code(error, CoordinatorApi.LEAVE_GROUP)
            )
        if call.version < _WITH_SEVERAL_LEAVING:
            return wire.LeaveGroupResponse(
                error_code=coordinator_code(codes[0], CoordinatorApi.LEAVE_GROUP)
            )
        return wire.LeaveGroupResponse(
            error_code=0,
            members=tuple(
                [
                    wire.LeaveGroupResponseMember(
                        member_id=member_id,
                        group_instance_id=instance_id,
                        error_code=coordinator_code(code, CoordinatorApi.LEAVE_GROUP),
                    )
                    async for (member_id, instance_id), code in call.pace.each(
                        zip(leavers, codes, strict=True)
                    )
                ]
            ),
        )

    # --- administration ---------------------------------------------------------------------------

    async def list(self, request: wire.ListGroupsRequest, call: Call) -> wire.ListGroupsResponse:
        """The groups that this node coordinates, as far as the client may see them."""
        try:
            found = await self._groups.list((KAFKA,), request.states_filter)
        except PacelineError as error:
            return wire.ListGroupsResponse(
                error_code=coordinator_code(error, CoordinatorApi.LIST_GROUPS)
            )
        return wire.ListGroupsResponse(
            error_code=0,
            groups=tuple(
                [
                    wire.ListGroupsResponseGroup(
                        group_id=each.key.group,
                        protocol_type=each.protocol_type,
                        group_state=each.state,
                    )
                    async for each in call.pace.each(found)
                    if self._groups.may_see(call.principal, each.key.group)
                ]
            ),
        )

    async def describe(
        self, request: wire.DescribeGroupsRequest, call: Call
    ) -> wire.DescribeGroupsResponse:
        """State and members of groups; one that does not exist is Dead."""
        return wire.DescribeGroupsResponse(
            groups=tuple(
                [
                    await self._describe(group, request, call)
                    async for group in call.pace.each(await call.pace.once_each(request.groups))
                ]
            )
        )

    async def _describe(
        self, group: str, request: wire.DescribeGroupsRequest, call: Call
    ) -> wire.DescribeGroupsResponseGroup:
        try:
            opened = self._groups.open_kafka(call.principal, Operation.DESCRIBE, group)
            found = await opened.describe()
        except PacelineError as error:
            return wire.DescribeGroupsResponseGroup(
                error_code=coordinator_code(error, CoordinatorApi.DESCRIBE_GROUPS), group_id=group
            )
        copied = sum(len(each.metadata) + len(each.member.assignment) for each in found.members)
        await call.pace.spend(len(found.members) + copied // _BYTES_PER_UNIT, copied)
        return wire.DescribeGroupsResponseGroup(
            error_code=0,
            group_id=group,
            group_state=found.state,
            protocol_type=found.group.protocol_type,
            protocol_data=found.group.protocol,
            members=tuple(
                wire.DescribeGroupsResponseGroupMember(
                    member_id=each.member.member_id,
                    group_instance_id=each.member.instance_id,
                    client_id=each.member.client_id,
                    client_host=each.member.client_host,
                    member_metadata=each.metadata,
                    member_assignment=each.member.assignment,
                )
                for each in found.members
            ),
            authorized_operations=self._authorized.bits(
                call.principal, Resource(ResourceKind.GROUP, group)
            )
            if request.include_authorized_operations
            else NOT_ASKED,
        )

    async def delete(
        self, request: wire.DeleteGroupsRequest, call: Call
    ) -> wire.DeleteGroupsResponse:
        """Forgets groups without members."""
        results = []
        async for group in call.pace.each(await call.pace.once_each(request.groups_names)):
            error = 0
            try:
                await self._groups.open_kafka(call.principal, Operation.DELETE, group).delete()
            except PacelineError as refusal:
                error = coordinator_code(refusal, CoordinatorApi.DELETE_GROUPS)
            results.append(wire.DeleteGroupsResponseResult(group_id=group, error_code=error))
        return wire.DeleteGroupsResponse(results=tuple(results))
