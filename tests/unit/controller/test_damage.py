"""Damaged replicas as the controller sees them: marked until they report themselves repaired, and
neither in sync nor elected meanwhile, whoever asks (controller/DESIGN 5.1)."""

from __future__ import annotations

import pytest

from paceline.errors import ErrorCode, PreferredLeaderNotAvailable
from paceline.types import NO_NODE, NodeId, PartitionEpoch
from paceline.wire.native.admin import ElectLeader, FenceBroker, ReassignPartition, SetRole
from paceline.wire.peer.control import PartitionRef, RepairedRef, ReportDamagedRequest
from paceline_node.controller.elections import balance
from paceline_node.controller.image import Image
from tests.unit.controller.bench import Bench
from tests.unit.controller.invariants import check_image


def three(min_isr: int = 2) -> Bench:
    bench = Bench()
    bench.start(0, 1, 2)
    bench.create(configs={"min.insync.replicas": str(min_isr)})
    assert bench.partition().leader == 0
    return bench


def ref(bench: Bench) -> PartitionRef:
    return PartitionRef(bench.partition().topic_id, 0)


def report(bench: Bench, node: int, *, hole: bool = True) -> None:
    epoch = bench.image.brokers[NodeId(node)].broker_epoch
    what = (ref(bench),)
    request = ReportDamagedRequest(NodeId(node), epoch, () if hole else what, what if hole else ())
    bench.ask(request)
    check_image(bench.image)


def repaired(bench: Bench, node: int, *, partition_epoch: int | None = None) -> None:
    partition = bench.partition()
    epoch = PartitionEpoch(
        partition.partition_epoch if partition_epoch is None else partition_epoch
    )
    broker = bench.image.brokers[NodeId(node)]
    whole = RepairedRef(partition.topic_id, 0, epoch)
    bench.ask(ReportDamagedRequest(broker.node_id, broker.broker_epoch, (), (), (whole,)))
    check_image(bench.image)


BOTH = pytest.mark.parametrize("hole", [True, False], ids=["hole", "lost"])


@BOTH
def test_no_proposal_brings_a_damaged_replica_back(hole: bool) -> None:
    """Whatever the leader has heard of it: that was before."""
    bench = three()
    report(bench, 2, hole=hole)
    before = bench.partition()
    assert (before.isr, before.damaged) == ((0, 1), (2,))
    assert bench.propose((0, 1, 2)) == ErrorCode.INELIGIBLE_REPLICA
    after = bench.partition()
    assert after.isr == (0, 1)
    assert after.partition_epoch == before.partition_epoch + 1, "copies of the proposal live on"


def test_it_comes_back_once_it_says_that_it_is_repaired() -> None:
    bench = three()
    report(bench, 2)
    repaired(bench, 2)
    assert bench.partition().damaged == ()
    assert bench.propose((0, 1, 2)) == ErrorCode.NONE


def test_a_late_report_of_repair_is_about_an_older_damage() -> None:
    bench = three()
    report(bench, 2)
    epoch = bench.partition().partition_epoch
    report(bench, 2)
    repaired(bench, 2, partition_epoch=epoch)
    assert bench.partition().damaged == (2,)


@BOTH
def test_a_damaged_leader_gives_way(hole: bool) -> None:
    bench = three()
    epoch = bench.partition().leader_epoch
    report(bench, 0, hole=hole)
    partition = bench.partition()
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1, 2), epoch + 1)


def test_nobody_elects_a_damaged_replica() -> None:
    bench = three()
    report(bench, 0)
    for request in (
        ElectLeader("orders", 0, NodeId(0)),
        ElectLeader("orders", 0, NO_NODE),
        SetRole("orders", 0, NodeId(0), "leader"),
    ):
        with pytest.raises(PreferredLeaderNotAvailable, match="damaged, and not repaired yet"):
            bench.ask(request)
    draft = bench.draft()
    assert balance(draft) == 0
    bench.fence(1)
    bench.fence(2)
    partition = bench.partition()
    assert (partition.leader, partition.elr) == (NO_NODE, (1, 2))
    bench.heartbeat(0)
    assert bench.partition().leader == NO_NODE


def test_it_leaves_the_elr_too() -> None:
    bench = three()
    bench.fence(1)
    bench.fence(2)
    assert (bench.partition().isr, bench.partition().elr) == ((0,), (1, 2)) or bench.partition().elr
    bench.start(1)
    report(bench, 1)
    assert NodeId(1) not in (*bench.partition().isr, *bench.partition().elr)


