"""Histories that broke other systems, played step by step (sim/DESIGN 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.errors import ErrorCode
from paceline.types import NO_NODE, LeaderEpoch, NodeId
from paceline_cluster.sim.replicas.simlog import SimLog
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.controller.partition_change import Change, change_partition
from paceline_node.replication.follower import FetchOutcome
from paceline_node.replication.leader import ALREADY_MEMBER
from paceline_node.replication.registration_gate import RegistrationGate
from paceline_node.replication.replica import Replica, Role
from tests.sim.replication.build import (
    SimBrokerView,
    answer_fetch,
    broker,
    brokers,
    fetch_once,
    log_of,
    next_registration,
    registration,
)


@dataclass(frozen=True)
class Living:
    """An electorate of these nodes."""

    nodes: frozenset[int]

    def electable(self, node: NodeId) -> bool:
        return node in self.nodes

    def degraded(self, node: NodeId) -> bool:
        return False


def changed(
    partition: PartitionRegistration, living: set[int], change: Change
) -> PartitionRegistration:
    result = change_partition(partition, Living(frozenset(living)), change)
    assert result is not None
    return result


def start(*nodes: int, first: PartitionRegistration) -> list[Replica]:
    replicas = [Replica(NodeId(node), SimLog()) for node in nodes]
    for replica in replicas:
        replica.apply(first, brokers(), 0.0)
    return replicas


def write(leader: Replica, value: int) -> int:
    offset = log_of(leader).append(leader.leader_epoch, value)
    log_of(leader).flush()
    leader.advance()
    return offset


def settle(leader: Replica, *followers: Replica) -> None:
    """Rounds of fetches until nothing moves."""
    for nonce in range(1, 12):
        for follower in followers:
            fetch_once(leader, follower, nonce=nonce)


def tell(registered: PartitionRegistration, *replicas: Replica) -> None:
    for replica in replicas:
        replica.apply(registered, brokers(), 0.0)


def test_kip_101_follower_that_has_not_heard_of_the_high_watermark_keeps_its_records() -> None:
    """A committed record lies above the follower's known high watermark; both restart in turn."""
    first = registration(0, 1, isr=(0, 1), replicas=(0, 1))
    a, b = start(0, 1, first=first)
    write(a, 1)
    write(a, 2)
    fetch_once(a, b)
    fetch_once(a, b)  # tells the leader that b holds both
    assert a.high_watermark == 2
    b = Replica(NodeId(1), log_of(b), high_watermark=0)  # its checkpoint is old
    b.apply(first, brokers(), 0.0)
    assert b.high_watermark == 0
    # The leader dies before b hears anything: b is elected and must still have the record.
    second = next_registration(first, leader=NodeId(1), isr=(NodeId(1),), leader_epoch=2)
    tell(second, b)
    assert b.log.log_end_offset == 2
    write(b, 3)
    a = Replica(NodeId(0), log_of(a), high_watermark=2)
    a.apply(second, brokers(), 0.0)
    settle(b, a)
    assert [value for _, value in log_of(a).records] == [1, 2, 3]


def test_kip_279_fast_successive_leaders_diverge_and_converge() -> None:
    first = registration(0, 1, isr=(0, 1), replicas=(0, 1), min_isr=1)
    a, b = start(0, 1, first=first)
    write(a, 1)
    settle(a, b)
    # b leads alone and writes one record; a then leads with its own, neither saw the other's.
    second = next_registration(first, leader=NodeId(1), leader_epoch=LeaderEpoch(2))
    b.apply(second, brokers(), 0.0)
    log_of(b).append(2, 20)
    third = next_registration(second, leader=NodeId(0), leader_epoch=LeaderEpoch(3))
    a.apply(third, brokers(), 0.0)
    log_of(a).append(3, 30)
    log_of(a).append(3, 31)
    tell(third, b)
    assert fetch_once(a, b) is FetchOutcome.TRUNCATED
    settle(a, b)
    assert log_of(b).records == log_of(a).records == [(1, 1), (3, 30), (3, 31)]


