"""Truncation by leader epoch: the vectors of replication/DESIGN 3.4, exchange by exchange."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from paceline.errors import ErrorCode
from paceline.types import NodeId
from paceline_cluster.sim.replicas.simlog import SimLog
from paceline_node.replication.follower import FetchOutcome, truncation_point
from paceline_node.replication.replica import Replica
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.producers import FrozenTable
from tests.sim.replication.build import answer_fetch, brokers, log_of, registration


@dataclass(frozen=True)
class Vector:
    """Epochs per offset of both logs, and the steps ``fetch(offset, epoch) -> result``."""

    name: str
    leader: tuple[int, ...]
    epoch: int
    follower: tuple[int, ...]
    steps: tuple[str, ...]


VECTORS = (
    Vector("in sync", (1, 1, 2), 3, (1, 1, 2), ("fetch(3,2) ok",)),
    Vector("behind, same epoch", (1, 1, 1, 1), 2, (1, 1), ("fetch(2,1) ok",)),
    Vector("behind, later epoch exists", (1, 1, 2, 2), 3, (1, 1), ("fetch(2,1) ok",)),
    Vector(
        "ahead, same epoch",
        (1, 1),
        2,
        (1, 1, 1, 1),
        ("fetch(4,1) div(1,2) truncate 2", "fetch(2,1) ok"),
    ),
    Vector(
        "ahead, epoch unknown to leader",
        (1, 1),
        3,
        (1, 1, 2, 2),
        ("fetch(4,2) div(1,2) truncate 2", "fetch(2,1) ok"),
    ),
    Vector(
        "fork",
        (1, 1, 3, 3),
        4,
        (1, 1, 2, 2),
        ("fetch(4,2) div(1,2) truncate 2", "fetch(2,1) ok"),
    ),
    Vector(
        "fork, leader longer in old epoch",
        (1, 1, 1),
        4,
        (1, 2, 2),
        ("fetch(3,2) div(1,3) truncate 1", "fetch(1,1) ok"),
    ),
    Vector(
        "no common epoch",
        (2, 2),
        4,
        (3, 3),
        ("fetch(2,3) div(2,2) truncate 0", "fetch(0,-1) ok"),
    ),
    Vector(
        "two rounds",
        (1, 1, 3, 3, 5),
        6,
        (1, 1, 1, 2, 2, 4, 4),
        ("fetch(7,4) div(3,4) truncate 5", "fetch(5,2) div(1,2) truncate 2", "fetch(2,1) ok"),
    ),
    Vector("leader empty", (), 2, (1, 1), ("fetch(2,1) div(1,0) truncate 0", "fetch(0,-1) ok")),
    Vector(
        "short terms",
        (1, 2, 4, 6),
        7,
        (1, 2, 3, 3, 5, 5),
        ("fetch(6,5) div(4,3) truncate 4", "fetch(4,3) div(2,2) truncate 2", "fetch(2,2) ok"),
    ),
)


def exchange(leader: Replica, follower: Replica) -> str:
    """One fetch and what came of it, in the words of the table."""
    position = follower.start_fetch(1, 1024)
    assert position is not None
    answer, records = answer_fetch(leader, follower.me, position)
    outcome = follower.on_fetched(1, answer, memoryview(records))
    fetch = f"fetch({position.fetch_offset},{position.last_fetched_epoch})"
    if outcome is FetchOutcome.TRUNCATED:
        end = answer.diverging_end_offset
        return f"{fetch} div({answer.diverging_epoch},{end}) truncate {follower.log.log_end_offset}"
    assert answer.error == ErrorCode.NONE
    assert outcome in (FetchOutcome.APPENDED, FetchOutcome.IDLE)
    return f"{fetch} ok"


def pair(vector: Vector) -> tuple[Replica, Replica]:
    leader = Replica(NodeId(0), SimLog.of_epochs(vector.leader))
    follower = Replica(NodeId(1), SimLog.of_epochs(vector.follower))
    elected = registration(0, vector.epoch)
    leader.apply(elected, brokers(), 0.0)
    follower.apply(elected, brokers(), 0.0)
    return leader, follower


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_vector(vector: Vector) -> None:
    leader, follower = pair(vector)
    assert tuple(exchange(leader, follower) for _ in vector.steps) == vector.steps
    assert log_of(follower).records == log_of(leader).records


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_diverging_follower_is_not_counted(vector: Vector) -> None:
    leader, follower = pair(vector)
    assert leader.leader is not None
    for step in vector.steps:
        assert exchange(leader, follower) == step
        assert (follower.me in leader.leader.followers) == step.endswith("ok")


def test_point_with_an_empty_epoch_table_follows_the_leader() -> None:
    assert truncation_point(EpochCache(), 5, 3, 4) == 4


def test_point_keeps_what_lies_below_our_next_epoch() -> None:
    assert truncation_point(EpochCache([(1, 0), (4, 6)]), 9, 3, 8) == 6


def test_cut_below_log_start_resets_to_the_leaders_start() -> None:
    leader = Replica(NodeId(0), SimLog.of_epochs((1, 1, 3)))
    log = SimLog.of_epochs((1, 1, 2, 2, 2))
    log.advance_start(4)
    follower = Replica(NodeId(1), log)
    elected = registration(0, 4, isr=(0, 2))  # what lies below a log start is committed
    leader.apply(elected, brokers(), 0.0)
    follower.apply(elected, brokers(), 0.0)
    # The follower's epoch 2 begins at its log start, above the leader's end of epoch 1.
    position = follower.start_fetch(1, 1024)
    assert position is not None
    answer, records = answer_fetch(leader, 1, position)
    assert (answer.diverging_epoch, answer.diverging_end_offset) == (1, 2)
    assert follower.on_fetched(1, answer, memoryview(records)) is FetchOutcome.BEHIND
    assert follower.begin_at(FrozenTable(answer.state_offset))
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)


class _Batched(SimLog):
    """Its records lie in batches of two, from offset 1 on."""

    def end_if_cut(self, offset: int) -> int:
        return offset - (offset + 1) % 2


def test_cut_inside_the_batch_at_the_log_start_resets_too() -> None:
    """The batch would go as a whole, and the log end below its start."""
    leader = Replica(NodeId(0), SimLog.of_epochs((1, 1, 3)))
    log = _Batched.of_epochs((1, 1, 2, 2, 2))
    log.advance_start(2)
    follower = Replica(NodeId(1), log)
    for replica in (leader, follower):
        replica.apply(registration(0, 4), brokers(), 0.0)
    position = follower.start_fetch(1, 1024)
    assert position is not None
    answer, records = answer_fetch(leader, 1, position)
    assert follower.on_fetched(1, answer, memoryview(records)) is FetchOutcome.BEHIND
    assert log.log_end_offset == 5


def test_follower_behind_the_leaders_log_start_starts_anew() -> None:
    log = SimLog.of_epochs((1, 1, 1, 1))
    log.advance_start(3)
    leader = Replica(NodeId(0), log)
    follower = Replica(NodeId(1), SimLog.of_epochs((1,)))
    elected = registration(0, 2)
    leader.apply(elected, brokers(), 0.0)
    follower.apply(elected, brokers(), 0.0)
    position = follower.start_fetch(1, 1024)
    assert position is not None
    answer, records = answer_fetch(leader, 1, position)
    assert answer.error == ErrorCode.OFFSET_OUT_OF_RANGE
    assert follower.on_fetched(1, answer, memoryview(records)) is FetchOutcome.BEHIND
    assert follower.log.log_end_offset == 1  # until the leader's state is here
    assert follower.begin_at(FrozenTable(answer.state_offset))
    assert not follower.begin_at(FrozenTable(answer.state_offset))
    assert follower.log.log_start_offset == 3
    assert follower.high_watermark == 3


def test_a_term_led_without_a_write_is_no_fork() -> None:
    """Found by simulation: the follower named its empty term as its last epoch, was told to
    truncate to its own end, and never got further."""
    follower = Replica(NodeId(1), SimLog.of_epochs((1, 1)))
    follower.apply(registration(1, 2), brokers(), 0.0)
    leader = Replica(NodeId(0), SimLog.of_epochs((1, 1)))
    elected = registration(0, 3, 2)
    leader.apply(elected, brokers(), 0.0)
    follower.apply(elected, brokers(), 0.0)
    assert exchange(leader, follower) == "fetch(2,1) ok"
