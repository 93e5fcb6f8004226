"""JOIN of the Kafka protocol: who may join, under which id, and whether the others must as well."""

from __future__ import annotations

from dataclasses import replace

from paceline.errors import (
    ErrorCode,
    FencedInstance,
    GroupFull,
    InconsistentGroupProtocol,
    InvalidRequest,
    InvalidSessionTimeout,
    UnknownMember,
)
from paceline.wire.consumer_protocol import PROTOCOL_TYPE, says_the_same
from paceline_node.groups.context import GroupContext
from paceline_node.groups.growth import is_outgrown
from paceline_node.groups.kafka_barrier import Barrier, joined
from paceline_node.groups.kafka_roster import Roster
from paceline_node.groups.kafka_rounds import Joined, JoinRequest, common_protocols, size_of
from paceline_node.groups.kafka_state import KafkaState
from paceline_node.groups.keys import GroupKey
from paceline_node.groups.records import Group, Member, Phase
from paceline_node.state_machines.machine import Deferred

_NAME_BYTES_MAX = 1024
"""Others are told of them in versions of the protocol whose texts have 32 KiB at most."""


class KafkaJoins:
    """Judges join requests and lets members into rounds."""

    def __init__(self, context: GroupContext, state: KafkaState, barrier: Barrier) -> None:
        self._context = context
        self._state = state
        self._barrier = barrier

    def join(self, request: JoinRequest) -> Joined | Deferred[Joined]:
        """Become a member, or stay one; answered when the round ends.

        Raises, at once or as the answer: InvalidGroup, InvalidRequest, InvalidSessionTimeout,
        InconsistentGroupProtocol, UnknownMember, FencedInstance, GroupFull, RebalanceInProgress
        (the member joined once more meanwhile), and what writing raises.
        """
        self._check(request)
        if request.instance_id is not None:
            holder = self._state.holder(request.key, request.instance_id)
            if holder is not None and not request.member_id:
                return self._come_back(request, holder)
            return self._join_as(request, self._static_id(request, holder))
        if request.member_id:
            self._check_known(request.key, request.member_id)
            return self._join_as(request, request.member_id)
        if request.needs_id:
            return self._hand_out_id(request)
        return self._join_as(request, self._context.new_id(request.client_id or "member"))

    # --- whether ----------------------------------------------------------------------------------

    def _check(self, request: JoinRequest) -> None:
        context = self._context
        context.check_new_group(request.key, self._state.rounds)
        low, high = context.limits.session_min_s, context.limits.session_max_s
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
        self._check_size(request)
        roster = self._state.roster(request.key)
        if request.instance_id is not None:
            before = roster.holder(request.instance_id)
        else:
            before = roster.find(request.member_id)
        if len(roster) > (before is not None):
            self._check_others(request, roster, before)

    def _check_size(self, request: JoinRequest) -> None:
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
        if size > self._context.limits.member_bytes_max:
            raise InvalidRequest(
                f"{size} bytes of member, at most {self._context.limits.member_bytes_max} "
                "(groups.member_bytes_max)"
            )

    def _check_others(self, request: JoinRequest, roster: Roster, before: Member | None) -> None:
        """``before`` is who the request is by, if the group knows."""
        key, limits = request.key, self._context.limits
        round_ = self._state.rounds.get(key)
        group = self._state.group(key)
        known = group.protocol_type if group.members or round_ is None else round_.protocol_type
        if known != request.protocol_type:
            raise InconsistentGroupProtocol(f"group {key}: the protocol type is {known}")
        if not roster.have_in_common((each.name for each in request.protocols), before):
            others = [each for each in roster.members if each is not before]
            common = common_protocols(others)
            raise InconsistentGroupProtocol(
                f"group {key}: the other members have {', '.join(sorted(common))} in common"
            )
        self._context.check_member_count(key, len(roster) + (before is None))
        size = roster.size + size_of(request.protocols)
        size -= 0 if before is None else size_of(before.protocols)
        if size > limits.group_bytes_max:
            raise GroupFull(
                f"group {key}: {size} bytes of members, at most {limits.group_bytes_max} "
                "(groups.group_bytes_max)"
            )

    # --- under which id ---------------------------------------------------------------------------

    def _static_id(self, request: JoinRequest, holder: Member | None) -> str:
        if not request.member_id:
            return self._context.new_id(request.instance_id or "")
        if holder is None:
            raise UnknownMember(f"group {request.key}: nobody holds {request.instance_id}")
        if holder.member_id != request.member_id:
            raise FencedInstance(f"{request.instance_id} is {holder.member_id} now")
        return request.member_id

    def _check_known(self, key: GroupKey, member_id: str) -> None:
        handed_out = self._state.handed_out.get(key, ())
        if member_id not in handed_out and self._state.find(key, member_id) is None:
            raise UnknownMember(f"group {key} has no member {member_id}")

    def _hand_out_id(self, request: JoinRequest) -> Joined:
        """An id to come back with: a client that missed this answer leaves no ghost behind."""
        self._context.check_member_count(request.key, len(self._state.roster(request.key)) + 1)
        member_id = self._context.new_id(request.client_id or "member")
        self._state.hand_out(request.key, member_id, request.session_timeout_ms)
        return Joined(member_id, error=ErrorCode.MEMBER_ID_REQUIRED)

    # --- whether the others must ------------------------------------------------------------------

    def _join_as(self, request: JoinRequest, member_id: str) -> Joined | Deferred[Joined]:
        key = request.key
        group = self._state.group(key)
        known = self._state.roster(key).stored.get(member_id)
        phase = self._state.phase(key)
        if known is not None and known.protocols == request.protocols:
            leads = member_id == group.leader
            # Its answer was lost. A leader that joins a stable group wants to assign anew.
            if phase is Phase.COMPLETING or (phase is Phase.STABLE and not leads):
                self._context.heard(key, member_id)
                return joined(group, member_id)
        return self._rebalance(request, member_id)

    def _rebalance(self, request: JoinRequest, member_id: str) -> Deferred[Joined]:
        key = request.key
        if key not in self._state.rounds or self._state.phase(key) is not Phase.PREPARING:
            first = not self._state.group(key).members
            self._barrier.prepare(key, request.rebalance_timeout_ms, first=first)
        return self._barrier.enter(request, member_id)

    def _come_back(self, request: JoinRequest, holder: Member) -> Joined | Deferred[Joined]:
        """A static member restarted: a new id takes the place of the old one (KIP-345)."""
        key, context = request.key, self._context
        member_id = context.new_id(request.instance_id or "")
        group = self._state.group(key)
        known = self._state.roster(key).stored.get(holder.member_id)
        if known is not None:
            renamed = replace(known, member_id=member_id, protocols=request.protocols)
            context.write_group(key, _renamed(group, known, renamed))
            context.sessions.forget(key, known.member_id)
            context.heard(key, member_id)
        fenced = FencedInstance(f"{request.instance_id} is {member_id} now")
        self._state.drop_waiting(key, holder.member_id, fenced)
        if known is not None and self._state.phase(key) is Phase.STABLE:
            group = self._state.group(key)
            leads = group.leader == member_id
            # Nobody else would notice what its topics have got meanwhile.
            outgrown = leads and is_outgrown(group, context.partition_count)
            if not outgrown and _asks_for_the_same(group, renamed, known):
                # Nothing to assign anew, and a leader is told so (KIP-814).
                return replace(joined(group, member_id), keep_assignment=True)
        return self._rebalance(request, member_id)


def _asks_for_the_same(group: Group, new: Member, old: Member) -> bool:
    now, before = new.metadata(group.protocol), old.metadata(group.protocol)
    if group.protocol_type != PROTOCOL_TYPE:
        return now == before
    # Who has just started owns nothing; its predecessor said what it owned when it last joined.
    return says_the_same(now, before)


def _renamed(group: Group, old: Member, new: Member) -> Group:
    members = tuple([new if each is old else each for each in group.members])
    leader = new.member_id if group.leader == old.member_id else group.leader
    return replace(group, members=members, leader=leader)
