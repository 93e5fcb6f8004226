"""Rules for a JOIN of the Kafka protocol: who may join, and whether the others must as well."""

from __future__ import annotations

from paceline.errors import (
    FencedInstance,
    GroupFull,
    InconsistentGroupProtocol,
    InvalidRequest,
    InvalidSessionTimeout,
    UnknownMember,
)
from paceline.wire.consumer_protocol import PROTOCOL_TYPE, says_the_same
from paceline_node.groups.context import GroupContext
from paceline_node.groups.kafka_rounds import JoinRequest, common_protocols, size_of
from paceline_node.groups.kafka_state import KafkaState
from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.records import Group, Member

_NAME_BYTES_MAX = 1024
"""Others are told of them in versions of the protocol whose texts have 32 KiB at most."""


def check_request(request: JoinRequest, limits: GroupLimits) -> None:
    """What holds in every group. Raises InvalidSessionTimeout, InvalidRequest,
    InconsistentGroupProtocol."""
    low, high = limits.session_min_s, limits.session_max_s
    if not low <= request.session_timeout_ms / 1000 <= high:
        raise InvalidSessionTimeout(
            f"session timeout {request.session_timeout_ms} ms: expected {low * 1000:.0f} to "
            f"{high * 1000:.0f} ms (groups.session_min_ms, groups.session_max_ms)"
        )
    # As long as its client likes (max.poll.interval.ms): whoever is dead goes with its session.
    if request.rebalance_timeout_ms < 0:
        raise InvalidRequest(
            f"rebalance timeout {request.rebalance_timeout_ms} ms: expected 0 or more"
        )
    if not request.protocol_type or not request.protocols:
        raise InconsistentGroupProtocol("expected a protocol type and at least one protocol")
    names = [request.protocol_type, request.client_id, request.member_id]
    names += [request.instance_id or "", *(each.name for each in request.protocols)]
    longest = max(len(name.encode()) for name in names)
    if longest > _NAME_BYTES_MAX:
        raise InvalidRequest(
            f"a name of {longest} bytes: expected at most {_NAME_BYTES_MAX} for ids, the "
            "protocol type and its protocols"
        )
    size = size_of(request.protocols)
    size += len(request.client_id) + len(request.instance_id or "") + len(request.member_id)
    if size > limits.member_bytes_max:
        raise InvalidRequest(
            f"{size} bytes of member, at most {limits.member_bytes_max} (groups.member_bytes_max)"
        )


def check_beside_others(request: JoinRequest, state: KafkaState, context: GroupContext) -> None:
    """Whether there is a place for it beside the other members, if there are any. Raises
    InconsistentGroupProtocol, GroupFull."""
    key, roster = request.key, state.roster
    if request.instance_id is not None:
        before = roster.holder(request.instance_id)
    else:
        before = roster.find(request.member_id)
    if len(roster) == (before is not None):
        return
    group, round_ = state.stored, state.round
    known = group.protocol_type if group.members or round_ is None else round_.protocol_type
    if known != request.protocol_type:
        raise InconsistentGroupProtocol(f"group {key}: the protocol type is {known}")
    if not roster.have_in_common((each.name for each in request.protocols), before):
        others = [each for each in roster.members if each is not before]
        common = common_protocols(others)
        raise InconsistentGroupProtocol(
            f"group {key}: the other members have {', '.join(sorted(common))} in common"
        )
    context.check_member_count(key, len(roster) + (before is None))
    size = roster.size + size_of(request.protocols)
    size -= 0 if before is None else size_of(before.protocols)
    limit = context.limits.group_bytes_max
    if size > limit:
        raise GroupFull(
            f"group {key}: {size} bytes of members, at most {limit} (groups.group_bytes_max)"
        )


def check_id(request: JoinRequest, state: KafkaState) -> None:
    """Whether the group knows the member by the id that the request names. Raises UnknownMember,
    FencedInstance."""
    if request.instance_id is not None:
        holder = state.holder(request.instance_id)
        if holder is None:
            raise UnknownMember(f"group {request.key}: nobody holds {request.instance_id}")
        if holder.member_id != request.member_id:
            raise FencedInstance(f"{request.instance_id} is {holder.member_id} now")
    elif request.member_id not in state.handed_out and state.roster.find(request.member_id) is None:
        raise UnknownMember(f"group {request.key} has no member {request.member_id}")


def asks_for_the_same(group: Group, new: Member, old: Member) -> bool:
    """Whether ``new``, which takes the place of ``old``, would be assigned what ``old`` was."""
    now, before = new.metadata(group.protocol), old.metadata(group.protocol)
    if group.protocol_type != PROTOCOL_TYPE:
        return now == before
    # Who has just started owns nothing; its predecessor said what it owned when it last joined.
    return says_the_same(now, before)
