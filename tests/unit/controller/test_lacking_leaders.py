"""A complete follower reports that its leader lacks committed records: it leads instead, and nobody
else counts until it has caught up."""

from __future__ import annotations

from paceline.errors import ErrorCode
from paceline.types import NO_NODE, LeaderEpoch, NodeId
from paceline.wire.native.admin import FenceBroker
from paceline.wire.peer.control import LackingRef, ReportDamagedRequest
from paceline_node.controller.partition_change import RECOVERY_CLEAN, RECOVERY_UNCONFIRMED
from tests.unit.controller.bench import Bench
from tests.unit.controller.invariants import check_image
from tests.unit.controller.test_damage import repaired, report, three


def lacks(
    bench: Bench, node: int, *, leader_epoch: int | None = None, is_committed: bool = True
) -> None:
    """``node`` says that its leader lacks what is committed, or has the shorter log."""
    partition = bench.partition()
    epoch = LeaderEpoch(partition.leader_epoch if leader_epoch is None else leader_epoch)
    ref = LackingRef(partition.topic_id, 0, epoch, 1000, is_committed)
    broker = bench.image.brokers[NodeId(node)]
    bench.ask(ReportDamagedRequest(broker.node_id, broker.broker_epoch, (), lacking=(ref,)))
    check_image(bench.image)


def test_the_leader_gives_way_to_the_one_that_knows_more() -> None:
    bench = three()
    epoch = bench.partition().leader_epoch
    lacks(bench, 2)
    partition = bench.partition()
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), ())
    assert (partition.damaged, partition.lkelr) == ((0,), (0, 1))
    assert partition.leader_epoch == epoch + 1
    assert bench.propose((0, 2)) == ErrorCode.INELIGIBLE_REPLICA
    assert bench.propose((1, 2)) == ErrorCode.NONE
    repaired(bench, 0)
    assert bench.propose((0, 1, 2)) == ErrorCode.NONE


def test_a_member_of_the_elr_is_believed_too() -> None:
    bench = three()
    bench.fence(1)
    bench.fence(2)
    bench.start(2)
    partition = bench.partition()
    assert (partition.leader, partition.isr, partition.elr) == (0, (0,), (2,))
    lacks(bench, 2)
    partition = bench.partition()
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), ())
    assert partition.damaged == (0,)


def test_a_report_of_an_older_epoch_changes_nothing() -> None:
    bench = three()
    before = bench.partition()
    lacks(bench, 2, leader_epoch=before.leader_epoch - 1)
    assert bench.partition() == before


def test_who_is_not_complete_is_not_believed() -> None:
    bench = three()
    bench.propose((0, 1))
    before = bench.partition()
    lacks(bench, 2)
    assert bench.partition() == before
    report(bench, 1)
    before = bench.partition()
    lacks(bench, 1)
    assert bench.partition() == before


def test_a_leader_does_not_speak_against_itself_nor_anybody_against_none() -> None:
    bench = three()
    before = bench.partition()
    lacks(bench, 0)
    assert bench.partition() == before
    for node in (0, 1, 2):
        bench.fence(node)
    before = bench.partition()
    assert before.leader == NO_NODE
    lacks(bench, 2)
    assert bench.partition() == before


# --- longer logs ---------------------------------------------------------------------------------


def after_all_went_down() -> Bench:
    """0 was complete and leads; 2 was as well; 1, which came first, does not count."""
    bench = three()
    for node in (1, 0):
        bench.start(node)
    bench.fence(2)
    partition = bench.partition()
    assert (partition.leader, partition.isr, partition.elr) == (0, (0,), (2,))
    assert partition.recovery == RECOVERY_UNCONFIRMED
    return bench


def longer(bench: Bench, node: int) -> None:
    lacks(bench, node, is_committed=False)


def test_the_longer_log_leads() -> None:
    bench = after_all_went_down()
    epoch = bench.partition().leader_epoch
    longer(bench, 1)
    partition = bench.partition()
    assert (partition.leader, partition.isr, partition.elr) == (1, (1,), (2,))
    assert (partition.damaged, partition.leader_epoch) == ((), epoch + 1)
    bench.start(2)
    longer(bench, 2)
    partition = bench.partition()
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), (1,))
    assert partition.recovery == RECOVERY_UNCONFIRMED


def test_once_something_may_be_committed_no_log_is_longer() -> None:
    bench = after_all_went_down()
    assert bench.propose((0, 1)) == ErrorCode.NONE
    assert bench.partition().recovery == RECOVERY_CLEAN
    bench.start(2)
    before = bench.partition()
    longer(bench, 2)
    assert bench.partition() == before


def test_who_never_restarted_is_not_compared() -> None:
    bench = three()
    bench.fence(1)
    bench.fence(2)
    bench.start(1)
    before = bench.partition()
    assert (before.leader, before.recovery) == (0, RECOVERY_CLEAN)
    longer(bench, 1)
    assert bench.partition() == before


def test_a_damaged_one_does_not_lead_by_its_length() -> None:
    bench = after_all_went_down()
    report(bench, 1)
    before = bench.partition()
    longer(bench, 1)
    assert bench.partition() == before


def test_one_that_is_fenced_asks_again() -> None:
    bench = after_all_went_down()
    before = bench.partition()
    longer(bench, 2)
    assert bench.partition() == before


def test_where_an_operator_keeps_it_from_leading_the_leader_stays() -> None:
    bench = after_all_went_down()
    bench.ask(FenceBroker(NodeId(1), fenced=True))
    longer(bench, 1)
    partition = bench.partition()
    assert (partition.leader, partition.isr, partition.recovery) == (0, (0,), RECOVERY_CLEAN)


# --- what was written in unconfirmed terms --------------------------------------------------------


def unconfirmed(bench: Bench) -> list[tuple[int, int]]:
    return [(term.leader_epoch, term.leader) for term in bench.partition().unconfirmed]


def test_terms_are_remembered_until_all_replicas_are_in_sync() -> None:
    bench = after_all_went_down()
    first = bench.partition().leader_epoch
    assert unconfirmed(bench) == [(first, 0)]
    bench.fence(0)
    bench.start(2)
    second = bench.partition().leader_epoch
    assert bench.partition().leader == 2
    assert unconfirmed(bench) == [(first, 0), (second, 2)]
    assert bench.propose((1, 2)) == ErrorCode.NONE
    assert unconfirmed(bench) == [(first, 0)], "node 0 may still have what it wrote"
    bench.start(0)
    assert unconfirmed(bench) == [(first, 0)]
    assert bench.propose((0, 1, 2)) == ErrorCode.NONE
    assert unconfirmed(bench) == []


def test_what_a_confirmed_leader_wrote_before_counts_again() -> None:
    bench = after_all_went_down()
    bench.fence(0)
    bench.start(0)
    assert bench.partition().leader == 0
    assert [leader for _, leader in unconfirmed(bench)] == [0, 0]
    assert bench.propose((0, 1)) == ErrorCode.NONE
    assert unconfirmed(bench) == []
