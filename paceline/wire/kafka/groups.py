"""Requests about the membership of consumer groups. Source: Kafka's published message
definitions."""

from __future__ import annotations

from typing import Annotated

from paceline.values import dataclass
from paceline.wire.kafka.layout import (
    I16,
    I32,
    NOT_ASKED,
    Bool,
    Bytes,
    NullableStr,
    Str,
    Struct,
    nullable_since,
    since,
    until,
)

# JoinGroup (11), versions 0 to 7


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupRequestProtocol(Struct):
    name: Str = ""
    metadata: Bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupRequest(Struct):
    """Become a member; answered when the rebalance has gathered all."""

    group_id: Str = ""
    session_timeout_ms: I32 = 0
    rebalance_timeout_ms: Annotated[I32, since(1)] = -1
    member_id: Str = ""
    group_instance_id: Annotated[NullableStr, since(5)] = None
    protocol_type: Str = ""
    protocols: tuple[JoinGroupRequestProtocol, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupResponseMember(Struct):
    member_id: Str = ""
    group_instance_id: Annotated[NullableStr, since(5)] = None
    metadata: Bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupResponse(Struct):
    throttle_time_ms: Annotated[I32, since(2)] = 0
    error_code: I16
    generation_id: I32 = -1
    protocol_type: Annotated[NullableStr, since(7)] = None
    protocol_name: Annotated[NullableStr, nullable_since(7)] = None
    leader: Str = ""
    member_id: Str = ""
    members: tuple[JoinGroupResponseMember, ...] = ()


# SyncGroup (14), versions 0 to 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupRequestAssignment(Struct):
    member_id: Str = ""
    assignment: Bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupRequest(Struct):
    """Hand in, or wait for, the assignment."""

    group_id: Str = ""
    generation_id: I32 = 0
    member_id: Str = ""
    group_instance_id: Annotated[NullableStr, since(3)] = None
    protocol_type: Annotated[NullableStr, since(5)] = None
    protocol_name: Annotated[NullableStr, since(5)] = None
    assignments: tuple[SyncGroupRequestAssignment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupResponse(Struct):
    throttle_time_ms: Annotated[I32, since(1)] = 0
    error_code: I16
    protocol_type: Annotated[NullableStr, since(5)] = None
    protocol_name: Annotated[NullableStr, since(5)] = None
    assignment: Bytes = b""


# Heartbeat (12), versions 0 to 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest(Struct):
    """Keep the session."""

    group_id: Str = ""
    generation_id: I32 = 0
    member_id: Str = ""
    group_instance_id: Annotated[NullableStr, since(3)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResponse(Struct):
    throttle_time_ms: Annotated[I32, since(1)] = 0
    error_code: I16


# LeaveGroup (13), versions 0 to 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupRequestMember(Struct):
    member_id: Str = ""
    group_instance_id: NullableStr = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupRequest(Struct):
    """End memberships."""

    group_id: Str = ""
    member_id: Annotated[Str, until(2)] = ""
    members: Annotated[tuple[LeaveGroupRequestMember, ...], since(3)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupResponseMember(Struct):
    member_id: Str = ""
    group_instance_id: NullableStr = None
    error_code: I16


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupResponse(Struct):
    throttle_time_ms: Annotated[I32, since(1)] = 0
    error_code: I16
    members: Annotated[tuple[LeaveGroupResponseMember, ...], since(3)] = ()


# DescribeGroups (15), versions 0 to 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupsRequest(Struct):
    """Groups with their members."""

    groups: tuple[Str, ...] = ()
    include_authorized_operations: Annotated[Bool, since(3)] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupsResponseGroupMember(Struct):
    member_id: Str = ""
    group_instance_id: Annotated[NullableStr, since(4)] = None
    client_id: Str = ""
    client_host: Str = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupsResponseGroup(Struct):
    error_code: I16
    group_id: Str = ""
    group_state: Str = ""
    protocol_type: Str = ""
    protocol_data: Str = ""
    members: tuple[DescribeGroupsResponseGroupMember, ...] = ()
    authorized_operations: Annotated[I32, since(3)] = NOT_ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroupsResponse(Struct):
    throttle_time_ms: Annotated[I32, since(1)] = 0
    groups: tuple[DescribeGroupsResponseGroup, ...] = ()


# ListGroups (16), versions 0 to 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupsRequest(Struct):
    """The groups this broker coordinates."""

    states_filter: Annotated[tuple[Str, ...], since(4)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupsResponseGroup(Struct):
    group_id: Str = ""
    protocol_type: Str = ""
    group_state: Annotated[Str, since(4)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListGroupsResponse(Struct):
    throttle_time_ms: Annotated[I32, since(1)] = 0
    error_code: I16
    groups: tuple[ListGroupsResponseGroup, ...] = ()


# DeleteGroups (42), versions 0 to 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsRequest(Struct):
    """Remove empty groups."""

    groups_names: tuple[Str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsResponseResult(Struct):
    group_id: Str = ""
    error_code: I16


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsResponse(Struct):
    throttle_time_ms: I32 = 0
    results: tuple[DeleteGroupsResponseResult, ...] = ()