def test_the_mark_survives_a_restart_of_the_controller_and_of_the_replica() -> None:
    bench = three()
    report(bench, 2)
    restored = Image.from_snapshot(bench.image.to_snapshot())
    assert restored == bench.image
    assert restored.partition("orders", 0).damaged == (2,)
    bench.start(2)  # does not know of any damage: its note of it was lost
    assert bench.partition().damaged == (2,)
    assert bench.propose((0, 1, 2)) == ErrorCode.INELIGIBLE_REPLICA


def test_what_a_start_finds_is_marked_as_well() -> None:
    bench = three()
    bench.fence(2)
    bench.ask(bench.registration(2, damaged=(ref(bench),)))
    assert bench.partition().damaged == (2,)
    bench.heartbeat(2)
    assert bench.propose((0, 1, 2)) == ErrorCode.INELIGIBLE_REPLICA


def test_a_reassignment_waits_for_the_repair_of_who_is_added() -> None:
    bench = Bench()
    bench.start(0, 1, 2, 3)
    bench.create()
    bench.ask(ReassignPartition("orders", 0, (NodeId(0), NodeId(1), NodeId(3))))
    report(bench, 3)
    assert bench.propose((0, 1, 2, 3)) == ErrorCode.INELIGIBLE_REPLICA
    assert bench.partition().adding == (3,)
    repaired(bench, 3)
    assert bench.propose((0, 1, 2, 3)) == ErrorCode.NONE
    assert bench.partition().replicas == (0, 1, 3)


def test_a_reassignment_away_from_it_forgets_the_mark() -> None:
    bench = Bench()
    bench.start(0, 1, 2, 3)
    bench.create()
    report(bench, 2)
    bench.ask(ReassignPartition("orders", 0, (NodeId(0), NodeId(1), NodeId(3))))
    assert bench.propose((0, 1, 3)) == ErrorCode.NONE
    partition = bench.partition()
    assert (partition.replicas, partition.damaged) == ((0, 1, 3), ())


# --- when nobody else is complete -----------------------------------------------------------------


def test_the_last_complete_replica_leads_on_with_a_hole() -> None:
    """Nobody has more. It refuses what it cannot read, and gives way as soon as somebody can."""
    bench = three(min_isr=1)
    assert bench.propose((0,)) == ErrorCode.NONE
    epoch = bench.partition().leader_epoch
    report(bench, 0)
    partition = bench.partition()
    assert (partition.leader, partition.isr, partition.damaged) == (0, (0,), (0,))
    assert partition.leader_epoch == epoch
    assert bench.propose((0, 1)) == ErrorCode.NONE
    partition = bench.partition()
    assert (partition.leader, partition.isr) == (1, (1,))


def test_it_leads_again_after_a_lost_session_and_after_a_fence() -> None:
    bench = Bench()
    bench.start(0)
    bench.create(factor=1)
    report(bench, 0)
    assert bench.partition().leader == 0
    bench.fence(0)
    bench.heartbeat(0)
    assert bench.partition().leader == 0
    bench.ask(FenceBroker(NodeId(0), True))
    bench.ask(FenceBroker(NodeId(0), False))
    assert bench.partition().leader == 0


def test_with_its_newest_records_in_doubt_it_waits_for_the_operator() -> None:
    bench = three(min_isr=1)
    assert bench.propose((0,)) == ErrorCode.NONE
    report(bench, 0, hole=False)
    assert bench.partition().leader == NO_NODE


def test_an_operator_who_names_nobody_gets_a_whole_replica() -> None:
    """Nobody here knows whether the damaged one, complete before, lost a range or all it had."""
    bench = three(min_isr=1)
    assert bench.propose((0,)) == ErrorCode.NONE
    report(bench, 0, hole=False)
    bench.ask(ElectLeader("orders", 0, NO_NODE, unclean=True))
    partition = bench.partition()
    assert (partition.leader, partition.isr, partition.damaged) == (1, (1,), (0,))


def test_an_operator_who_names_nobody_gets_none_with_an_empty_disk() -> None:
    bench = three(min_isr=1)
    assert bench.propose((0,)) == ErrorCode.NONE
    for node in (1, 0):
        bench.fence(node)
    for node in (0, 1):
        bench.wipe(node)
        bench.register(node)
        bench.heartbeat(node)
    assert (bench.partition().leader, bench.partition().lkelr) == (NO_NODE, ())
    bench.ask(ElectLeader("orders", 0, NO_NODE, unclean=True))
    assert bench.partition().leader == 2
