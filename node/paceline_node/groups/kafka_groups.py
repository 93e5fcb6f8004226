"""Groups of the Kafka protocol and of the native client (DESIGN 5).

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
from functools import partial
from itertools import chain

from paceline.errors import (
    ErrorCode,
    FencedInstance,
    IllegalGeneration,
    InconsistentGroupProtocol,
    MessageTooLarge,
    PacelineError,
    RebalanceInProgress,
    UnknownMember,
)
from paceline.wire.consumer_protocol import PROTOCOL_TYPE, Subscription
from paceline_node.groups.context import GroupContext
from paceline_node.groups.growth import is_outgrown
from paceline_node.groups.kafka_answers import Answers
from paceline_node.groups.kafka_barrier import Barrier
from paceline_node.groups.kafka_joins import KafkaJoins
from paceline_node.groups.kafka_roster import Roster
from paceline_node.groups.kafka_rounds import Joined, JoinRequest, Round, Synced, SyncRequest
from paceline_node.groups.kafka_settling import Assigned, Settling, assigning
from paceline_node.groups.kafka_state import KafkaState
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.read_topics import made_anew
from paceline_node.groups.records import Group, Member, Phase
from paceline_node.state_machines.machine import Deferred
from paceline_node.stretches import Work

_STATES = {
    Phase.EMPTY: "Empty",
    Phase.PREPARING: "PreparingRebalance",
    Phase.COMPLETING: "CompletingRebalance",
    Phase.STABLE: "Stable",
}


class KafkaGroups:
    """The requests join, sync, heartbeat, leave, and who may commit."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._state = KafkaState(context)
        self._answers = Answers(context)
        self._barrier = Barrier(context, self._state, self._answers)
        self._joins = KafkaJoins(context, self._state, self._barrier)
        self._to_compare: set[GroupKey] = set()
        """Groups whose leaders may not know of partitions that their topics got."""
        self._subscribed: tuple[Group | None, frozenset[str]] = (None, frozenset())
        """What the members of the group that was asked for last read."""

    @property
    def rebalances(self) -> int:
        """Rounds begun."""
        return self._barrier.rebalances

    def join(self, request: JoinRequest) -> Joined | Deferred[Joined]:
        """See :meth:`KafkaJoins.join`."""
        return self._joins.join(request)

    # --- sync, heartbeat, commit ------------------------------------------------------------------

    def sync(self, request: SyncRequest) -> Synced | Deferred[Synced]:
        """Hand in and get assignments. Raises UnknownMember, FencedInstance, IllegalGeneration,
        InconsistentGroupProtocol, RebalanceInProgress, MessageTooLarge, and what writing raises."""
        key = request.key
        group = self._check_member(key, request.generation, request.member_id, request.instance_id)
        if request.protocol_type not in ("", group.protocol_type):
            raise InconsistentGroupProtocol(f"group {key}: type {group.protocol_type} is in use")
        if request.protocol not in ("", group.protocol):
            raise InconsistentGroupProtocol(f"group {key}: {group.protocol} is in use")
        phase = self._state.phase(key)
        if phase is Phase.PREPARING:
            raise RebalanceInProgress(f"group {key}: the members join again")
        self._context.heard(key, request.member_id)
        if phase is Phase.STABLE:
            return self._synced(key, request.member_id)
        if request.member_id == group.leader:
            return self._settle(request, group)
        return self._await_leader(key, request.member_id)

    def _settle(self, request: SyncRequest, group: Group) -> Synced | Deferred[Synced]:
        """The leader has assigned: store it, and tell all, which takes several steps in a large
        group."""
        key = request.key
        settling = Settling(group, self._assigning(request, group))
        assigned = settling.go_on()
        if assigned is not None:
            self._store(key, assigned)
            return self._synced(key, request.member_id)
        answer = self._await_leader(key, request.member_id)
        self._state.rounds[key].settling = settling
        self._context.alarms.ask(key, self._context.now())
        return answer

    def _go_on_settling(self, key: GroupKey, round_: Round) -> bool:
        """Whether there is nothing left to do of it."""
        settling = round_.settling
        if settling is None:
            return True
        try:
            if self._state.group(key) is not settling.group:
                raise RebalanceInProgress(f"group {key}: its members changed meanwhile")
            assigned = settling.go_on()
            if assigned is None:
                return False
            self._store(key, assigned)
        except PacelineError as error:
            round_.settling = None
            answer = round_.syncing.pop(settling.group.leader, None)
            if answer is not None:
                answer.deliver(error)
        return True

    def _store(self, key: GroupKey, assigned: Assigned) -> None:
        self._context.write_group(key, assigned.group, assigned.ready)
        round_ = self._state.rounds.pop(key)
        self._context.heard(key, *round_.syncing)
        roster = self._state.roster(key)
        self._answers.give(key, round_.syncing.items(), partial(_synced, roster))

    def _synced(self, key: GroupKey, member_id: str) -> Synced:
        return _synced(self._state.roster(key), member_id)

    def _assigning(self, request: SyncRequest, group: Group) -> Work[Assigned]:
        context = self._context
        limit = context.limits.group_bytes_max
        assignments = dict(request.assignments)
        total = sum(map(len, assignments.values()))
        if total > limit:
            raise MessageTooLarge(
                f"group {request.key}: {total} bytes of assignments, at most {limit} "
                "(groups.group_bytes_max)"
            )
        key = request.key
        seats = context.store.seats.get(key, {})
        stamped = partial(context.stamped, key)
        return assigning(key, group, seats, assignments, context.topics, stamped)

    def _await_leader(self, key: GroupKey, member_id: str) -> Deferred[Synced]:
        again = RebalanceInProgress(f"{member_id} asked once more")
        self._state.drop_waiting(key, member_id, again)
        answer: Deferred[Synced] = Deferred()
        self._state.rounds[key].syncing[member_id] = answer
        return answer

    def heartbeat(
        self, key: GroupKey, generation: int, member_id: str, instance_id: str | None
    ) -> None:
        """Keep the session. Raises UnknownMember, FencedInstance, IllegalGeneration,
        RebalanceInProgress."""
        self._check_member(key, generation, member_id, instance_id)
        self._context.heard(key, member_id)
        if self._state.phase(key) is Phase.PREPARING:
            raise RebalanceInProgress(f"group {key}: the members join again")

    def check_commit(
        self,
        key: GroupKey,
        generation: int,
        member_id: str,
        instance_id: str | None,
        topics: Iterable[str] = (),
    ) -> None:
        """Whether a member, or with generation -1 nobody, may commit offsets of ``topics``; keeps
        the session. Raises as :meth:`heartbeat`, and GroupFull. A member that was assigned a topic
        which is another one by now has to join again: what it reached is of the old one."""
        if generation < 0 and not member_id and instance_id is None:
            if len(self._state.roster(key)):
                raise UnknownMember(f"group {key} has members; only they commit")
            self._context.check_new_group(key)
            return
        if self._context.group(key) is None:
            raise IllegalGeneration(f"group {key} does not exist")
        group = self._check_member(key, generation, member_id, instance_id)
        self._context.heard(key, member_id)
        phase = self._state.phase(key)
        if phase is Phase.COMPLETING:
            raise RebalanceInProgress(f"group {key}: the leader is assigning")
        other = made_anew(group, topics, self._context.topics)
        if other is not None:
            if phase is Phase.STABLE:
                self._barrier.prepare(key, first=False)
            raise RebalanceInProgress(f"group {key}: {other} is another topic by now: join again")

    def check_new(self, key: GroupKey) -> None:
        """Raise InvalidGroup or GroupFull unless there is, or may be, such a group."""
        self._context.check_new_group(key)

    def _check_member(
        self, key: GroupKey, generation: int, member_id: str, instance_id: str | None
    ) -> Group:
        group = self._state.group(key)
        if instance_id is not None:
            holder = self._state.holder(key, instance_id)
            if holder is None:
                raise UnknownMember(f"group {key}: nobody holds {instance_id}")
            if holder.member_id != member_id:
                raise FencedInstance(f"{instance_id} is {holder.member_id} now")
        if member_id not in self._state.roster(key).stored:
            raise UnknownMember(f"group {key} has no member {member_id}")
        if group.generation != generation:
            raise IllegalGeneration(
                f"group {key} is in generation {group.generation}, not {generation}"
            )
        return group

    # --- leaving ----------------------------------------------------------------------------------

    def leave(
        self, key: GroupKey, members: Iterable[tuple[str, str | None]]
    ) -> tuple[ErrorCode, ...]:
        """Members by id, or with an empty one by instance id, are no members any more; one code
        for each. Raises what writing raises."""
        codes = []
        gone = []
        for member_id, instance_id in members:
            code, found = self._leaver(key, member_id, instance_id)
            codes.append(code)
            if found:
                gone.append(found)
        self._barrier.remove(key, gone, UnknownMember(f"group {key}: the member has left"))
        return tuple(codes)

    def _leaver(
        self, key: GroupKey, member_id: str, instance_id: str | None
    ) -> tuple[ErrorCode, str]:
        """A code, and the id of the member to remove, empty for none."""
        if instance_id is not None:
            holder = self._state.holder(key, instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID, ""
            if member_id not in ("", holder.member_id):
                return ErrorCode.FENCED_INSTANCE_ID, ""
            return ErrorCode.NONE, holder.member_id
        if self._state.handed_out.get(key, {}).pop(member_id, None) is not None:
            # The round need not wait for it any more; the alarm looks.
            self._context.alarms.ask(key, self._context.now())
            return ErrorCode.NONE, ""
        if self._state.find(key, member_id) is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, ""
        return ErrorCode.NONE, member_id

    # --- the engine's side ------------------------------------------------------------------------

    def resume(self, key: GroupKey, group: Group) -> None:
        """Members have fresh sessions; what was not settled begins again."""
        if group.phase is not Phase.STABLE:
            self._barrier.prepare(key, first=False)
        self._context.alarms.ask(key, self._state.next_alarm(key))
        self._compare_soon(key)

    def topics_grew(self) -> None:
        """Topics got more partitions."""
        if self._context.leads:
            for key in self._context.store.groups:
                if key.family is Family.KAFKA:
                    self._compare_soon(key)

    def _compare_soon(self, key: GroupKey) -> None:
        if not self._state.leader_watches(key):
            self._to_compare.add(key)
            self._context.alarms.ask(key, self._context.now())

    def _compare(self, key: GroupKey) -> None:
        """Have the members join again if there is more to read than their leader knows of. It is
        told then that it leads, and watches by itself."""
        self._to_compare.discard(key)
        if self._state.phase(key) is not Phase.STABLE or self._state.leader_watches(key):
            return
        if is_outgrown(self._state.group(key), self._context.partition_count):
            self._barrier.prepare(key, first=False)

    def on_alarm(self, key: GroupKey) -> float:
        """Expire ids and sessions, end what has waited long enough."""
        now = self._context.now()
        if self._answers.go_on(key):
            return now
        round_ = self._state.rounds.get(key)
        if round_ is not None and not self._go_on_settling(key, round_):
            return now
        if key in self._to_compare:
            self._compare(key)
        self._state.void_ids(key, now)
        over = UnknownMember(f"group {key}: the session is over")
        self._barrier.remove(key, self._late(key, now), over)
        round_ = self._state.rounds.get(key)
        if round_ is not None and round_.phase is Phase.PREPARING:
            if round_.ends_at() <= now:
                self._barrier.complete(key)
            else:
                self._barrier.complete_if_all_joined(key)
        self._drop_abandoned(key)
        return self._state.next_alarm(key)

    def _late(self, key: GroupKey, now: float) -> list[str]:
        """Members whose session is over, or who did not sync in time."""
        round_ = self._state.rounds.get(key)
        overdue = round_ is not None and round_.phase is Phase.COMPLETING and round_.deadline <= now
        return [
            member.member_id
            for member in self._state.group(key).members
            if not self._state.waits(key, member.member_id)
            and (overdue or self._state.session_end(key, member) <= now)
        ]

    def _drop_abandoned(self, key: GroupKey) -> None:
        """Forget the round of a group that has nobody and that nobody joined after all."""
        round_ = self._state.rounds.get(key)
        if round_ is not None and not len(self._state.roster(key)):
            del self._state.rounds[key]

    def state(self, key: GroupKey) -> str:
        return _STATES[self._state.phase(key)]

    def member_count(self, key: GroupKey) -> int:
        return len(self._state.roster(key))

    def reads(self, key: GroupKey, topic: str) -> bool:
        """By the subscriptions of protocol type ``consumer``; any topic of other types."""
        group = self._state.group(key)
        if group.protocol_type != PROTOCOL_TYPE:
            return bool(group.members)
        if self._subscribed[0] is not group:
            topics = (_subscribed(group, each) for each in group.members)
            self._subscribed = (group, frozenset(chain.from_iterable(topics)))
        return topic in self._subscribed[1]

    def resign(self, error: PacelineError) -> None:
        self._state.clear(error)
        self._answers.clear(error)
        self._to_compare.clear()


def _synced(roster: Roster, member_id: str) -> Synced:
    assignment = roster.stored[member_id].assignment
    return Synced(assignment, roster.group.protocol_type, roster.group.protocol)


def _subscribed(group: Group, member: Member) -> tuple[str, ...]:
    try:
        return Subscription.from_bytes(member.metadata(group.protocol)).topics
    except PacelineError:
        return ()