def test_kip_320_zombie_leader_commits_nothing() -> None:
    """A leader that does not know it was deposed appends, and gets no acknowledgement."""
    first = registration(0, 1)
    a, b, c = start(0, 1, 2, first=first)
    write(a, 1)
    settle(a, b, c)
    second = next_registration(
        first, leader=NodeId(1), isr=(NodeId(1), NodeId(2)), leader_epoch=LeaderEpoch(2)
    )
    tell(second, b, c)
    write(a, 666)
    assert fetch_once(a, c) is FetchOutcome.REFUSED  # c fetches in epoch 2
    assert a.high_watermark == 1
    write(b, 2)
    settle(b, c)
    assert b.high_watermark == 2
    tell(second, a)
    settle(b, a)
    assert [value for _, value in log_of(a).records] == [1, 2]


def test_kip_320_late_answer_of_a_zombie_is_dropped() -> None:
    first = registration(0, 1)
    a, b, c = start(0, 1, 2, first=first)
    write(a, 1)
    position = c.start_fetch(1, 1024)
    assert position is not None
    answer, records = answer_fetch(a, 2, position)
    second = next_registration(first, leader=NodeId(1), leader_epoch=LeaderEpoch(2))
    tell(second, b, c)
    assert c.on_fetched(1, answer, memoryview(records)) is FetchOutcome.DROPPED
    assert c.log.log_end_offset == 0


def test_kip_966_last_replica_standing_does_not_take_the_records_with_it() -> None:
    """The ISR falls to the leader, which loses its disk: the others are in the ELR and lead."""
    first = registration(0, 1)
    a, b, c = start(0, 1, 2, first=first)
    write(a, 1)
    settle(a, b, c)
    assert a.high_watermark == 1
    second = changed(first, {0}, Change(isr=[NodeId(0)]))
    assert second.elr == (1, 2)
    tell(second, a)
    write(a, 2)
    assert a.high_watermark == 1  # one member is fewer than min ISR: nothing is committed
    third = changed(second, {1, 2}, Change(isr=[], untrusted=frozenset((NodeId(0),))))
    assert (third.leader, third.isr, third.elr, third.lkelr) == (1, (1,), (2,), (0,))
    tell(third, b, c)
    settle(b, c)
    assert b.log.log_end_offset == 1
    assert log_of(b).at(0) == (1, 1)


def test_reelection_with_merged_metadata_forgets_what_followers_said() -> None:
    """The leader is deposed and re-elected before it hears of either: an old ack lies."""
    first = registration(0, 1, isr=(0, 1))
    a, b, c = start(0, 1, 2, first=first)
    for value in (1, 2, 3):
        write(a, value)
    settle(a, b)
    assert a.high_watermark == 3
    # Meanwhile b led in epoch 2 and lost its tail legitimately (untrusted, re-admitted by c ...).
    log_of(b).truncate(1)
    third = next_registration(first, leader_epoch=LeaderEpoch(3))
    tell(third, a)
    write(a, 4)
    assert a.high_watermark == 3
    assert a.leader is not None
    assert not a.leader.followers
    tell(third, b)
    fetch_once(a, b)
    assert a.high_watermark == 3  # b said 1, not 3
    settle(a, b)
    assert a.high_watermark == 4
    assert c.role is Role.FOLLOWER


def test_removed_and_readded_follower_joins_only_by_a_fetch_in_the_new_epoch() -> None:
    first = registration(0, 1, isr=(0, 1), replicas=(0, 1, 2))
    a, b, c = start(0, 1, 2, first=first)
    write(a, 1)
    settle(a, b)
    fetch_once(a, c)
    fetch_once(a, c)
    assert a.leader is not None
    assert a.leader.pending is not None  # c would join
    # Removed and added again, seen as one step: leader epoch and partition epoch have both moved.
    readded = next_registration(first, leader_epoch=LeaderEpoch(2))
    tell(readded, a, b)
    assert a.leader.pending is None
    assert NodeId(2) not in a.leader.followers
    wiped = Replica(NodeId(2), SimLog())
    wiped.apply(readded, brokers(), 0.0)
    assert not a.leader.may_join(NodeId(2), a.high_watermark, brokers())
    settle(a, wiped, b)
    assert a.leader.may_join(NodeId(2), a.high_watermark, brokers())


