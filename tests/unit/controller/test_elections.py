"""ELECT_LEADER, unclean elections, the balancer, an operator's fence (controller/DESIGN 5.4, 7,
11.2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.errors import (
    BrokerNotRegistered,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    NotAReplica,
    PacelineError,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from paceline.types import NO_NODE, NodeId
from paceline.wire.native.admin import ElectLeader, FenceBroker, RoleSet, SetRole
from paceline_node.controller import elections
from tests.unit.controller.bench import TERM, Bench
from tests.unit.controller.invariants import check_image


def four(partitions: int = 1) -> Bench:
    bench = Bench()
    bench.start(0, 1, 2, 3)
    bench.create(partitions=partitions)
    return bench


def elect(bench: Bench, node: int, *, number: int = 0, unclean: bool = False) -> RoleSet:
    reply = bench.ask(ElectLeader("orders", number, NodeId(node), unclean=unclean))
    assert isinstance(reply, RoleSet)
    return reply


def test_named_and_preferred_leader() -> None:
    bench = four()
    assert elect(bench, 2) == RoleSet(NodeId(2), 1, bench.image.offset, TERM)
    assert bench.partition().leader == 2
    assert not bench.partition().pinned
    assert elect(bench, NO_NODE).leader == 0


def test_pin_is_kept_where_asked_for() -> None:
    bench = four()
    bench.ask(ElectLeader("orders", 0, NodeId(1), pin=True))
    assert bench.partition().pinned
    elect(bench, 2)
    assert bench.partition().pinned


@pytest.mark.parametrize(
    ("node", "error", "reason"),
    [
        (0, ElectionNotNeeded, "node 0 leads already"),
        (NO_NODE, ElectionNotNeeded, "node 0 leads already"),
        (1, PreferredLeaderNotAvailable, "not in sync"),
        (2, PreferredLeaderNotAvailable, "follower mark"),
        (3, NotAReplica, "node 3 is not a replica"),
    ],
)
def test_refusals_change_nothing(node: int, error: type[PacelineError], reason: str) -> None:
    bench = four()
    bench.fence(1)
    bench.ask(SetRole("orders", 0, NodeId(2), "follower"))
    image = bench.image
    with pytest.raises(error, match=reason):
        elect(bench, node)
    assert bench.image is image


def test_a_broker_that_an_operator_holds_is_not_elected() -> None:
    bench = four()
    bench.ask(FenceBroker(NodeId(1), True))
    with pytest.raises(PreferredLeaderNotAvailable, match="fenced"):
        elect(bench, 1)


@pytest.mark.parametrize(
    ("topic", "number", "text"),
    [("nope", 0, "topic not found: nope"), ("orders", 9, "topic=orders partition=9")],
)
def test_unknown_partition(topic: str, number: int, text: str) -> None:
    with pytest.raises(UnknownTopicOrPartition, match=text):
        four().ask(ElectLeader(topic, number, NO_NODE))


# --- unclean -----------------------------------------------------------------------------------


def only_out_of_sync_left() -> Bench:
    """Node 2 left while 0 and 1 were in sync; then both died."""
    bench = four()
    for node in (2, 1, 0):
        bench.fence(node)
    bench.heartbeat(2)
    assert bench.partition().leader == NO_NODE
    return bench


@pytest.mark.parametrize("node", [2, NO_NODE])
def test_unclean_election_of_the_survivor(node: int) -> None:
    bench = only_out_of_sync_left()
    epoch = bench.partition().leader_epoch
    assert elect(bench, node, unclean=True).leader == 2
    partition = bench.partition()
    assert (partition.isr, partition.elr, partition.recovery) == ((2,), (), 1)
    assert partition.leader_epoch == epoch + 1
    check_image(bench.image)


def test_unclean_prefers_the_last_known_complete() -> None:
    bench = only_out_of_sync_left()
    for node in (0, 1):
        bench.register(node, trusted=False)
    bench.heartbeat(1)
    assert bench.partition().lkelr == (0, 1)
    assert elect(bench, NO_NODE, unclean=True).leader == 1


def test_unclean_is_refused_while_there_is_a_leader() -> None:
    with pytest.raises(ElectionNotNeeded, match="nothing to recover"):
        elect(four(), 1, unclean=True)


def test_unclean_is_refused_while_a_complete_replica_lives() -> None:
    bench = four()
    for node in (0, 1, 2):
        bench.ask(SetRole("orders", 0, NodeId(node), "follower"))
    assert bench.partition().leader == NO_NODE
    with pytest.raises(ElectionNotNeeded, match="alive and complete"):
        elect(bench, 2, unclean=True)


@pytest.mark.parametrize("node", [0, NO_NODE])
def test_unclean_needs_a_live_replica(node: int) -> None:
    bench = only_out_of_sync_left()
    bench.fence(2)
    with pytest.raises(EligibleLeadersNotAvailable, match="no live replica"):
        elect(bench, node, unclean=True)


# --- operator's fence ----------------------------------------------------------------------------


def test_operator_moves_leaderships_away_but_not_the_replica() -> None:
    bench = four()
    bench.ask(FenceBroker(NodeId(0), True))
    assert (bench.partition().leader, bench.partition().isr) == (1, (0, 1, 2))
    assert bench.image.brokers[NodeId(0)].operator_fenced
    bench.start(0)
    assert bench.image.brokers[NodeId(0)].operator_fenced, "lasts over restarts"
    image = bench.image
    bench.ask(FenceBroker(NodeId(0), True))
    assert bench.image is image


def test_lone_broker_held_by_the_operator() -> None:
    bench = Bench()
    bench.start(0)
    bench.create(factor=1)
    bench.ask(FenceBroker(NodeId(0), True))
    assert (bench.partition().leader, bench.partition().isr) == (NO_NODE, (0,))
    bench.ask(FenceBroker(NodeId(0), False))
    assert bench.partition().leader == 0


def test_fencing_an_unknown_broker() -> None:
    with pytest.raises(BrokerNotRegistered, match="broker not found: 9"):
        four().ask(FenceBroker(NodeId(9), True))


# --- balancer ------------------------------------------------------------------------------------


def balance(bench: Bench) -> int:
    draft = bench.draft()
    moves = elections.balance(draft)
    bench.commit(tuple(draft.records))
    return moves


def after_restart_of_0(partitions: int) -> Bench:
    """Node 0 restarted and is in sync again, but leads nothing."""
    bench = four(partitions)
    bench.start(0)
    for number, partition in bench.image.topic("orders").partitions.items():
        if 0 in partition.replicas:
            assert bench.propose(tuple(int(n) for n in partition.replicas), number) == 0
    return bench


def test_leaderships_return_to_preferred_replicas() -> None:
    bench = after_restart_of_0(partitions=8)
    preferred = sum(p.replicas[0] == 0 for p in bench.image.partitions())
    assert preferred == 2
    assert balance(bench) == preferred
    assert all(p.leader == p.replicas[0] for p in bench.image.partitions())
    assert balance(bench) == 0


@pytest.mark.parametrize("reason", ["pinned", "marked", "degraded", "held", "out of sync"])
def test_balancer_leaves_alone(reason: str) -> None:
    bench = after_restart_of_0(partitions=1)
    if reason == "pinned":
        bench.ask(ElectLeader("orders", 0, NodeId(2), pin=True))
    elif reason == "marked":
        bench.commit((replace(bench.partition(), marks=(NodeId(0),)),))
    elif reason == "degraded":
        bench.heartbeat(0, degraded=True)
    elif reason == "held":
        bench.ask(FenceBroker(NodeId(0), True))
    else:
        bench.fence(0)
    assert balance(bench) == 0


def test_balancer_tolerates_a_tenth() -> None:
    bench = four(partitions=80)
    assert sum(p.replicas[0] == 0 for p in bench.image.partitions()) == 20
    moved = [p.partition for p in bench.image.partitions() if p.leader == 0]
    for number in moved[:2]:
        elect(bench, 1 if 1 in bench.partition(number).isr else 2, number=number)
    assert balance(bench) == 0
    elect(bench, 1 if 1 in bench.partition(moved[2]).isr else 2, number=moved[2])
    assert balance(bench) == 3


def test_balancer_moves_at_most_fifty_at_once() -> None:
    bench = four(partitions=400)
    bench.start(0)
    for number, partition in bench.image.topic("orders").partitions.items():
        if 0 in partition.replicas:
            bench.propose(tuple(int(n) for n in partition.replicas), number)
    assert balance(bench) == 50
    assert balance(bench) == 50
