"""The join barrier: everybody joins again, then the generation is raised, stored and told."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from functools import partial

from paceline.errors import PacelineError, RebalanceInProgress
from paceline_node.groups.context import GroupContext
from paceline_node.groups.kafka_answers import Answers
from paceline_node.groups.kafka_rounds import (
    Joined,
    JoinRequest,
    Round,
    Waiting,
    choose_protocol,
)
from paceline_node.groups.kafka_state import KafkaState
from paceline_node.groups.member_records import is_same, make_ready
from paceline_node.groups.records import Group, Member, Phase, Seat
from paceline_node.state_machines.machine import Deferred


class Barrier:
    """Begins, fills and ends the rounds of a group."""

    __slots__ = ("_answers", "_context", "_state")

    def __init__(self, context: GroupContext, state: KafkaState, answers: Answers) -> None:
        self._context = context
        self._state = state
        self._answers = answers

    def prepare(self, rebalance_timeout_ms: int = 0, *, first: bool = False) -> Round:
        """Begin a round, ``first`` after the group was empty. ``rebalance_timeout_ms`` is that of a
        newcomer."""
        context, state = self._context, self._state
        before = state.round
        if before is not None:
            again = RebalanceInProgress(f"group {state.key}: the members join again")
            self._answers.give(before.syncing.items(), lambda _: again)
        now = context.now()
        round_ = Round(Phase.PREPARING, now + self._slowest_s(rebalance_timeout_ms))
        seats = context.store.seats.get(state.key, {})
        round_.next_place = 1 + max((each.place for each in seats.values()), default=-1)
        if first:
            round_.window_end = now + context.limits.initial_delay_s
        state.begin(round_)
        state.wake_at(round_.ends_at())
        return round_

    def _slowest_s(self, at_least_ms: int = 0) -> float:
        times = [each.rebalance_timeout_ms for each in self._state.roster.members]
        return max([at_least_ms, *times]) / 1000

    def enter(self, request: JoinRequest, member_id: str) -> Deferred[Joined]:
        """Take a member into the round, which begins with it where there is none to join; the last
        one to come ends it."""
        context, state = self._context, self._state
        round_ = state.round
        if round_ is None or round_.phase is not Phase.PREPARING:
            first = not state.stored.members
            round_ = self.prepare(request.rebalance_timeout_ms, first=first)
        state.take_back(member_id)
        again = member_id in round_.joined
        state.drop_waiting(member_id, RebalanceInProgress(f"{member_id} joined once more"))
        answer: Deferred[Joined] = Deferred()
        member = request.as_member(member_id, context.wall_ms())
        state.join(round_, Waiting(member, answer))
        self._make_ready(round_, member)
        round_.protocol_type = request.protocol_type
        if round_.is_first and not again:
            round_.window_end = context.now() + context.limits.initial_delay_s
        state.wake_at(round_.ends_at())
        self.complete_if_all_joined(round_)
        return answer

    def _make_ready(self, round_: Round, member: Member) -> None:
        """Make the member's record now: at the end of a large round there is no time for all."""
        key = self._state.key
        seat = self._context.store.seats.get(key, {}).get(member.member_id)
        if seat is None:
            place, round_.next_place = round_.next_place, round_.next_place + 1
        elif is_same(seat.member, member):
            return
        else:
            place = seat.place
        round_.ready[member.member_id] = make_ready(key, Seat(place, member))

    def complete_if_all_joined(self, round_: Round) -> None:
        """End the joining if nobody is missing; new members who were given an id are missing."""
        if round_.is_first or self._state.handed_out:
            return
        if not self._state.roster.missing:
            self.complete(round_)

    def complete(self, round_: Round) -> None:
        """The joining is over: raise the generation with those who came, and with static members
        whose sessions go on. If it cannot be stored, those who wait are told and the round goes
        on."""
        state = self._state
        group = state.stored
        static = [each for each in group.members if each.instance_id is not None]
        kept = [each for each in static if each.member_id not in round_.joined]
        if kept and not round_.joined:
            self._prolong(round_)
            return
        members = _in_order(group, round_, kept)
        try:
            after = _next_generation(group, members, round_)
            state.write(after, round_.ready)
        except PacelineError as error:
            self._prolong(round_)
            self._give_back(round_, error)
            return
        if members:
            self._begin_syncing(round_)
        else:
            state.end()
            state.told = None

    def _prolong(self, round_: Round) -> None:
        round_.window_end = math.inf
        round_.deadline = self._context.now() + max(1.0, self._slowest_s())
        self._state.wake_at(round_.deadline)

    def _give_back(self, round_: Round, error: PacelineError) -> None:
        """Tell those who wait; new members may come back with their ids."""
        stored = self._state.roster.stored
        for member_id, waiting in _taken(round_).items():
            if member_id not in stored:
                self._state.hand_out(member_id, waiting.member.session_timeout_ms)
            waiting.answer.deliver(error)

    def _begin_syncing(self, round_: Round) -> None:
        context, state = self._context, self._state
        group = state.stored
        joining = _taken(round_)
        round_.ready = {}
        state.told = group.leader
        round_.phase = Phase.COMPLETING
        round_.window_end = math.inf
        round_.deadline = context.now() + self._slowest_s()
        state.heard(*joining)
        state.wake_at(state.next_alarm())
        waiting = [(member_id, each.answer) for member_id, each in joining.items()]
        self._answers.give(waiting, partial(joined, group))

    def remove(self, gone: Collection[str], error: PacelineError) -> None:
        """Take members out of the group, telling those of them who wait ``error``, and have the
        others join again. Raises what writing raises, with nothing changed."""
        if not gone:
            return
        state = self._state
        gone = dict.fromkeys(gone)
        group = state.stored
        left = tuple(each for each in group.members if each.member_id not in gone)
        round_ = state.round
        joining = [] if round_ is None else [each for each in round_.joined if each not in gone]
        if len(left) != len(group.members):
            state.write(_without(group, left, is_empty=not (left or joining)))
        for member_id in gone:
            self._context.sessions.forget(state.key, member_id)
            state.drop_waiting(member_id, error)
        if not left and not joining:
            state.end()
            state.told = None
        elif round_ is None or round_.phase is not Phase.PREPARING:
            self.prepare()
        else:
            self.complete_if_all_joined(round_)


