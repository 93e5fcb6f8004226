"""Hypothesis drives three to five cores in orders that timed simulation rarely gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from paceline.errors import InvalidRequest, NotController
from paceline_cluster.sim.raft.checks import Checker
from paceline_cluster.sim.raft.durable import member
from paceline_node.controller.raft import Raft
from paceline_node.controller.raft_leader import Leader
from paceline_node.controller.raft_log import RaftLog
from paceline_node.controller.raft_membership import with_learner, with_voter, without
from paceline_node.controller.raft_messages import Append, VoteKind, VoteRequest
from paceline_node.controller.raft_state import NodeState
from paceline_node.controller.raft_types import Config, Entry, Role
from tests.sim.raft.script import E, Script
from tests.unit.broken_rules import assert_found

numbers = st.integers(0, 4)
Patch = AbstractContextManager[object]


class QuorumMachine(RuleBasedStateMachine):
    """Every message, tick, write and crash is a step of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.counter = 0

    @initialize(voters=st.sampled_from([3, 3, 4, 5, 2, 1]), spare=st.booleans())
    def begin(self, voters: int, spare: bool) -> None:
        self.script = Script(voters)
        if spare and voters < 5:
            self.script.add_empty(voters)
        self.checker = Checker(self.script.bootstrap)
        self.seen = dict.fromkeys(self.script.nodes, 0)
        self.lives = dict.fromkeys(self.script.nodes, 1)
        self.script.hold = set(self.script.nodes)

    def pick(self, number: int) -> int:
        return sorted(self.script.nodes)[number % len(self.script.nodes)]

    @rule(position=st.integers(0, 1000))
    def deliver(self, position: int) -> None:
        if self.script.wire:
            index = position % len(self.script.wire)
            self.script.hand_over(self.script.wire.pop(index))

    @rule(position=st.integers(0, 1000))
    def duplicate(self, position: int) -> None:
        if self.script.wire:
            self.script.hand_over(self.script.wire[position % len(self.script.wire)])

    @rule(position=st.integers(0, 1000))
    def drop(self, position: int) -> None:
        if self.script.wire:
            del self.script.wire[position % len(self.script.wire)]

    @rule(number=numbers, count=st.sampled_from([1, E, 2 * E]))
    def tick(self, number: int, count: int) -> None:
        number = self.pick(number)
        if number not in self.script.down:
            self.script.tick(number, count)

    @rule(number=numbers, count=st.integers(1, 3))
    def persist(self, number: int, count: int) -> None:
        number = self.pick(number)
        if number not in self.script.down:
            self.script.persist(number, count)

    @rule()
    def calm(self) -> None:
        """Everything that is under way arrives, and is stored."""
        for _ in range(6):
            for number in sorted(self.script.nodes):
                if number not in self.script.down:
                    self.script.persist(number)
            for message in self.script.wire[:]:
                self.script.wire.remove(message)
                self.script.hand_over(message)

    @rule()
    def talk(self) -> None:
        """Everything that is under way arrives, and nothing is stored."""
        for _ in range(3):
            for message in self.script.wire[:]:
                self.script.wire.remove(message)
                self.script.hand_over(message)

    @rule(number=numbers, values=st.integers(0, 2), stores=st.integers(0, 4))
    def lead(self, number: int, values: int, stores: int) -> None:
        """A quiet moment: one member is elected, and writes. Perhaps no disk keeps up with that."""
        number = self.pick(number)
        hear = self.calm if stores else self.talk
        self.campaign(number=number, kind=VoteKind.FORCED)
        hear()
        if self.script[number].role is Role.LEADER and values:
            self.propose(count=values)
            hear()

    @rule(number=numbers)
    def cut_off(self, number: int) -> None:
        self.script.cut(self.pick(number))

    @rule()
    def heal(self) -> None:
        self.script.heal()

    @rule(number=numbers, seed=st.integers(0, 99))
    def crash(self, number: int, seed: int) -> None:
        number = self.pick(number)
        if number not in self.script.down:
            node = self.script[number]
            node.durable.crash(node.pending, random.Random(seed))
            self.script.crash(number, lose_wire=False)

    @rule(number=numbers)
    def restart(self, number: int) -> None:
        number = self.pick(number)
        if number in self.script.down:
            self.script.restart(number)

    @rule(number=numbers, kind=st.sampled_from([VoteKind.PRE, VoteKind.FORCED]))
    def campaign(self, number: int, kind: VoteKind) -> None:
        number = self.pick(number)
        if number not in self.script.down and self.script[number].core.state.may_campaign():
            self.script.do(number, lambda core: core.campaign(kind))

    @rule(number=numbers, other=numbers)
    def refuse(self, number: int, other: int) -> None:
        number, other = self.pick(number), self.pick(other)
        if number not in self.script.down:
            self.script.do(number, lambda core: core.peer_refused(self.script.id(other).node))

    def leaders(self) -> list[int]:
        return [
            number
            for number, node in self.script.nodes.items()
            if node.role is Role.LEADER and number not in self.script.down
        ]

    @precondition(lambda self: bool(self.leaders()))
    @rule(count=st.integers(1, 3))
    def propose(self, count: int) -> None:
        for number in self.leaders():
            for _ in range(count):
                self.counter += 1
                try:
                    self.script.propose(number, b"%d" % self.counter)
                except NotController:
                    break

    @precondition(lambda self: bool(self.leaders()))
    @rule(number=numbers, kind=st.sampled_from(["learn", "vote", "leave"]))
    def change(self, number: int, kind: str) -> None:
        number = self.pick(number)
        for leader in self.leaders():
            core = self.script[leader].core
            try:
                core.propose_config(self.planned(core.config, number, kind))
            except (InvalidRequest, NotController):
                continue
            self.script.settle(leader)

    def planned(self, config: Config, number: int, kind: str) -> Config:
        node = self.script.id(number).node
        if kind == "learn":
            return with_learner(config, member(number))
        return with_voter(config, node) if kind == "vote" else without(config, node)

    @precondition(lambda self: bool(self.leaders()))
    @rule(number=numbers)
    def transfer(self, number: int) -> None:
        for leader in self.leaders():
            target = self.script.id(self.pick(number))
            try:
                self.script.do(leader, lambda core, target=target: core.transfer(target))
            except InvalidRequest:
                continue

    @rule(number=numbers)
    def compact(self, number: int) -> None:
        number = self.pick(number)
        node = self.script[number]
        if number not in self.script.down and node.commit <= node.durable.last_index:
            self.script.compact(number)

    @invariant()
    def safe(self) -> None:
        disks = {node.core.state.me: node.durable for node in self.script.nodes.values()}
        for number, node in self.script.nodes.items():
            if self.lives[number] != node.lives:
                self.lives[number] = node.lives
                self.seen[number] = 0
            if number in self.script.down:
                continue
            self.checker.on_written(node.core, self.log_of(number))
            new = node.applied[self.seen[number] :]
            self.seen[number] = len(node.applied)
            self.checker.on_committed(node, new, disks)
            if node.role is Role.LEADER:
                self.checker.on_leader(node.core)

    def log_of(self, number: int) -> list[Entry]:
        log = self.script[number].core.log
        return log.slice(log.base_index + 1, log.last_index + 1)


QuorumMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestQuorum = QuorumMachine.TestCase


def two_votes_in_a_term() -> Patch:
    honest = Raft._on_vote_request

    def mutant(self: Raft, request: VoteRequest) -> None:
        self.state.vote = self.state.leader = None
        honest(self, request)

    return mock.patch.object(Raft, "_on_vote_request", mutant)


def conflicting_entries_are_kept() -> Patch:
    honest = Raft._on_append

    def mutant(self: Raft, message: Append) -> None:
        last = self.log.last_index
        new = tuple(entry for entry in message.entries if entry.index > last)
        honest(self, replace(message, entries=new))

    return mock.patch.object(Raft, "_on_append", mutant)


def unsynced_entries_count() -> Patch:
    honest = Leader.advance_commit

    def mutant(self: Leader) -> None:
        self._state.log.stable_index = self._state.log.last_index
        honest(self)

    return mock.patch.object(Leader, "advance_commit", mutant)


def shorter_logs_get_votes() -> Patch:
    return mock.patch.object(RaftLog, "is_up_to_date", return_value=True)


def answers_before_storing() -> Patch:
    return mock.patch.object(NodeState, "send_after_persist", NodeState.send)


@pytest.mark.parametrize(
    ("broken", "steps"),
    [
        (two_votes_in_a_term, 60),
        (conflicting_entries_are_kept, 60),
        # Sooner found in more lives than in longer ones.
        pytest.param(unsynced_entries_count, 30, marks=pytest.mark.slow),
        (shorter_logs_get_votes, 60),
        (answers_before_storing, 60),
    ],
)
def test_the_machine_finds_a_broken_rule(broken: Callable[[], Patch], steps: int) -> None:
    """Commitment by counting older terms, and changes of members before that, are found by scripts
    (tests/sim/raft/test_scenarios.py)."""
    assert_found(QuorumMachine, broken(), steps=steps)
