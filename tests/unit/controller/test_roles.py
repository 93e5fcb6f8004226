"""SET_PARTITION_ROLE: marks and pins (controller/DESIGN 8)."""

from __future__ import annotations

import pytest

from paceline.errors import (
    InvalidRequest,
    NotAReplica,
    PacelineError,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)
from paceline.types import NO_NODE, NodeId
from paceline.wire.native.admin import ElectLeader, FenceBroker, RoleSet, SetRole
from tests.unit.controller.bench import TERM, Bench


def four() -> Bench:
    bench = Bench()
    bench.start(0, 1, 2, 3)
    bench.create()
    return bench


def set_role(bench: Bench, node: int, role: str) -> RoleSet:
    reply = bench.ask(SetRole("orders", 0, NodeId(node), role))
    assert isinstance(reply, RoleSet)
    return reply


def test_follower_at_the_leader_moves_leadership() -> None:
    bench = four()
    assert set_role(bench, 0, "follower") == RoleSet(NodeId(1), 1, bench.image.offset, TERM)
    partition = bench.partition()
    assert (partition.leader, partition.isr) == (1, (0, 1, 2))
    assert (partition.marks, partition.pinned) == ((0,), True)


def test_follower_at_a_follower_marks_it() -> None:
    bench = four()
    set_role(bench, 1, "follower")
    assert (bench.partition().leader, bench.partition().marks) == (0, (1,))
    set_role(bench, 0, "follower")
    assert bench.partition().leader == 2


def test_all_marked_leaves_no_leader_until_one_is_cleared() -> None:
    bench = four()
    for node in (0, 1, 2):
        set_role(bench, node, "follower")
    assert (bench.partition().leader, bench.partition().isr) == (NO_NODE, (0, 1, 2))
    assert set_role(bench, 1, "auto").leader == 1
    assert bench.partition().marks == (0, 2)


def test_leader_clears_the_mark_and_elects() -> None:
    bench = four()
    set_role(bench, 2, "follower")
    reply = set_role(bench, 2, "leader")
    assert reply.leader == 2
    assert (bench.partition().marks, bench.partition().pinned) == ((), True)


def test_leader_at_the_leader_only_pins() -> None:
    bench = four()
    epoch = bench.partition().leader_epoch
    assert set_role(bench, 0, "leader").leader_epoch == epoch
    assert bench.partition().pinned
    image = bench.image
    set_role(bench, 0, "leader")
    assert bench.image is image


def test_auto_clears_mark_and_pin() -> None:
    bench = four()
    set_role(bench, 0, "follower")
    set_role(bench, 0, "auto")
    assert (bench.partition().marks, bench.partition().pinned) == ((), False)
    assert bench.partition().leader == 1


def test_repeated_follower_changes_nothing() -> None:
    bench = four()
    set_role(bench, 0, "follower")
    image = bench.image
    assert set_role(bench, 0, "follower").leader == 1
    assert bench.image is image


@pytest.mark.parametrize(
    ("node", "role", "error", "text"),
    [
        (1, "leader", PreferredLeaderNotAvailable, "replica is not in sync"),
        (2, "leader", PreferredLeaderNotAvailable, "fenced or shutting down"),
        (3, "leader", NotAReplica, "node 3 is not a replica"),
        (3, "follower", NotAReplica, "node 3 is not a replica"),
        (0, "boss", InvalidRequest, "expected leader, follower or auto"),
    ],
)
def test_refused_changes_nothing(
    node: int, role: str, error: type[PacelineError], text: str
) -> None:
    bench = four()
    for other in (1, 2):
        set_role(bench, other, "follower")
    bench.fence(1)
    bench.ask(FenceBroker(NodeId(2), True))
    image = bench.image
    with pytest.raises(error, match=text):
        set_role(bench, node, role)
    assert bench.image is image


@pytest.mark.parametrize("asked", ["role", "election"])
def test_who_would_hand_over_at_once_is_not_made_leader(asked: str) -> None:
    """OK would be taken back by the next heartbeat."""
    bench = four()

    def lead() -> None:
        if asked == "role":
            set_role(bench, 1, "leader")
        else:
            bench.ask(ElectLeader("orders", 0, NodeId(1)))

    bench.heartbeat(1, degraded=True)
    image = bench.image
    with pytest.raises(PreferredLeaderNotAvailable, match="disk is full or slow, and that of node"):
        lead()
    assert bench.image is image
    for node in (0, 2):
        bench.heartbeat(node, degraded=True)
    lead()
    bench.heartbeat(1, degraded=True)
    assert bench.partition().leader == 1, "nobody is better"


def test_unknown_topic() -> None:
    with pytest.raises(UnknownTopicOrPartition):
        four().ask(SetRole("nope", 0, NodeId(0), "leader"))


def test_single_node_behaves_as_the_original() -> None:
    bench = Bench()
    bench.start(0)
    bench.create(factor=3)
    assert set_role(bench, 0, "follower").leader == NO_NODE
    assert bench.partition().isr == (0,)
    assert set_role(bench, 0, "leader").leader == 0


def test_marked_sole_replica_leads_again_after_an_untrusted_start() -> None:
    bench = Bench()
    bench.start(0)
    bench.create(factor=1)
    set_role(bench, 0, "follower")
    bench.register(0, trusted=False)
    bench.heartbeat(0)
    assert bench.partition().leader == NO_NODE
    assert set_role(bench, 0, "leader").leader == 0


def test_eligible_replica_is_elected_by_clearing_its_mark() -> None:
    bench = four()
    bench.fence(2)
    set_role(bench, 1, "follower")
    bench.fence(1)
    bench.fence(0)
    assert (bench.partition().isr, bench.partition().elr) == ((), (0, 1))
    bench.heartbeat(1)
    assert bench.partition().leader == NO_NODE
    assert set_role(bench, 1, "leader").leader == 1
    assert bench.partition().elr == (0,)