def joined(group: Group, member_id: str) -> Joined:
    """What a member is told when it has joined."""
    members = group.members if member_id == group.leader else ()
    return Joined(
        member_id, group.generation, group.protocol_type, group.protocol, group.leader, members
    )


def _taken(round_: Round) -> dict[str, Waiting]:
    waiting, round_.joined = round_.joined, {}
    return waiting


def _in_order(group: Group, round_: Round, kept: list[Member]) -> tuple[Member, ...]:
    """Old members in their order, then new ones as they came; nothing is assigned."""
    order = {each.member_id: at for at, each in enumerate(group.members)}
    members = kept + [waiting.member for waiting in round_.joined.values()]
    members.sort(key=lambda each: order.get(each.member_id, len(order)))
    return tuple([replace(each, assignment=b"") if each.assignment else each for each in members])


def _next_generation(group: Group, members: tuple[Member, ...], round_: Round) -> Group:
    after = replace(group, generation=group.generation + 1, members=members, read=())
    if not members:
        return replace(after, phase=Phase.EMPTY, leader="", protocol="")
    return replace(
        after,
        phase=Phase.COMPLETING,
        leader=group.leader if group.leader in round_.joined else next(iter(round_.joined)),
        protocol=choose_protocol(members),
        protocol_type=round_.protocol_type,
    )


def _without(group: Group, left: tuple[Member, ...], *, is_empty: bool) -> Group:
    if not is_empty:
        return replace(group, members=left, phase=Phase.PREPARING)
    generation = group.generation + 1
    return replace(
        group, members=(), phase=Phase.EMPTY, generation=generation, leader="", protocol=""
    )
