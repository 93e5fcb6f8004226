"""Any mixture of clients, silences, failovers and failed writes: what must hold in every group."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from paceline.errors import ErrorCode, PacelineError, RebalanceInProgress, UnknownMember
from paceline_node.coordination.machine import Deferred
from paceline_node.groups import kafka_barrier, kafka_groups
from paceline_node.groups.kafka_rounds import Joined, JoinRequest, Synced, SyncRequest
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.offsets import Commit, OffsetRule
from paceline_node.groups.records import Group, Protocol
from tests.unit.broken_rules import assert_found
from tests.unit.groups.desk import Desk

KEY = GroupKey(Family.KAFKA, "g")
CLIENTS = 4
PARTITIONS = 6


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
        self.highest = answer.generation
        client.generation, client.leader = answer.generation, answer.leader
        client.members = tuple(each.member_id for each in answer.members)
        assert bool(client.members) == (client.leader == client.id)
        client.owned = frozenset()

    def synced(self, client: Client, answer: Synced) -> None:
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
        except RebalanceInProgress:
            pass
        except PacelineError as error:
            if client.open is None:
                self.settle(client, error)

    @rule(number=st.integers(0, CLIENTS - 1))
    def leave(self, number: int) -> None:
        client = self.clients[number]
        codes = self.desk.engine.kafka.leave(KEY, [(client.id, client.instance)])
        if codes == (ErrorCode.NONE,):
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
            if all(client.owned for client in clients):
                break
        group = self.desk.engine.store.groups[KEY]
        assert len(group.members) >= CLIENTS, self.desk.engine.kafka.state(KEY)
        owned = sorted(p for client in clients for p in client.owned)
        assert owned == list(range(PARTITIONS)), [(c.name, c.generation, c.owned) for c in clients]


TestKafkaMachine = KafkaMachine.TestCase
TestKafkaMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


Patch = AbstractContextManager[object]


def a_round_keeps_the_generation() -> Patch:
    honest = kafka_barrier._next_generation

    def mutant(group: Group, *arguments: Any) -> Group:
        return replace(honest(group, *arguments), generation=max(1, group.generation))

    return mock.patch.object(kafka_barrier, "_next_generation", mutant)


def a_member_is_told_what_another_reads() -> Patch:
    def mutant(group: Group, member_id: str) -> Synced:
        return Synced(group.members[0].assignment, group.protocol_type, group.protocol)

    return mock.patch.object(kafka_groups, "_synced", mutant)


@pytest.mark.parametrize(
    "broken",
    [
        a_round_keeps_the_generation,
        a_member_is_told_what_another_reads,
    ],
)
def test_the_machine_finds_a_broken_rule(broken: Callable[[], Patch]) -> None:
    assert_found(KafkaMachine, broken())
