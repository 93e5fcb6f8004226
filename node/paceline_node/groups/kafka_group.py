"""One group of the Kafka protocol or of the native client (DESIGN 5): its state, who waits for it,
and what its members' requests do.

Members join and wait for each other (``kafka_barrier.py``); then the generation is raised, stored,
and told; the leading member assigns; its assignment is stored and told. So every generation that
anyone hears of is in the log, and so is every assignment::

    EMPTY --join--> PREPARING --all joined, or time is up--> COMPLETING --leader syncs--> STABLE
      ^                 ^                                        |                          |
      |                 +----------- join, leave, expiry --------+--------------------------+
      +------ nobody is left

The stored phase says what a new coordinator must do: anything but STABLE begins a round there.
Facts about the protocol: KIP-62, 134, 345, 394, 814 and the coordinator of Kafka 2.x.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from paceline.errors import (
    ErrorCode,
    FencedInstance,
    IllegalGeneration,
    InconsistentGroupProtocol,
    PacelineError,
    RebalanceInProgress,
    UnknownMember,
)
from paceline_node.groups.assignment_to_store import Assigned, AssignmentToStore, assigning
from paceline_node.groups.kafka_answers import Answers
from paceline_node.groups.kafka_barrier import Barrier, joined
from paceline_node.groups.kafka_joins import (
    asks_for_the_same,
    check_beside_others,
    check_id,
    check_request,
)
from paceline_node.groups.kafka_roster import Roster
from paceline_node.groups.kafka_rounds import Joined, JoinRequest, Round, Synced, SyncRequest
from paceline_node.groups.kafka_state import Coordinated, KafkaState
from paceline_node.groups.keys import GroupKey
from paceline_node.groups.partition_growth import is_outgrown
from paceline_node.groups.read_topics import made_anew
from paceline_node.groups.records import Group, Member, Phase
from paceline_node.state_machines.machine import Deferred


class KafkaGroup:
    """The group ``key``. Commands raise what they say, and then nothing has changed."""

    __slots__ = ("_answers", "_barrier", "_context", "_is_to_be_compared", "_state", "key")

    def __init__(self, key: GroupKey, coordinated: Coordinated) -> None:
        self.key = key
        self._context = coordinated.context
        state = self._state = KafkaState(key, coordinated)
        context = self._context
        self._answers = Answers(lambda: state.wake_at(context.now()))
        self._barrier = Barrier(self._context, self._state, self._answers)
        self._is_to_be_compared = False
        """Whether its leader may not know of partitions that its topics got."""

    @property
    def is_idle(self) -> bool:
        """Whether it has no members, and nothing is known here that is not stored elsewhere."""
        return self._state.is_idle and not self._answers.are_owed and not self._is_to_be_compared

    @property
    def phase(self) -> Phase:
        """The phase now."""
        return self._state.phase

    @property
    def member_count(self) -> int:
        """Members, those that are still joining included."""
        return len(self._state.roster)

    def _wake(self) -> None:
        self._state.wake_at(self._context.now())

    # --- join -------------------------------------------------------------------------------------

    def join(self, request: JoinRequest) -> Joined | Deferred[Joined]:
        """Become a member, or stay one; answered when the round ends.

        Raises, at once or as the answer: InvalidRequest, InvalidSessionTimeout,
        InconsistentGroupProtocol, UnknownMember, FencedInstance, GroupFull, RebalanceInProgress
        (the member joined once more meanwhile), and what writing raises.
        """
        context, state = self._context, self._state
        check_request(request, context.limits)
        check_beside_others(request, state, context)
        if request.member_id:
            check_id(request, state)
            return self._join_as(request, request.member_id)
        holder = state.holder(request.instance_id)
        if holder is not None:
            return self._come_back(request, holder)
        if request.instance_id is not None:
            return self._join_as(request, context.new_id(request.instance_id))
        member_id = context.new_id(request.client_id or "member")
        if not request.needs_id:
            return self._join_as(request, member_id)
        # An id to come back with: a client that missed this answer leaves no ghost behind.
        state.hand_out(member_id, request.session_timeout_ms)
        return Joined(member_id, error=ErrorCode.MEMBER_ID_REQUIRED)

    def _join_as(self, request: JoinRequest, member_id: str) -> Joined | Deferred[Joined]:
        state = self._state
        group, phase = state.stored, state.phase
        known = state.roster.stored.get(member_id)
        if known is not None and known.protocols == request.protocols:
            leads = member_id == group.leader
            # Its answer was lost. A leader that joins a stable group wants to assign anew.
            if phase is Phase.COMPLETING or (phase is Phase.STABLE and not leads):
                state.heard(member_id)
                return joined(group, member_id)
        return self._barrier.enter(request, member_id)

    def _come_back(self, request: JoinRequest, holder: Member) -> Joined | Deferred[Joined]:
        """A static member restarted: a new id takes the place of the old one (KIP-345)."""
        context, state = self._context, self._state
        member_id = context.new_id(request.instance_id or "")
        known = state.roster.stored.get(holder.member_id)
        if known is not None:
            renamed = replace(known, member_id=member_id, protocols=request.protocols)
            state.write(_renamed(state.stored, known, renamed))
            context.sessions.forget(self.key, known.member_id)
            state.heard(member_id)
        fenced = FencedInstance(f"{request.instance_id} is {member_id} now")
        state.drop_waiting(holder.member_id, fenced)
        if known is not None and state.phase is Phase.STABLE:
            group = state.stored
            leads = group.leader == member_id
            # Nobody else would notice what its topics have got meanwhile.
            outgrown = leads and is_outgrown(group, context.partition_count)
            if not outgrown and asks_for_the_same(group, renamed, known):
                # Nothing to assign anew, and a leader is told so (KIP-814).
                return replace(joined(group, member_id), keep_assignment=True)
        return self._barrier.enter(request, member_id)

    # --- sync -------------------------------------------------------------------------------------

    def sync(self, request: SyncRequest) -> Synced | Deferred[Synced]:
        """Hand in and get assignments. Raises UnknownMember, FencedInstance, IllegalGeneration,
        InconsistentGroupProtocol, RebalanceInProgress, MessageTooLarge, and what writing raises."""
        key, state = self.key, self._state
        group = self._check_member(request.generation, request.member_id, request.instance_id)
        if request.protocol_type not in ("", group.protocol_type):
            raise InconsistentGroupProtocol(f"group {key}: type {group.protocol_type} is in use")
        if request.protocol not in ("", group.protocol):
            raise InconsistentGroupProtocol(f"group {key}: {group.protocol} is in use")
        round_ = state.round
        if state.phase is Phase.PREPARING:
            raise RebalanceInProgress(f"group {key}: the members join again")
        state.heard(request.member_id)
        if round_ is None:
            return _synced(state.roster, request.member_id)
        if request.member_id == group.leader:
            return self._settle(round_, request, group)
        return self._await_leader(round_, request.member_id)

    def _settle(
        self, round_: Round, request: SyncRequest, group: Group
    ) -> Synced | Deferred[Synced]:
        """The leader has assigned: store it, and tell all, which takes several steps in a large
        group."""
        work = assigning(self._context, self.key, group, dict(request.assignments))
        settling = AssignmentToStore(group, work)
        assigned = settling.go_on()
        if assigned is not None:
            self._store(round_, assigned)
            return _synced(self._state.roster, request.member_id)
        answer = self._await_leader(round_, request.member_id)
        round_.settling = settling
        self._wake()
        return answer

    def _go_on_settling(self, round_: Round) -> bool:
        """Whether there is nothing left to do of it."""
        settling = round_.settling
        if settling is None:
            return True
        try:
            if self._state.stored is not settling.group:
                raise RebalanceInProgress(f"group {self.key}: its members changed meanwhile")
            assigned = settling.go_on()
            if assigned is None:
                return False
            self._store(round_, assigned)
        except PacelineError as error:
            round_.settling = None
            answer = round_.syncing.pop(settling.group.leader, None)
            if answer is not None:
                answer.deliver(error)
        return True

    def _store(self, round_: Round, assigned: Assigned) -> None:
        state = self._state
        state.write(assigned.group, assigned.ready)
        state.end()
        state.heard(*round_.syncing)
        self._answers.give(round_.syncing.items(), partial(_synced, state.roster))

    def _await_leader(self, round_: Round, member_id: str) -> Deferred[Synced]:
        again = RebalanceInProgress(f"{member_id} asked once more")
        self._state.drop_waiting(member_id, again)
        answer: Deferred[Synced] = Deferred()
        round_.syncing[member_id] = answer
        return answer

    # --- heartbeat, commit ------------------------------------------------------------------------

    def heartbeat(self, generation: int, member_id: str, instance_id: str | None) -> None:
        """Keep the session. Raises UnknownMember, FencedInstance, IllegalGeneration,
        RebalanceInProgress."""
        self._check_member(generation, member_id, instance_id)
        self._state.heard(member_id)
        if self._state.phase is Phase.PREPARING:
            raise RebalanceInProgress(f"group {self.key}: the members join again")

    def check_commit(
        self, generation: int, member_id: str, instance_id: str | None, topics: Iterable[str]
    ) -> None:
        """Whether a member, or with generation -1 nobody, may commit offsets of ``topics``; keeps
        the session. Raises as :meth:`heartbeat`, and GroupFull. A member that was assigned a topic
        which is another one by now has to join again: what it reached is of the old one."""
        key, state = self.key, self._state
        if generation < 0 and not member_id and instance_id is None:
            if self.member_count:
                raise UnknownMember(f"group {key} has members; only they commit")
            self._context.check_new_group(key)
            return
        if self._context.group(key) is None:
            raise IllegalGeneration(f"group {key} does not exist")
        group = self._check_member(generation, member_id, instance_id)
        state.heard(member_id)
        if state.phase is Phase.COMPLETING:
            raise RebalanceInProgress(f"group {key}: the leader is assigning")
        other = made_anew(group, topics, self._context.topics)
        if other is not None:
            if state.phase is Phase.STABLE:
                self._barrier.prepare()
            raise RebalanceInProgress(f"group {key}: {other} is another topic by now: join again")

    def _check_member(self, generation: int, member_id: str, instance_id: str | None) -> Group:
        key, state = self.key, self._state
        if instance_id is not None:
            holder = state.holder(instance_id)
            if holder is None:
                raise UnknownMember(f"group {key}: nobody holds {instance_id}")
            if holder.member_id != member_id:
                raise FencedInstance(f"{instance_id} is {holder.member_id} now")
        if member_id not in state.roster.stored:
            raise UnknownMember(f"group {key} has no member {member_id}")
        group = state.stored
        if group.generation != generation:
            raise IllegalGeneration(
                f"group {key} is in generation {group.generation}, not {generation}"
            )
        return group

    # --- leave ------------------------------------------------------------------------------------

    def leave(self, members: Iterable[tuple[str, str | None]]) -> tuple[ErrorCode, ...]:
        """Members by id, or with an empty one by instance id, are no members any more; one code
        for each. Raises what writing raises."""
        codes = []
        gone = []
        for member_id, instance_id in members:
            code, found = self._leaver(member_id, instance_id)
            codes.append(code)
            if found:
                gone.append(found)
        self._barrier.remove(gone, UnknownMember(f"group {self.key}: the member has left"))
        return tuple(codes)

    def _leaver(self, member_id: str, instance_id: str | None) -> tuple[ErrorCode, str]:
        """A code, and the id of the member to remove, empty for none."""
        if instance_id is not None:
            holder = self._state.holder(instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID, ""
            if member_id not in ("", holder.member_id):
                return ErrorCode.FENCED_INSTANCE_ID, ""
            return ErrorCode.NONE, holder.member_id
        if self._state.take_back(member_id):
            self._wake()  # the round need not wait for it any more; the alarm looks
            return ErrorCode.NONE, ""
        if self._state.roster.find(member_id) is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, ""
        return ErrorCode.NONE, member_id

    # --- what nobody asks for ---------------------------------------------------------------------

    def resume(self) -> None:
        """This node leads now. Members have fresh sessions; what was not settled begins again."""
        if self._state.stored.phase is not Phase.STABLE:
            self._barrier.prepare()
        self._state.wake_at(self._state.next_alarm())
        self.topics_grew()

    def topics_grew(self) -> None:
        """Topics may have more partitions than the leader knows of, which does not watch them."""
        if not self._state.leader_watches:
            self._is_to_be_compared = True
            self._wake()

    def on_alarm(self) -> float:
        """Expire ids and sessions, end what has waited long enough; when to be called again."""
        now = self._context.now()
        if self._answers.go_on():
            return now
        if self._state.round is not None and not self._go_on_settling(self._state.round):
            return now
        if self._is_to_be_compared:
            self._compare()
        self._state.void_ids(now)
        over = UnknownMember(f"group {self.key}: the session is over")
        self._barrier.remove(self._late(now), over)
        round_ = self._state.round
        if round_ is not None and round_.phase is Phase.PREPARING:
            if round_.ends_at() <= now:
                self._barrier.complete(round_)
            else:
                self._barrier.complete_if_all_joined(round_)
        if not self.member_count:
            self._state.end()  # nobody joined after all
        return self._state.next_alarm()

    def _compare(self) -> None:
        """Have the members join again if there is more to read than their leader knows of. It is
        told then that it leads, and watches by itself."""
        self._is_to_be_compared = False
        if self._state.phase is not Phase.STABLE or self._state.leader_watches:
            return
        if is_outgrown(self._state.stored, self._context.partition_count):
            self._barrier.prepare()

    def _late(self, now: float) -> list[str]:
        """Members whose session is over, or who did not sync in time."""
        state, round_ = self._state, self._state.round
        overdue = round_ is not None and round_.phase is Phase.COMPLETING and round_.deadline <= now
        return [
            member.member_id
            for member in state.stored.members
            if not state.waits(member.member_id) and (overdue or state.session_end(member) <= now)
        ]

    def resign(self, error: PacelineError) -> None:
        """Tell everyone who waits; nothing else is done with this object any more."""
        round_ = self._state.round
        if round_ is not None:
            self._state.end()
            for joining in round_.joined.values():
                joining.answer.deliver(error)
            for syncing in round_.syncing.values():
                syncing.deliver(error)
        self._answers.refuse(error)


def _synced(roster: Roster, member_id: str) -> Synced:
    assignment = roster.stored[member_id].assignment
    return Synced(assignment, roster.group.protocol_type, roster.group.protocol)


def _renamed(group: Group, old: Member, new: Member) -> Group:
    members = tuple([new if each is old else each for each in group.members])
    leader = new.member_id if group.leader == old.member_id else group.leader
    return replace(group, members=members, leader=leader)