def test_late_fetch_of_a_wiped_process_does_not_let_it_join() -> None:
    """What the former disk held was counted; its successor is registered with an empty one."""
    first = registration(0, 1, isr=(0, 1))
    a, b, c = start(0, 1, 2, first=first)
    write(a, 1)
    settle(a, b)
    fetch_once(a, c)
    late = c.position(1024)
    now_registered: dict[NodeId, SimBrokerView] = {**brokers(), NodeId(2): broker(2, 50)}
    a.apply(next_registration(first), now_registered, 0.0)
    answer, _ = answer_fetch(a, 2, late)
    assert answer.error == ErrorCode.STALE_BROKER_EPOCH
    assert a.leader is not None
    assert not a.leader.consider_expand(NodeId(2), a.high_watermark, now_registered)


def test_delayed_registration_gate_keeps_a_restarted_leader_quiet() -> None:
    """A restarted broker finds itself leader in its old image; the gate holds until its own
    registration, by which time another leads."""
    stale = registration(0, 1)
    gate = RegistrationGate()
    gate.registered(30)
    a = Replica(NodeId(0), SimLog.of_epochs((1, 1, 2)))  # it fetched epoch 2 before it stopped
    if gate.admits(12):
        a.apply(stale, brokers(), 0.0)
    assert a.role is Role.NONE
    current = registration(1, 2, 7, isr=(1, 2))
    assert gate.admits(30)
    a.apply(current, brokers(), 0.0)
    assert a.role is Role.FOLLOWER


def test_delayed_copy_of_a_proposal_is_dead_after_the_bump() -> None:
    """INELIGIBLE_REPLICA bumps the partition epoch, so a copy in flight cannot be accepted later,
    and only then does the leader stop waiting for the newcomer."""
    first = registration(0, 1, isr=(0, 1))
    a, b, c = start(0, 1, 2, first=first)
    write(a, 1)
    settle(a, b)
    fetch_once(a, c)
    fetch_once(a, c)
    assert a.leader is not None
    copy = a.leader.proposal_due(0.0)
    assert copy is not None
    assert a.leader.maximal_isr == {0, 1, 2}
    bumped = changed(first, {0, 1, 2}, Change(bump=True))
    assert bumped.partition_epoch > copy.partition_epoch
    assert bumped.isr == first.isr
    tell(bumped, a)
    assert a.leader.pending is None
    assert a.leader.maximal_isr == {0, 1}


def test_min_isr_and_isr_are_never_seen_apart() -> None:
    """The ISR shrinks to two while min ISR is lowered from 3 to 2: with the old number nothing
    may be committed, with the new one everything, and never with a mixture."""
    first = registration(0, 1, min_isr=3)
    a, b, c = start(0, 1, 2, first=first)
    write(a, 1)
    settle(a, b, c)
    shrunk = changed(first, {0, 1}, Change(isr=[NodeId(0), NodeId(1)]))
    assert shrunk.elr == (2,)
    tell(shrunk, a, b)
    write(a, 2)
    settle(a, b)
    assert a.high_watermark == 1
    lowered = changed(shrunk, {0, 1}, Change(min_isr=2))
    assert lowered.elr == ()
    tell(lowered, a, b)
    settle(a, b)
    assert a.high_watermark == 2


def test_answer_to_a_proposal_is_not_a_member() -> None:
    """An accepted proposal counts only once the metadata log says so: until then the ISR judged
    against min ISR is the old one."""
    first = registration(0, 1, isr=(0,))
    a, b = start(0, 1, first=first)
    write(a, 1)
    settle(a, b)
    assert a.leader is not None
    pending = a.leader.pending
    assert pending is not None
    assert [member.node_id for member in pending.isr] == [0, 1]
    assert pending.isr[0].broker_epoch == ALREADY_MEMBER
    assert a.high_watermark == 0
    tell(next_registration(first, isr=(NodeId(0), NodeId(1))), a)
    a.advance()
    assert a.high_watermark == 1


def test_leaderless_partition_waits() -> None:
    first = registration(0, 1)
    a, b, _ = start(0, 1, 2, first=first)
    write(a, 1)
    nobody = next_registration(first, leader=NO_NODE, isr=(), leader_epoch=LeaderEpoch(2))
    tell(nobody, a, b)
    assert a.role is b.role is Role.LEADERLESS
    assert b.start_fetch(1, 1024) is None
    assert not a.advance()
