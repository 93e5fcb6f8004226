"""Heartbeats: unfencing, fencing, controlled shutdown, degraded and failed disks (5.4, 5.6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.errors import BrokerNotRegistered, NotController, StaleBrokerEpoch
from paceline.types import NO_NODE, BrokerEpoch, NodeId
from paceline.wire.peer.control import HeartbeatRequest
from paceline_node.controller.context import MAX_MOVES_PER_BATCH, ControllerSettings, TopicDefaults
from tests.unit.controller.bench import Bench
from tests.unit.controller.invariants import check_image


def three(partitions: int = 3) -> Bench:
    bench = Bench(ControllerSettings(topics=TopicDefaults(min_isr=2)))
    bench.start(0, 1, 2)
    bench.create(partitions=partitions)
    return bench


def led_by(bench: Bench, node: int) -> list[int]:
    partitions = bench.image.topic("orders").partitions
    return [number for number, p in partitions.items() if p.leader == node]


def test_unfenced_only_when_its_image_holds_its_registration() -> None:
    bench = Bench()
    epoch = bench.register(0)
    behind = bench.heartbeat(0, image_offset=epoch - 1)
    assert (behind.fenced, behind.caught_up) == (True, False)
    there = bench.heartbeat(0, image_offset=epoch)
    assert (there.fenced, there.caught_up) == (False, True)
    assert bench.image.brokers[NodeId(0)].activated


def test_want_fence_keeps_and_makes_fenced() -> None:
    bench = three()
    assert bench.heartbeat(0, want_fence=True).fenced
    assert led_by(bench, 0) == []
    assert bench.heartbeat(0, want_fence=True).fenced
    assert not bench.heartbeat(0).fenced


def test_steady_heartbeat_writes_nothing() -> None:
    bench = three()
    image = bench.image
    bench.heartbeat(1)
    assert bench.image is image


def test_fenced_broker_is_unfenced_without_a_new_epoch() -> None:
    bench = three()
    epoch = bench.image.brokers[NodeId(0)].broker_epoch
    bench.fence(0)
    assert all(0 not in p.isr for p in bench.image.partitions())
    bench.heartbeat(0)
    broker = bench.image.brokers[NodeId(0)]
    assert not broker.fenced
    assert broker.broker_epoch == epoch
    assert all(0 not in p.isr for p in bench.image.partitions()), "only a leader re-admits it"


def test_whoever_was_fenced_while_it_ran_is_unfenced_once_its_image_shows_that() -> None:
    """Else it would believe in roles that it has lost."""
    bench = three()
    before = bench.image.offset
    bench.fence(0)
    assert bench.heartbeat(0, image_offset=before).fenced
    there = bench.image.offset
    bench.create("later")
    assert bench.heartbeat(0, image_offset=there - 1).fenced
    assert not bench.heartbeat(0, image_offset=there).fenced, "it need not know of all that is new"
    assert bench.heartbeat(0, want_fence=True).fenced  # its session goes on
    assert bench.heartbeat(0, image_offset=there).fenced, "fenced anew, it has anew to learn of it"


def test_last_member_leaves_the_isr_and_leads_again_from_the_elr() -> None:
    bench = three(partitions=1)
    for node in (2, 1, 0):
        bench.fence(node)
    partition = bench.partition()
    assert (partition.isr, partition.elr, partition.leader) == ((), (0, 1), NO_NODE)
    bench.heartbeat(2)
    assert bench.partition().leader == NO_NODE, "node 2 left while two others were in sync"
    bench.heartbeat(1)
    partition = bench.partition()
    assert (partition.isr, partition.elr, partition.leader) == ((1,), (0,), 1)


@pytest.mark.parametrize(
    ("node", "epoch", "error"),
    [
        (9, 2, BrokerNotRegistered),
        (0, 1, StaleBrokerEpoch),
        (0, 10**9, NotController),
        (9, 10**9, NotController),
    ],
)
def test_wrong_epochs(node: int, epoch: int, error: type[Exception]) -> None:
    bench = three()
    request = HeartbeatRequest(NodeId(node), BrokerEpoch(epoch), 0, False, False, False, False)
    with pytest.raises(error):
        bench.ask(request)


# --- controlled shutdown ---------------------------------------------------------------------


def test_controlled_shutdown_waits_until_the_others_know() -> None:
    bench = three()
    assert not bench.heartbeat(0, want_shutdown=True).should_shutdown
    assert led_by(bench, 0) == []
    assert all(0 not in p.isr for p in bench.image.partitions())
    moved_at = bench.image.offset
    bench.heartbeat(1, image_offset=moved_at - 1)
    bench.heartbeat(2, image_offset=moved_at)
    assert not bench.heartbeat(0, want_shutdown=True).should_shutdown
    bench.heartbeat(1, image_offset=moved_at)
    assert bench.heartbeat(0, want_shutdown=True).should_shutdown


def test_entries_after_the_move_do_not_delay_the_shutdown() -> None:
    bench = three()
    bench.heartbeat(0, want_shutdown=True)
    for node in (1, 2):
        bench.heartbeat(node)
    bench.heartbeat(0, want_shutdown=True)
    bench.create("later")
    assert bench.heartbeat(0, want_shutdown=True).should_shutdown


def test_shutting_down_broker_takes_nothing_on() -> None:
    bench = three()
    bench.heartbeat(0, want_shutdown=True)
    bench.heartbeat(0)
    assert bench.image.brokers[NodeId(0)].in_controlled_shutdown
    bench.create("new", partitions=3)
    for partition in bench.image.topic("new").partitions.values():
        assert 0 not in partition.isr
        assert partition.leader != 0
    check_image(bench.image)


def test_fenced_while_shutting_down_stays_fenced() -> None:
    bench = three()
    bench.heartbeat(0, want_shutdown=True)
    bench.fence(0)
    assert bench.heartbeat(0).fenced, "a late heartbeat from before the shutdown"
    bench.start(0)
    assert not bench.image.brokers[NodeId(0)].fenced


def test_shutdown_moves_a_bounded_number_at_once() -> None:
    bench = three(partitions=MAX_MOVES_PER_BATCH + 50)
    bench.heartbeat(0, want_shutdown=True)
    left = sum(0 in p.isr for p in bench.image.partitions())
    assert left == 50
    bench.heartbeat(0, want_shutdown=True)
    assert sum(0 in p.isr for p in bench.image.partitions()) == 0
    check_image(bench.image)


def test_lone_node_may_stop_and_leads_again_after_its_restart() -> None:
    bench = Bench()
    bench.start(0)
    bench.create(factor=1)
    bench.heartbeat(0, want_shutdown=True)
    assert bench.heartbeat(0, want_shutdown=True).should_shutdown
    bench.start(0)
    assert (bench.partition().leader, bench.partition().recovery) == (0, 0)


# --- disks -----------------------------------------------------------------------------------


def test_degraded_leader_hands_over_to_a_healthy_member() -> None:
    bench = three(partitions=1)
    bench.heartbeat(1, degraded=True)
    bench.heartbeat(0, degraded=True)
    partition = bench.partition()
    assert (partition.leader, partition.isr) == (2, (0, 1, 2))
    assert not bench.image.brokers[NodeId(0)].fenced


def test_degraded_leader_stays_when_nobody_is_better() -> None:
    bench = three(partitions=1)
    for node in (1, 2, 0):
        bench.heartbeat(node, degraded=True)
    assert bench.partition().leader == 0
    image = bench.image
    bench.heartbeat(0, degraded=True)
    assert bench.image is image


def test_degraded_flag_ends() -> None:
    bench = three(partitions=1)
    bench.heartbeat(1, degraded=True)
    assert bench.image.brokers[NodeId(1)].degraded
    bench.heartbeat(1)
    assert not bench.image.brokers[NodeId(1)].degraded


def test_failed_disk_is_fenced_and_distrusted() -> None:
    bench = three(partitions=1)
    bench.fence(2)
    bench.fence(1)
    assert bench.partition().isr == (0,)
    assert bench.heartbeat(0, offline=True).fenced
    partition = bench.partition()
    assert (partition.isr, partition.elr, partition.lkelr) == ((), (1,), (0,))
    image = bench.image
    assert bench.heartbeat(0, offline=True).fenced
    assert bench.image is image


def test_failed_disk_of_a_sole_replica_is_used_again_if_it_comes_back() -> None:
    bench = Bench()
    bench.start(0)
    bench.create(factor=1)
    bench.heartbeat(0, offline=True)
    assert bench.partition().leader == NO_NODE
    bench.register(0, trusted=False)
    bench.heartbeat(0)
    assert (bench.partition().leader, bench.partition().recovery) == (0, 1)


def test_unfencing_does_not_override_a_mark() -> None:
    bench = Bench()
    bench.start(0)
    bench.create(factor=1)
    marked = replace(bench.partition(), marks=(NodeId(0),), leader=NO_NODE)
    bench.commit((marked,))
    bench.register(0, trusted=False)
    bench.heartbeat(0)
    assert bench.partition().leader == NO_NODE
