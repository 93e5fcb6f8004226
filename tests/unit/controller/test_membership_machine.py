"""A random life of one partition through the real handlers, with a ghost that knows the truth.

The ghost is the set of replicas that hold every committed record. It shrinks when a write commits
without a replica, or when a process lost data; it grows when a leader sees a replica caught up.
Whatever happens, members of ISR and ELR must be in it (I4), because they may be elected.
"""

from __future__ import annotations

import contextlib
import os

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from paceline.errors import ErrorCode, PacelineError
from paceline.types import NO_NODE, NodeId
from paceline.wire.native.admin import (
    AlterTopic,
    CreateTopic,
    ElectLeader,
    FenceBroker,
    ReassignPartition,
    SetRole,
)
from paceline.wire.peer.control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionRef,
    RepairedRef,
    ReportDamagedRequest,
)
from paceline_node.controller.metadata_records import PartitionRegistration
from tests.unit.controller.bench import Bench
from tests.unit.controller.invariants import check_entry, check_image

EXAMPLES = int(os.environ.get("PACELINE_EXAMPLES", "80"))
NODES = (0, 1, 2, 3)
nodes = st.sampled_from(NODES)


class Membership(RuleBasedStateMachine):
    @initialize(factor=st.integers(1, 3), min_isr=st.integers(1, 2))
    def form(self, factor: int, min_isr: int) -> None:
        self.bench = Bench()
        self.bench.start(*NODES)
        configs = {"min.insync.replicas": str(min(min_isr, factor))}
        request = CreateTopic(
            "orders", configs=configs, assignment=(tuple(NodeId(n) for n in NODES[:factor]),)
        )
        self.bench.ask(request)
        self.complete = {int(node) for node in self.partition.isr}
        self.copies: list[AlterPartitionRequest] = []
        self.pending: AlterPartitionRequest | None = None
        self.damaged: set[int] = set()
        self.repairs: list[ReportDamagedRequest] = []
        self.seen = len(self.bench.entries)
        self.before = self.bench.image

    @property
    def partition(self) -> PartitionRegistration:
        return self.bench.partition()

    def maximal_isr(self) -> set[int]:
        """The ISR with every member of a proposal that may still be accepted
        (replication/DESIGN 3.6)."""
        members = {int(node) for node in self.partition.isr}
        if self.pending is not None:
            proposal = self.pending.proposals[0]
            if proposal.partition_epoch == self.partition.partition_epoch:
                members |= {int(member.node_id) for member in proposal.isr}
        return members

    def lose(self, node: int) -> None:
        """``node`` may lack records from now on."""
        self.complete.discard(node)

    # --- what brokers do ---------------------------------------------------------------------

    @rule(node=nodes, trusted=st.booleans())
    def restart(self, node: int, trusted: bool) -> None:
        self.bench.register(node, trusted=trusted)
        if not trusted:
            self.lose(node)

    @rule(node=nodes)
    def die_before_writing_down_the_epoch(self, node: int) -> None:
        self.bench.ask(self.bench.registration(node))

    @rule(node=nodes)
    def come_back_wiped(self, node: int) -> None:
        self.bench.fence(node)
        self.bench.wipe(node)
        self.bench.register(node)
        self.lose(node)

    @rule(node=nodes, degraded=st.booleans())
    def heartbeat(self, node: int, degraded: bool) -> None:
        self.bench.heartbeat(node, degraded=degraded)

    @rule(node=nodes)
    def go_silent(self, node: int) -> None:
        self.bench.fence(node)

    @rule(node=nodes)
    def shut_down(self, node: int) -> None:
        self.bench.heartbeat(node, want_shutdown=True)

    @rule(node=nodes)
    def lose_the_disk(self, node: int) -> None:
        self.bench.heartbeat(node, offline=True)
        self.lose(node)

    @rule(node=nodes)
    def find_damage(self, node: int) -> None:
        self.report(node, PartitionRef(self.partition.topic_id, 0), ())
        self.lose(node)

    @rule(node=nodes)
    def find_a_hole(self, node: int) -> None:
        """It is complete but for a range, until it begins anew."""
        self.report(node, None, (PartitionRef(self.partition.topic_id, 0),))

    def report(self, node: int, lost: PartitionRef | None, holes: tuple[PartitionRef, ...]) -> None:
        epoch = self.bench.image.brokers[NodeId(node)].broker_epoch
        damaged = () if lost is None else (lost,)
        self.bench.ask(ReportDamagedRequest(NodeId(node), epoch, damaged, holes))
        if node in self.partition.replicas:
            self.damaged.add(node)

    @rule(node=nodes, told=st.booleans())
    def begin_anew(self, node: int, told: bool) -> None:
        """A repair from the leader; its report may be slow."""
        partition = self.partition
        if node not in self.damaged or partition.leader in (NO_NODE, node):
            return
        assert node not in partition.isr
        self.damaged.discard(node)
        self.lose(node)
        broker = self.bench.image.brokers[NodeId(node)]
        whole = RepairedRef(partition.topic_id, 0, partition.partition_epoch)
        self.repairs.append(
            ReportDamagedRequest(broker.node_id, broker.broker_epoch, (), (), (whole,))
        )
        if told:
            self.bench.ask(self.repairs[-1])

    @precondition(lambda self: self.repairs)
    @rule(data=st.data())
    def deliver_a_report_of_repair(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.repairs))
        with contextlib.suppress(PacelineError):  # of a process that is no more
            self.bench.ask(request)

    # --- what leaders do -----------------------------------------------------------------------

    @precondition(lambda self: self.partition.leader != NO_NODE)
    @rule()
    def commit_a_write(self) -> None:
        if len(self.partition.isr) >= self.partition.min_isr:
            self.complete &= self.maximal_isr()

    @precondition(lambda self: self.partition.leader != NO_NODE)
    @rule(members=st.sets(nodes))
    def propose(self, members: set[int]) -> None:
        """The leader sees the new members caught up; the message may be slow."""
        partition = self.partition
        pending = self.pending and self.pending.proposals[0].partition_epoch
        if pending == partition.partition_epoch:
            return
        isr = {n for n in members if n in partition.replicas} | {int(partition.leader)}
        joining = {n for n in isr if n not in partition.isr}
        if not all(self.bench.image.brokers[NodeId(n)].active for n in joining):
            return
        self.pending = self.bench.proposal(partition, tuple(sorted(isr)))
        self.copies.append(self.pending)
        self.complete |= joining - self.damaged

    @precondition(lambda self: self.copies)
    @rule()
    def deliver_the_newest(self) -> None:
        self.deliver_copy(self.copies[-1])

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        """A copy of some proposal arrives, perhaps not for the first time."""
        self.deliver_copy(data.draw(st.sampled_from(self.copies)))

    def deliver_copy(self, request: AlterPartitionRequest) -> None:
        epoch = self.partition.partition_epoch
        reply = self.bench.ask(request)
        assert isinstance(reply, AlterPartitionResponse)
        proposal = request.proposals[0]
        if proposal.partition_epoch != epoch:
            assert reply.results[0].error != ErrorCode.NONE
        if reply.results[0].error == ErrorCode.INELIGIBLE_REPLICA:
            assert self.partition.partition_epoch == epoch + 1

    # --- what operators do ---------------------------------------------------------------------

    def try_to(self, request: SetRole | ElectLeader | FenceBroker | ReassignPartition) -> None:
        before = self.bench.image
        try:
            self.bench.ask(request)
        except PacelineError:
            assert self.bench.image is before

    @rule(node=nodes, role=st.sampled_from(["leader", "follower", "auto"]))
    def set_role(self, node: int, role: str) -> None:
        self.try_to(SetRole("orders", 0, NodeId(node), role))

    @rule(node=st.sampled_from((NO_NODE, *NODES)), unclean=st.booleans())
    def elect(self, node: int, unclean: bool) -> None:
        self.try_to(ElectLeader("orders", 0, NodeId(node), unclean=unclean))

    @rule(node=nodes, fenced=st.booleans())
    def fence_by_operator(self, node: int, fenced: bool) -> None:
        self.try_to(FenceBroker(NodeId(node), fenced))

    @rule(replicas=st.lists(nodes, unique=True, max_size=3))
    def reassign(self, replicas: list[int]) -> None:
        self.try_to(ReassignPartition("orders", 0, tuple(NodeId(n) for n in replicas)))

    @rule(min_isr=st.integers(1, 3))
    def change_min_isr(self, min_isr: int) -> None:
        factor = self.bench.image.topic("orders").replication_factor
        value = str(min(min_isr, factor))
        self.bench.ask(AlterTopic("orders", {"min.insync.replicas": value}))

    # --- what must hold --------------------------------------------------------------------------

    @invariant()
    def membership_holds(self) -> None:
        if not hasattr(self, "bench"):
            return
        image = self.before
        for records in self.bench.entries[self.seen :]:
            check_entry(image, records)
            for record in records:
                self.follow(record)
            image = image.apply(image.offset + 1, records)
        self.seen = len(self.bench.entries)
        self.before = self.bench.image
        check_image(self.bench.image)
        partition = self.partition
        assert self.complete >= {*partition.isr, *partition.elr}, (self.complete, partition)
        self.leads_if_somebody_can(partition)

    def follow(self, record: object) -> None:
        """What an entry means for the truth: an unclean election redefines it, a replica that is
        removed forgets what it had."""
        if isinstance(record, PartitionRegistration):
            if record.recovery == 1 and record.isr == (record.leader,):
                self.complete = {int(record.leader)}
            replicas = {int(node) for node in record.replicas}
            self.complete &= replicas
            self.damaged &= replicas
            assert self.damaged <= {int(node) for node in record.damaged}, record

    def leads_if_somebody_can(self, partition: PartitionRegistration) -> None:
        pool = partition.isr or partition.elr
        brokers = self.bench.image.brokers
        able = [n for n in pool if brokers[n].electable and n not in partition.marks]
        assert (partition.leader != NO_NODE) == bool(able), partition


@pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")
def test_membership() -> None:
    run_state_machine_as_test(
        Membership,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
