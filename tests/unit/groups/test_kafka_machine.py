"""Any mixture of clients, silences, failovers and failed writes: what must hold in every group."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from paceline.errors import (
    ErrorCode,
    FencedInstance,
    PacelineError,
    RebalanceInProgress,
    UnknownMember,
)
from paceline_node.groups import assignment_to_store, kafka_answers, kafka_barrier, kafka_group
from paceline_node.groups.committed_offsets import Commit, OffsetRule
from paceline_node.groups.kafka_barrier import Barrier
from paceline_node.groups.kafka_group import KafkaGroup
from paceline_node.groups.kafka_roster import Roster
from paceline_node.groups.kafka_rounds import Joined, JoinRequest, Round, Synced, SyncRequest
from paceline_node.groups.kafka_state import KafkaState
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.records import Group, Member, Protocol
from paceline_node.state_machines.machine import Deferred
from tests.unit.broken_rules import assert_found
from tests.unit.groups.desk import Desk

KEY = GroupKey(Family.KAFKA, "g")
CLIENTS = 4
PARTITIONS = 6
SESSION_S, REBALANCE_S = 10.0, 15.0
PAST = 12
"""As many of those that clients have been are remembered."""


class Who(NamedTuple):
    """Whom a request speaks for."""

    id: str
    generation: int
    instance: str | None


@dataclass
class Client:
    """What one client believes. ``open`` is a JOIN or SYNC that is not answered."""

    name: str
    instance: str | None
    id: str = ""
    generation: int = -1
    leader: str = ""
    members: tuple[str, ...] = ()
    owned: frozenset[int] = frozenset()
    open: Deferred | None = field(default=None)


class KafkaMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk()
        self.clients = [
            Client(f"c{number}", f"i{number}" if number == 0 else None) for number in range(CLIENTS)
        ]
        self.highest = 0
        self.owners: dict[tuple[int, int], str] = {}
        self.assigned: dict[int, dict[str, bytes]] = {}
        self.committed: dict[int, int] = {}
        self.past: list[Who] = []
        self.heard: dict[str, float] = {}
        self.roster: dict[str, str | None] = {}
        """The members that were there when last looked at, and their instances."""
        self.unsettled_since: float | None = None
        self.seen_at = self.desk.time
        """When last looked at: what is noticed now may have happened right behind that."""

    # --- what clients are told --------------------------------------------------------------------

    def settle(self, client: Client, answer: object) -> None:
        if isinstance(answer, Deferred):
            if answer.value is None:
                client.open = answer
                return
            answer = answer.value
        client.open = None
        if isinstance(answer, UnknownMember):
            client.id, client.generation, client.owned = "", -1, frozenset()
        elif isinstance(answer, Joined):
            self.joined(client, answer)
        elif isinstance(answer, Synced):
            self.synced(client, answer)

    def joined(self, client: Client, answer: Joined) -> None:
        client.id = answer.member_id
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            return
        assert answer.generation >= self.highest, "a generation went back"
        self.past = [*self.past, Who(client.id, answer.generation, client.instance)][-PAST:]
        if answer.generation > self.highest:
            self.check_nobody_was_forgotten()
        self.heard[client.id] = self.seen_at
        self.highest = answer.generation
        client.generation, client.leader = answer.generation, answer.leader
        client.members = tuple(each.member_id for each in answer.members)
        assert bool(client.members) == (client.leader == client.id)
        client.owned = frozenset()

    def check_nobody_was_forgotten(self) -> None:
        """A round ended: whoever is no member any more was silent, or too late to join or sync."""
        group = self.desk.engine.store.groups[KEY]
        instances = {each.instance_id for each in group.members} - {None}
        now = self.desk.time + 1e-6
        for member_id, instance in self.roster.items():
            if group.member(member_id) is not None or instance in instances:
                continue
            was_silent = now - self.heard.get(member_id, 0.0) >= SESSION_S
            since = self.unsettled_since
            assert was_silent or (since is not None and now - since >= REBALANCE_S), (
                f"{member_id} was not waited for"
            )

    def synced(self, client: Client, answer: Synced) -> None:
        self.heard[client.id] = self.seen_at
        client.owned = frozenset(answer.assignment)
        for partition in client.owned:
            owner = self.owners.setdefault((client.generation, partition), client.name)
            assert owner == client.name, "two owners in one generation"

    def attempt(self, client: Client, ask) -> None:
        try:
            answer = ask()
        except PacelineError as error:
            answer = error
        self.settle(client, answer)
        self.look()
        self.look_around()

    def look(self) -> None:
        """Take answers that have come meanwhile."""
        for client in self.clients:
            if client.open is not None and client.open.value is not None:
                self.settle(client, client.open)

    # --- what they do -----------------------------------------------------------------------------

    @rule(number=st.integers(0, CLIENTS - 1), metadata=st.sampled_from([b"", b"x"]))
    def join(self, number: int, metadata: bytes) -> None:
        client = self.clients[number]
        protocols = (Protocol("range", metadata),)
        made = JoinRequest(
            KEY, client.id, client.instance, "app", 10_000, 15_000, "consumer", protocols
        )
        self.attempt(client, lambda: self.desk.engine.kafka.join(made))

    @rule(number=st.integers(0, CLIENTS - 1))
    def sync(self, number: int) -> None:
        client = self.clients[number]
        assignments: tuple[tuple[str, bytes], ...] = ()
        if client.members and client.leader == client.id:
            count = len(client.members)
            assignments = tuple(
                (each, bytes(range(at, PARTITIONS, count)))
                for at, each in enumerate(client.members)
            )
        made = SyncRequest(KEY, client.generation, client.id, client.instance, "", "", assignments)
        self.attempt(client, lambda: self.desk.engine.kafka.sync(made))

    @rule(number=st.integers(0, CLIENTS - 1))
    def beat(self, number: int) -> None:
        client = self.clients[number]
        try:
            self.desk.engine.kafka.heartbeat(KEY, client.generation, client.id, client.instance)
            self.heard[client.id] = self.desk.time
        except RebalanceInProgress:
            self.heard[client.id] = self.desk.time
        except PacelineError as error:
            if client.open is None:
                self.settle(client, error)

    @rule(number=st.integers(0, CLIENTS - 1))
    def leave(self, number: int) -> None:
        client = self.clients[number]
        codes = self.desk.engine.kafka.leave(KEY, [(client.id, client.instance)])
        if codes == (ErrorCode.NONE,):
            gone = {client.id, *(at for at, i in self.roster.items() if i and i == client.instance)}
            self.roster = {at: i for at, i in self.roster.items() if at not in gone}
            self.look()
            client.id, client.generation, client.owned = "", -1, frozenset()

    @rule(number=st.integers(0, CLIENTS - 1), offset=st.integers(0, 99))
    def commit(self, number: int, offset: int) -> None:
        client = self.clients[number]
        engine = self.desk.engine
        try:
            engine.kafka.check_commit(KEY, client.generation, client.id, client.instance)
        except PacelineError:
            return
        group = engine.store.groups.get(KEY)
        if client.generation >= 0:
            assert group is not None
            assert group.generation == client.generation == self.highest
            assert group.member(client.id) is not None
        engine.offsets.commit(KEY, [Commit("t", number, offset)], OffsetRule.FREE)
        self.committed[number] = offset

    def is_current(self, who: Who) -> bool:
        group = self.desk.engine.store.groups.get(KEY)
        member = None if group is None else group.member(who.id)
        return (
            group is not None
            and member is not None
            and (group.generation, member.instance_id) == (who.generation, who.instance)
        )

    def succeeded(self, who: Who) -> bool:
        """Whether another one holds its instance id by now."""
        group = self.desk.engine.store.groups.get(KEY)
        if group is None or who.instance is None:
            return False
        return any(
            each.instance_id == who.instance and each.member_id != who.id for each in group.members
        )

    @rule(data=st.data(), what=st.sampled_from(["beat", "commit", "sync"]))
    def arrive_late(self, data: st.DataObject, what: str) -> None:
        """Something that a client sent long ago, for who it was then."""
        if not self.past:
            return
        who = data.draw(st.sampled_from(self.past))
        is_current, kafka = self.is_current(who), self.desk.engine.kafka
        if is_current and what == "sync":
            return  # a leader's would deal out nothing
        sync = SyncRequest(KEY, who.generation, who.id, who.instance, "", "", ())
        asked = {
            "beat": lambda: kafka.heartbeat(KEY, who.generation, who.id, who.instance),
            "commit": lambda: kafka.check_commit(KEY, who.generation, who.id, who.instance),
            "sync": lambda: kafka.sync(sync),
        }
        succeeded = self.succeeded(who)
        try:
            asked[what]()
        except PacelineError as error:
            refusal: PacelineError | None = error
        else:
            refusal = None
        if refusal is None or isinstance(refusal, RebalanceInProgress):
            # Also who is told to join again is taken for a member.
            assert is_current, f"{what} of {who}, who is that no more, was taken"
            self.heard[who.id] = self.desk.time
        else:
            assert not is_current, f"{what} of {who}: {refusal!r}"
            assert isinstance(refusal, FencedInstance) or not succeeded, f"{who}: {refusal!r}"

    @rule(numbers=st.sets(st.integers(0, CLIENTS - 1), min_size=1))
    def gather(self, numbers: set[int]) -> None:
        """These join and sync as they should, so that the group moves on."""
        for number in sorted(numbers):
            if self.clients[number].open is None:
                self.join(number, b"g")
        self.wait(0.31)
        leaders_last = sorted(
            numbers, key=lambda number: self.clients[number].leader == self.clients[number].id
        )
        for number in leaders_last:
            if self.clients[number].open is None and self.clients[number].generation >= 0:
                self.sync(number)
        self.look()

    # --- what happens to them ---------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.1, 0.31, 3.0, 9.0, 10.1, 16.0]))
    def wait(self, seconds: float) -> None:
        self.desk.advance(seconds)
        self.look()

    @rule()
    def fail_over(self) -> None:
        self.desk.fail_over()
        self.look()

    @rule(number=st.integers(0, CLIENTS - 1), seconds=st.sampled_from([0.31, 5.0]))
    def writes_fail_for_a_while(self, number: int, seconds: float) -> None:
        self.desk.refuses = True
        self.join(number, b"y")
        self.wait(seconds)
        self.desk.refuses = False

    @rule(number=st.integers(0, CLIENTS - 1))
    def restart(self, number: int) -> None:
        client = self.clients[number]
        client.id, client.generation, client.owned, client.open = "", -1, frozenset(), None

    # --- what must hold ---------------------------------------------------------------------------

    @invariant()
    def nothing_told_is_lost(self) -> None:
        group = self.desk.engine.store.groups.get(KEY)
        assert self.highest <= (0 if group is None else group.generation)
        stored = {at[1]: found.offset for at, found in self.desk.engine.offsets.fetch_all(KEY)}
        assert stored == self.committed

    @invariant()
    def look_around(self) -> None:
        """Note who is there, for the next round to wait for."""
        group = self.desk.engine.store.groups.get(KEY)
        members = () if group is None else group.members
        self.roster = {each.member_id: each.instance_id for each in members}
        self.seen_at = self.desk.time
        if self.desk.engine.kafka.state(KEY) not in ("PreparingRebalance", "CompletingRebalance"):
            self.unsettled_since = None
        elif self.unsettled_since is None:
            self.unsettled_since = self.desk.time

    @invariant()
    def the_state_is_the_fold(self) -> None:
        self.desk.check_fold()

    def teardown(self) -> None:
        """In the end everybody who goes on asking becomes a member."""
        clients = self.clients
        for _ in range(40):
            for client in clients:
                if client.open is None and not client.owned:
                    if client.generation < 0 or client.generation < self.highest:
                        self.join(clients.index(client), b"z")
                    else:
                        self.sync(clients.index(client))
            self.desk.advance(1.0)
            self.look()
            self.look_around()
            for client in clients:
                group = self.desk.engine.store.groups.get(KEY)
                if client.open is None and client.generation >= 0:
                    try:
                        self.desk.engine.kafka.heartbeat(
                            KEY, client.generation, client.id, client.instance
                        )
                    except PacelineError as error:
                        client.owned = frozenset()
                        client.generation = -1
                        if isinstance(error, UnknownMember):
                            client.id = ""
            members = self.desk.engine.store.groups[KEY].members
            # Members that clients were before they began anew have to go first.
            if all(client.owned for client in clients) and len(members) == CLIENTS:
                break
        group = self.desk.engine.store.groups[KEY]
        assert len(group.members) >= CLIENTS, self.desk.engine.kafka.state(KEY)
        owned = sorted(p for client in clients for p in client.owned)
        assert owned == list(range(PARTITIONS)), [(c.name, c.generation, c.owned) for c in clients]


TestKafkaMachine = KafkaMachine.TestCase
TestKafkaMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


class SmallSteps(KafkaMachine):
    """As if the group were large: one answer, and the assignment of one member, at each alarm."""

    def __init__(self) -> None:
        self.steps = ExitStack()
        self.steps.enter_context(mock.patch.object(kafka_answers, "AT_ONCE", 1))
        self.steps.enter_context(mock.patch.object(assignment_to_store, "UNITS_AT_ONCE", 1))
        super().__init__()

    def teardown(self) -> None:
        with self.steps:
            super().teardown()


TestSmallSteps = SmallSteps.TestCase
TestSmallSteps.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


Patch = AbstractContextManager[object]


def a_round_keeps_the_generation() -> Patch:
    honest = kafka_barrier._next_generation

    def mutant(group: Group, *arguments: Any) -> Group:
        return replace(honest(group, *arguments), generation=max(1, group.generation))

    return mock.patch.object(kafka_barrier, "_next_generation", mutant)


def a_member_is_told_what_another_reads() -> Patch:
    def mutant(roster: Roster, member_id: str) -> Synced:
        group = roster.group
        return Synced(group.members[0].assignment, group.protocol_type, group.protocol)

    return mock.patch.object(kafka_group, "_synced", mutant)


def commits_of_any_generation_count() -> Patch:
    return _in_any_generation("check_commit")


def any_generation_keeps_a_session() -> Patch:
    return _in_any_generation("heartbeat")


def _in_any_generation(name: str) -> Patch:
    honest = getattr(KafkaGroup, name)

    def mutant(self: KafkaGroup, generation: int, *arguments: Any) -> None:
        group = self._context.group(self.key)
        if group is not None and generation >= 0:
            generation = group.generation
        honest(self, generation, *arguments)

    return mock.patch.object(KafkaGroup, name, mutant)


def assignments_of_any_generation_count() -> Patch:
    honest = KafkaGroup.sync

    def mutant(self: KafkaGroup, request: SyncRequest) -> Any:
        group = self._context.group(request.key)
        generation = request.generation if group is None else group.generation
        return honest(self, replace(request, generation=generation))

    return mock.patch.object(KafkaGroup, "sync", mutant)


def who_was_removed_goes_on() -> Patch:
    honest = KafkaGroup._check_member

    def mutant(self: KafkaGroup, generation: int, member_id: str, instance_id: str | None) -> Group:
        group = self._state.stored
        if member_id and group.generation == generation and group.member(member_id) is None:
            return group
        return honest(self, generation, member_id, instance_id)

    return mock.patch.object(KafkaGroup, "_check_member", mutant)


def a_static_member_is_not_fenced_by_its_successor() -> Patch:
    honest = KafkaGroup._check_member

    def mutant(self: KafkaGroup, generation: int, member_id: str, instance_id: str | None) -> Group:
        return honest(self, generation, member_id, None)

    return mock.patch.object(KafkaGroup, "_check_member", mutant)


def a_round_waits_for_nobody() -> Patch:
    honest = Barrier.complete_if_all_joined

    def mutant(self: Barrier, round_: Round) -> None:
        if round_.joined and not round_.is_first:
            self.complete(round_)
        else:
            honest(self, round_)

    return mock.patch.object(Barrier, "complete_if_all_joined", mutant)


def sessions_end_early() -> Patch:
    honest = KafkaState.session_end

    def mutant(self: KafkaState, member: Member) -> float:
        return honest(self, member) - SESSION_S / 2

    return mock.patch.object(KafkaState, "session_end", mutant)


@pytest.mark.parametrize(
    "broken",
    [
        a_round_keeps_the_generation,
        a_member_is_told_what_another_reads,
        pytest.param(commits_of_any_generation_count, marks=pytest.mark.slow),
        any_generation_keeps_a_session,
        pytest.param(assignments_of_any_generation_count, marks=pytest.mark.slow),
        pytest.param(who_was_removed_goes_on, marks=pytest.mark.slow),
        pytest.param(a_static_member_is_not_fenced_by_its_successor, marks=pytest.mark.slow),
        a_round_waits_for_nobody,
        sessions_end_early,
    ],
)
def test_the_machine_finds_a_broken_rule(broken: Callable[[], Patch]) -> None:
    assert_found(KafkaMachine, broken())
