"""Hypothesis drives three replicas and their controller in orders that timed simulation rarely
gives: every message, flush, piece of metadata and crash is a step of its own."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from paceline.types import NO_NODE, BrokerEpoch, NodeId
from paceline_cluster.sim.replicas.simlog import SimLog
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.controller.partition_change import Change, change_partition
from paceline_node.replication.fetch_checks import ACCEPTED, FollowerIdentity
from paceline_node.replication.follower import FetchOutcome
from paceline_node.replication.leader import Proposal
from paceline_node.replication.replica import Replica
from paceline_node.storage.producers import FrozenTable
from tests.sim.replication import mutants
from tests.sim.replication.build import SimBrokerView, registration
from tests.unit.broken_rules import assert_found

LAG_S = 3.0
numbers = st.integers(0, 2)
Views = dict[NodeId, SimBrokerView]


@dataclass
class Node:
    """A broker with the replica on it. ``seen`` is the newest metadata it has applied, ``gate``
    that of its own registration."""

    number: int
    log: SimLog = field(default_factory=SimLog)
    broker_epoch: int = 0
    gate: int = 0
    seen: int = -1

    def __post_init__(self) -> None:
        self.replica = Replica(NodeId(self.number), self.log)

    @property
    def identity(self) -> FollowerIdentity:
        directory = UUID(int=100 + self.number)
        return FollowerIdentity(NodeId(self.number), BrokerEpoch(self.broker_epoch), directory)


class Living:
    """Who may be elected by the newest metadata."""

    def __init__(self, views: Views) -> None:
        self._views = views

    def electable(self, node: NodeId) -> bool:
        return not self._views[node].fenced

    def degraded(self, node: NodeId) -> bool:
        return False


class ReplicationMachine(RuleBasedStateMachine):
    """``metadata`` is the committed log of the controller; ``wire`` what is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = [Node(number) for number in range(3)]
        views = {NodeId(n): SimBrokerView(BrokerEpoch(0), UUID(int=100 + n)) for n in range(3)}
        self.metadata: list[tuple[PartitionRegistration, Views]] = [
            (registration(min_isr=2), views)
        ]
        self.wire: list[Callable[[], None]] = []
        self.committed: list[tuple[int, int]] = []
        self.now = 0.0
        self.nonces = 0
        self.values = 0
        self.epochs = 0
        self.all_learn()

    # --- the controller ---------------------------------------------------------------------------

    @property
    def newest(self) -> PartitionRegistration:
        return self.metadata[-1][0]

    @property
    def views(self) -> Views:
        return self.metadata[-1][1]

    def commit(self, change: Change, views: Views | None = None) -> None:
        views = self.views if views is None else views
        changed = change_partition(self.newest, Living(views), change)
        self.metadata.append((self.newest if changed is None else changed, views))

    def without(self, node: int) -> tuple[NodeId, ...]:
        return tuple(each for each in self.newest.isr if each != node)

    def with_view(self, node: int, **changes: Any) -> Views:
        key = NodeId(node)
        return {**self.views, key: replace(self.views[key], **changes)}

    @rule(node=numbers)
    def fence_or_unfence(self, node: int) -> None:
        if self.views[NodeId(node)].fenced:
            self.commit(Change(), self.with_view(node, fenced=False))
        else:
            self.commit(Change(isr=self.without(node)), self.with_view(node, fenced=True))

    @rule(node=numbers, min_isr=st.sampled_from([None, None, 1, 2, 3]))
    def move_or_alter(self, node: int, min_isr: int | None) -> None:
        if min_isr is not None:
            self.commit(Change(min_isr=min_isr))
            return
        target = NodeId(node)
        followers = [each for each in self.newest.isr if each != self.newest.leader]
        if target in followers and not self.views[target].fenced:
            self.commit(Change(leader=target))

    def propose(self, sender: Node, broker_epoch: int, proposal: Proposal) -> None:
        """ALTER_PARTITION arrives: exactly on its epochs, or not at all."""
        now = self.newest
        view = self.views[NodeId(sender.number)]
        if (
            now.leader != sender.number
            or (now.leader_epoch, now.partition_epoch)
            != (proposal.leader_epoch, proposal.partition_epoch)
            or view.broker_epoch != broker_epoch
        ):
            return
        if proposal.relinquish:
            self.commit(Change(isr=self.without(sender.number), passed_over=now.leader))
            return
        for member in proposal.isr:
            known = self.views[member.node_id]
            if known.fenced or member.broker_epoch not in (-1, known.broker_epoch):
                self.commit(Change(bump=True))
                return
        self.commit(Change(isr=[member.node_id for member in proposal.isr]))

    # --- the brokers ------------------------------------------------------------------------------

    @rule(node=numbers, back=st.integers(0, 3))
    def learn(self, node: int, back: int) -> None:
        """A node applies metadata, perhaps several steps at once, perhaps not the newest."""
        broker = self.nodes[node]
        version = len(self.metadata) - 1 - back
        if version <= broker.seen or version < broker.gate:
            return
        broker.seen = version
        partition, views = self.metadata[version]
        broker.replica.apply(partition, views, self.now)
        broker.replica.advance()

    @rule(node=numbers, synced=st.booleans())
    def write(self, node: int, synced: bool) -> None:
        broker = self.nodes[node]
        if broker.replica.leader is not None:
            self.values += 1
            broker.log.append(broker.replica.leader_epoch, self.values)
            if synced:
                broker.log.flush()
            broker.replica.advance()

    @rule(node=numbers)
    def flush(self, node: int) -> None:
        self.nodes[node].log.flush()
        self.nodes[node].replica.advance()

    @rule(node=numbers)
    def fetch(self, node: int) -> None:
        broker = self.nodes[node]
        follower = broker.replica.follower
        self.nonces += 1
        position = broker.replica.start_fetch(self.nonces, 1024)
        if position is None:
            return
        assert follower is not None
        nonce, identity = self.nonces, broker.identity
        leader, replica = self.nodes[follower.leader], broker.replica

        def asked() -> None:
            check = leader.replica.on_fetch(identity, position, self.now)
            leader.replica.advance()
            records = leader.log.read(position.fetch_offset, 3) if check is ACCEPTED else b""
            answer = leader.replica.answer(position, check, len(records))

            def answered() -> None:
                if broker.replica is replica:
                    outcome = replica.on_fetched(nonce, answer, memoryview(records))
                    if outcome is FetchOutcome.BEHIND:
                        replica.begin_at(FrozenTable(answer.state_offset))

            self.wire.append(answered)

        self.wire.append(asked)

    @rule()
    def all_learn(self) -> None:
        for node in range(3):
            self.learn(node=node, back=0)

    @rule(node=numbers, rounds=st.integers(1, 3))
    def replicate(self, node: int, rounds: int) -> None:
        """A follower's fetches get through, without anything in between."""
        for _ in range(rounds):
            before = len(self.wire)
            self.fetch(node=node)
            while len(self.wire) > before:
                self.wire.pop()()
            self.flush(node=node)

    @rule(times=st.integers(1, 2))
    def progress(self, times: int) -> None:
        """A quiet moment: the newest leader writes, and who hears of it follows."""
        self.all_learn()
        for _ in range(times):
            if self.newest.leader != NO_NODE:
                self.write(node=self.newest.leader, synced=True)
            for node in range(3):
                self.replicate(node=node, rounds=2)

    @rule(node=numbers)
    def ask_for_change(self, node: int) -> None:
        """Whatever a leader wants of the ISR is sent, now or again."""
        broker = self.nodes[node]
        broker.replica.consider_shrink(self.now, LAG_S)
        leader = broker.replica.leader
        proposal = None if leader is None else leader.proposal_due(self.now)
        if proposal is not None:
            epoch = broker.broker_epoch
            self.wire.append(lambda: self.propose(broker, epoch, proposal))

    @rule(seconds=st.sampled_from([0.6, LAG_S + 0.1, 2 * LAG_S + 0.1]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(node=numbers, power=st.booleans(), seed=st.integers(0, 99), keeps=st.booleans())
    def restart(self, node: int, power: bool, seed: int, keeps: bool) -> None:
        """The process dies, or its machine loses power; the next one registers, and is trusted,
        for what counts was synced. ``keeps``: its checkpoint of the high watermark is new."""
        broker = self.nodes[node]
        known = broker.replica.high_watermark if keeps else 0
        if power:
            broker.log.power_cut(random.Random(seed))
        broker.log.recover()
        broker.replica = Replica(NodeId(node), broker.log, high_watermark=known)
        self.epochs += 1
        broker.broker_epoch = self.epochs
        views = self.with_view(node, fenced=True, broker_epoch=BrokerEpoch(self.epochs))
        self.commit(Change(isr=self.without(node)), views)
        broker.gate = len(self.metadata) - 1

    # --- the network ------------------------------------------------------------------------------

    @precondition(lambda self: bool(self.wire))
    @rule(at=st.integers(0, 99), again=st.booleans())
    def deliver(self, at: int, again: bool) -> None:
        """Any message, in any order; some come twice."""
        index = at % len(self.wire)
        (self.wire[index] if again else self.wire.pop(index))()

    @precondition(lambda self: bool(self.wire))
    @rule(at=st.integers(0, 99))
    def drop(self, at: int) -> None:
        del self.wire[at % len(self.wire)]

    # --- what must hold ---------------------------------------------------------------------------

    @invariant()
    def committed_records_never_change(self) -> None:
        """I1, I3: whatever any leader called committed is there for ever, in every log below its
        own high watermark, and in the log of whoever leads in the newest epoch."""
        for node in self.nodes:
            log, mark = node.log, node.replica.high_watermark
            assert mark <= log.log_end_offset
            if node.replica.leader is not None:
                for offset in range(len(self.committed), mark):
                    self.committed.append(log.at(offset))
            known = min(mark, len(self.committed))
            assert log.records[:known] == self.committed[:known], f"node {node.number}"
            if node.replica.leader and node.replica.leader_epoch == self.newest.leader_epoch:
                assert log.records[: len(self.committed)] == self.committed, f"leader {node.number}"

    @invariant()
    def candidates_are_complete(self) -> None:
        """I4: who may be elected has everything committed, on its disk."""
        for member in (*self.newest.isr, *self.newest.elr):
            log = self.nodes[member].log
            assert log.durable_offset >= len(self.committed), f"candidate {member}"
            assert log.records[: len(self.committed)] == self.committed, f"candidate {member}"

    @invariant()
    def one_leader_in_an_epoch(self) -> None:
        """I8."""
        led = [
            (node.replica.leader_epoch, node.number)
            for node in self.nodes
            if node.replica.leader is not None
        ]
        assert len({epoch for epoch, _ in led}) == len(led)
        assert self.newest.leader == NO_NODE or self.newest.leader in self.newest.isr


ReplicationMachine.TestCase.settings = settings(
    max_examples=50, stateful_step_count=60, deadline=None
)
TestReplication = ReplicationMachine.TestCase


@pytest.mark.parametrize("name", ["HW without min ISR", "sticky ELR", "truncate to HW"])
def test_the_machine_finds_a_broken_rule(name: str) -> None:
    """Rules that a few seconds find; the others are the seeded simulator's business."""
    mutant = next(each for each in mutants.ALL if each.name == name)
    assert_found(ReplicationMachine, mutant.patch(), steps=60)
