"""Moving partitions between nodes (controller/DESIGN 10)."""

from __future__ import annotations

import pytest

from paceline.errors import (
    ErrorCode,
    InvalidConfig,
    InvalidReplicationFactor,
    InvalidRequest,
    NoReassignmentInProgress,
)
from paceline.types import NodeId
from paceline.wire.native.admin import AlterTopic, ReassignPartition
from tests.unit.controller.bench import Bench
from tests.unit.controller.invariants import check_image, check_shape


def five() -> Bench:
    bench = Bench()
    bench.start(0, 1, 2, 3, 4)
    bench.create()
    assert bench.partition().replicas == (0, 1, 2)
    return bench


def move(bench: Bench, *replicas: int) -> None:
    bench.ask(ReassignPartition("orders", 0, tuple(NodeId(n) for n in replicas)))


def test_grows_first_and_shrinks_when_the_new_ones_are_in() -> None:
    bench = five()
    move(bench, 3, 4, 0)
    partition = bench.partition()
    assert partition.replicas == (3, 4, 0, 1, 2)
    assert (partition.adding, partition.removing) == ((3, 4), (1, 2))
    assert (partition.leader, partition.isr, partition.min_isr) == (0, (0, 1, 2), 2)
    assert bench.propose((0, 1, 2, 3)) == ErrorCode.NONE
    assert bench.partition().removing == (1, 2), "node 4 is still missing"
    epoch = bench.partition().leader_epoch
    assert bench.propose((0, 1, 2, 3, 4)) == ErrorCode.NONE
    partition = bench.partition()
    assert (partition.replicas, partition.isr) == ((3, 4, 0), (3, 4, 0))
    assert (partition.adding, partition.removing) == ((), ())
    assert (partition.leader, partition.leader_epoch) == (0, epoch + 1)
    check_image(bench.image)


def test_a_topic_that_has_grown_may_demand_more_replicas_in_sync() -> None:
    """Else what was made with one replica could never be made safe."""
    bench = Bench()
    bench.start(0, 1, 2)
    bench.create(partitions=2, factor=1)
    with pytest.raises(InvalidConfig, match="the replication factor is 1"):
        bench.ask(AlterTopic("orders", {"min.insync.replicas": "2"}))
    move(bench, 0, 1, 2)
    with pytest.raises(InvalidConfig, match="the replication factor is 1"):
        bench.ask(AlterTopic("orders", {"min.insync.replicas": "2"}))
    second = tuple(NodeId(node) for node in (1, 0, 2))
    bench.ask(ReassignPartition("orders", 1, second))
    bench.ask(AlterTopic("orders", {"min.insync.replicas": "2"}))
    check_image(bench.image)


def test_leader_that_leaves_is_replaced_at_the_end() -> None:
    bench = five()
    move(bench, 3, 4)
    assert bench.propose((0, 1, 2, 3, 4)) == ErrorCode.NONE
    partition = bench.partition()
    assert (partition.leader, partition.replicas, partition.min_isr) == (3, (3, 4), 2)


def test_not_complete_without_min_isr_members_of_the_target() -> None:
    bench = five()
    bench.fence(1)
    move(bench, 1, 3)
    bench.propose((0, 2, 3))
    partition = bench.partition()
    assert partition.removing == (0, 2), "of the target only node 3 is in sync"
    bench.start(1)
    bench.propose((0, 1, 2, 3))
    assert bench.partition().replicas == (1, 3)


def test_removing_only_is_immediate() -> None:
    bench = five()
    move(bench, 0, 2)
    assert (bench.partition().replicas, bench.partition().adding) == ((0, 2), ())


def test_reordering_changes_preference_alone() -> None:
    bench = five()
    move(bench, 2, 1, 0)
    partition = bench.partition()
    assert (partition.replicas, partition.leader, partition.leader_epoch) == ((2, 1, 0), 0, 0)


def test_min_isr_counts_former_replicas_meanwhile() -> None:
    bench = Bench()
    bench.start(0)
    bench.create(factor=3)
    bench.start(1, 2)
    move(bench, 0, 1, 2)
    assert bench.partition().min_isr == 1
    bench.ask(AlterTopic("orders", {"min.insync.replicas": "3"}))
    assert bench.partition().min_isr == 1
    bench.propose((0, 1, 2))
    assert (bench.partition().replicas, bench.partition().min_isr) == ((0, 1, 2), 3)


def test_another_target_replaces_the_first() -> None:
    bench = five()
    move(bench, 0, 1, 3)
    move(bench, 0, 1, 4)
    partition = bench.partition()
    assert (partition.replicas, partition.adding, partition.removing) == (
        (0, 1, 4, 2),
        (4,),
        (2,),
    )


def test_giving_up() -> None:
    bench = five()
    move(bench, 3, 4, 0)
    bench.propose((0, 1, 2, 3))
    move(bench)
    partition = bench.partition()
    assert set(partition.replicas) == set(partition.isr) == {0, 1, 2}
    assert (partition.adding, partition.removing, partition.leader) == ((), (), 0)
    check_shape(partition)


def test_giving_up_needs_enough_former_replicas_in_sync() -> None:
    bench = five()
    move(bench, 3, 4, 0)
    bench.propose((0, 1, 2, 3))
    for node in (1, 2):
        bench.fence(node)
    with pytest.raises(InvalidRequest, match="only 1 of the former replicas are in sync, need 2"):
        move(bench)


@pytest.mark.parametrize("replicas", [(0, 9), (1, 1)])
def test_targets_are_distinct_registered_nodes(replicas: tuple[int, ...]) -> None:
    with pytest.raises(InvalidReplicationFactor, match="orders/0"):
        move(five(), *replicas)


def test_where_nothing_moves_there_is_nothing_to_give_up() -> None:
    bench = five()
    with pytest.raises(NoReassignmentInProgress, match="orders/0"):
        move(bench)
    move(bench, 0, 1, 3)
    move(bench)
    assert bench.partition().replicas == (0, 1, 2)
    with pytest.raises(NoReassignmentInProgress, match="orders/0"):
        move(bench)
