"""A replica's roles and its judgement of fetches and answers (replication/DESIGN 3.1 to 3.4)."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from paceline.errors import ErrorCode, NotEnoughReplicas, NotLeader
from paceline.types import NO_NODE, Acks, BrokerEpoch, LeaderEpoch, NodeId
from paceline_cluster.sim.replicas.simlog import SimLog
from paceline_node.replication.follower import FetchOutcome
from paceline_node.replication.registration_gate import RegistrationGate
from paceline_node.replication.replica import (
    ACCEPTED,
    FollowerIdentity,
    Replica,
    Role,
    Transition,
)
from tests.sim.replication.build import (
    answer_fetch,
    brokers,
    fetch_once,
    identity,
    log_of,
    next_registration,
    registration,
)


def elected(node: int = 0, epochs: tuple[int, ...] = (1, 1), epoch: int = 2) -> Replica:
    replica = Replica(NodeId(node), SimLog.of_epochs(epochs))
    replica.apply(registration(node, epoch), brokers(), 0.0)
    return replica


def following(epochs: tuple[int, ...] = (1, 1), epoch: int = 2) -> Replica:
    replica = Replica(NodeId(1), SimLog.of_epochs(epochs))
    replica.apply(registration(0, epoch), brokers(), 0.0)
    return replica


def test_gate_admits_nothing_before_the_own_registration() -> None:
    gate = RegistrationGate()
    assert not gate.admits(10**9)
    gate.registered(7)
    assert not gate.admits(6)
    assert gate.admits(7)


def test_roles_by_registration() -> None:
    replica = Replica(NodeId(0), SimLog())
    first = registration(0, 1)
    assert replica.apply(first, brokers(), 0.0) is Transition.LEADER
    assert replica.apply(first, brokers(), 0.0) is Transition.NOTHING
    second = next_registration(first, isr=(NodeId(0), NodeId(1)))
    assert replica.apply(second, brokers(), 0.0) is Transition.ADOPTED
    third = next_registration(second, leader=NO_NODE, leader_epoch=LeaderEpoch(2))
    assert replica.apply(third, brokers(), 0.0) is Transition.LEADERLESS
    fourth = next_registration(third, leader=NodeId(1), leader_epoch=LeaderEpoch(3))
    assert replica.apply(fourth, brokers(), 0.0) is Transition.FOLLOWER
    fifth = next_registration(fourth, isr=(NodeId(1),))
    assert replica.apply(fifth, brokers(), 0.0) is Transition.NOTHING
    assert replica.role is Role.FOLLOWER
    sixth = next_registration(fifth, replicas=(NodeId(1), NodeId(2)), leader_epoch=LeaderEpoch(4))
    assert replica.apply(sixth, brokers(), 0.0) is Transition.REMOVED
    assert replica.role is Role.NONE


def test_going_back_in_metadata_is_a_bug() -> None:
    replica = elected()
    with pytest.raises(AssertionError):
        replica.apply(registration(0, 1), brokers(), 0.0)


def test_leading_in_an_epoch_the_log_has_seen_is_a_bug() -> None:
    replica = Replica(NodeId(0), SimLog.of_epochs((1, 3)))
    with pytest.raises(AssertionError):
        replica.apply(registration(0, 3), brokers(), 0.0)


def test_every_leader_epoch_starts_without_knowledge_of_followers() -> None:
    replica = elected()
    assert replica.leader is not None
    fetch_once(replica, following())
    assert list(replica.leader.followers) == [1]
    replica.apply(registration(0, 5, 5), brokers(), 1.0)
    assert not replica.leader.followers
    assert replica.leader.start_offset == 2


def test_high_watermark_is_true_from_the_start_offset_on() -> None:
    leader = elected()
    assert not leader.high_watermark_is_true
    for node in (1, 2):
        follower = Replica(NodeId(node), SimLog.of_epochs((1, 1)))
        follower.apply(registration(0, 2), brokers(), 0.0)
        fetch_once(leader, follower)
    assert leader.high_watermark == 2
    assert leader.high_watermark_is_true


def test_produce_is_refused_without_leadership_or_replicas() -> None:
    with pytest.raises(NotLeader):
        following().check_produce(Acks.LEADER, 1)
    leader = elected()
    leader.check_produce(Acks.ALL, 3)
    leader.apply(registration(0, 2, 2, isr=(0,)), brokers(), 0.0)
    with pytest.raises(
        NotEnoughReplicas, match=r"^1 replica is in sync \(node 0\), and min.insync.replicas is 2$"
    ):
        leader.check_produce(Acks.ALL, 2)
    leader.check_produce(Acks.LEADER, 2)


def test_leader_counts_itself_by_what_is_durable() -> None:
    leader = Replica(NodeId(0), SimLog())
    leader.apply(registration(0, 1, isr=(0,), min_isr=1), brokers(), 0.0)
    log_of(leader).append(1, 42)
    assert not leader.advance()
    log_of(leader).flush()
    assert leader.advance()
    assert leader.high_watermark == 1


def test_flush_modes_without_sync_count_the_log_end() -> None:
    leader = Replica(NodeId(0), SimLog(), counts_durable=False)
    leader.apply(registration(0, 1, isr=(0,), min_isr=1), brokers(), 0.0)
    log_of(leader).append(1, 42)
    assert leader.advance()


def test_high_watermark_rests_below_min_isr() -> None:
    leader = Replica(NodeId(0), SimLog())
    leader.apply(registration(0, 1, isr=(0,), min_isr=2), brokers(), 0.0)
    log_of(leader).append(1, 42)
    log_of(leader).flush()
    assert not leader.advance()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"current_leader_epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 3}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"fetch_offset": 3, "last_fetched_epoch": -1}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"fetch_offset": 2, "last_fetched_epoch": 9}, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_refused_fetches_change_nothing(change: dict[str, int], expected: ErrorCode) -> None:
    leader = elected()
    position = replace(following().position(1024), **change)  # type: ignore[arg-type]
    assert leader.on_fetch(identity(1), position, 0.0).error == expected
    assert leader.leader is not None
    assert not leader.leader.followers


def test_fetch_from_a_stranger_or_a_former_process_is_refused() -> None:
    leader = elected()
    position = following().position(1024)
    stranger = leader.on_fetch(identity(4), position, 0.0)
    assert stranger.error == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert leader.on_fetch(identity(1, 9), position, 0.0).error == ErrorCode.STALE_BROKER_EPOCH
    other_disk = FollowerIdentity(NodeId(1), BrokerEpoch(10), UUID(int=5))
    assert leader.on_fetch(other_disk, position, 0.0).error == ErrorCode.STALE_BROKER_EPOCH
    assert leader.on_fetch(identity(1, 12), position, 0.0) is ACCEPTED
    # A fetch has shown a newer process than the metadata here knows: the older one is stale now.
    assert leader.on_fetch(identity(1, 11), position, 0.0).error == ErrorCode.STALE_BROKER_EPOCH


def test_non_leader_refuses_fetches() -> None:
    check = following().on_fetch(identity(2), following().position(1024), 0.0)
    assert check.error == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_parked_fetch_is_judged_again_without_moving_the_follower_back() -> None:
    leader = elected()
    position = following().position(1024)
    leader.on_fetch(identity(1), position, 0.0)
    log_of(leader).append(2, 1)
    later = replace(position, fetch_offset=3, durable_offset=3, last_fetched_epoch=LeaderEpoch(2))
    leader.on_fetch(identity(1), later, 1.0)
    assert leader.check_fetch(identity(1), position) is ACCEPTED
    assert leader.leader is not None
    assert leader.leader.followers[NodeId(1)].ack == 3


def test_follower_moves_its_high_watermark_no_further_than_its_log() -> None:
    leader = elected(epochs=(1, 1, 1, 1))
    leader.high_watermark = 4
    follower = following((1, 1))
    assert fetch_once(leader, follower, count=1) is FetchOutcome.APPENDED
    assert follower.high_watermark == 3


@pytest.mark.parametrize("what", ["nonce", "epoch", "echo", "twice", "role"])
def test_answers_that_do_not_fit_are_dropped(what: str) -> None:
    leader = elected(epochs=(1, 1, 1))
    follower = following((1, 1))
    position = follower.start_fetch(5, 1024)
    assert position is not None
    answer, records = answer_fetch(leader, 1, position)
    nonce = 5
    if what == "nonce":
        nonce = 6
    elif what == "epoch":
        answer = replace(answer, leader_epoch=LeaderEpoch(1))
    elif what == "echo":
        answer = replace(answer, fetch_offset=1)
    elif what == "twice":
        assert follower.on_fetched(5, answer, memoryview(records)) is FetchOutcome.APPENDED
    else:
        follower.apply(registration(2, 3, 3), brokers(), 0.0)
    before = list(log_of(follower).records)
    assert follower.on_fetched(nonce, answer, memoryview(records)) is FetchOutcome.DROPPED
    assert log_of(follower).records == before


def test_corrupt_records_are_not_appended_and_raise_suspicion() -> None:
    leader = elected(epochs=(1, 1, 1))
    follower = following((1,))
    assert follower.follower is not None
    for attempt in (1, 2, 3):
        position = follower.start_fetch(attempt, 1024)
        assert position is not None
        answer, records = answer_fetch(leader, 1, position)
        torn = records[20:]  # the first record is missing
        assert follower.on_fetched(attempt, answer, memoryview(torn)) is FetchOutcome.CORRUPT
        assert follower.follower.count_corrupt() is (attempt == 3)
    assert follower.log.log_end_offset == 1


def test_refused_follower_waits() -> None:
    leader = elected(epoch=3)
    follower = following(epoch=2)
    assert fetch_once(leader, follower) is FetchOutcome.REFUSED


def test_log_start_follows_the_leader() -> None:
    leader = elected(epochs=(1, 1, 1))
    leader.high_watermark = 3
    log_of(leader).advance_start(2)
    follower = following((1, 1, 1))
    fetch_once(leader, follower)
    assert follower.log.log_start_offset == 2
