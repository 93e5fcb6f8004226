"""High watermark arithmetic and ISR proposals (replication/DESIGN 3.5, 3.6)."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from paceline.types import BrokerEpoch, NodeId
from paceline.wire.peer.control import IsrMember
from paceline_node.replication.isr import FollowerProgress, SimulatedSlots, committed_end
from paceline_node.replication.leader import ALREADY_MEMBER, LeaderState
from tests.sim.replication.build import broker, brokers, next_registration, registration

ME = NodeId(0)


def progress(ack: int, fetch_offset: int | None = None) -> FollowerProgress:
    return FollowerProgress(10, ack, fetch_offset or ack, 0.0, 0.0, 0, 0.0)  # type: ignore[arg-type]


def observe(state: LeaderState, node: int, ack: int, end: int, now: float = 0.0) -> None:
    spoken_by = state.registration.partition_epoch
    state.observe_fetch(NodeId(node), BrokerEpoch(10), ack, ack, end, now, spoken_by)


@pytest.mark.parametrize(
    ("own", "acks", "isr_size", "min_isr", "expected"),
    [
        (7, {}, 1, 1, 7),
        (7, {}, 1, 2, None),
        (7, {1: 5, 2: 6}, 3, 2, 5),
        (4, {1: 5, 2: 6}, 3, 2, 4),
        (7, {1: 5, 2: None}, 3, 2, None),
        (7, {1: 5, 2: 3}, 2, 2, 3),  # 2 only proposed: waited for, but not a member
        (7, {1: 9, 2: 9}, 1, 2, None),  # the maximal ISR does not make up for a small ISR
    ],
)
def test_committed_end(
    own: int, acks: dict[int, int | None], isr_size: int, min_isr: int, expected: int | None
) -> None:
    known = {NodeId(node): progress(ack) for node, ack in acks.items() if ack is not None}
    assert committed_end(own, map(NodeId, acks), known, isr_size, min_isr) == expected


def test_committed_end_is_held_by_min_isr_members_in_every_small_state() -> None:
    for own, first, second in itertools.product(range(3), repeat=3):
        known = {NodeId(1): progress(first), NodeId(2): progress(second)}
        for members in ([], [1], [2], [1, 2]):
            for min_isr in (1, 2, 3):
                nodes = [NodeId(node) for node in members]
                end = committed_end(own, nodes, known, 1 + len(members), min_isr)
                holders = [own] + [known[node].ack for node in nodes]
                if end is None:
                    assert len(holders) < min_isr
                else:
                    assert all(held >= end for held in holders)
                    assert len(holders) >= min_isr


def test_ack_is_the_durable_offset_never_above_the_fetch_offset() -> None:
    known = progress(0)
    known.observe(5, 3, 5, 1.0)
    assert known.ack == 3
    known.observe(5, 9, 5, 2.0)
    assert known.ack == 5


def test_follower_that_keeps_pace_under_load_is_never_lagging() -> None:
    known = FollowerProgress(10, 0, 0, 0.0, 0.0, 0, 0.0)  # type: ignore[arg-type]
    for step in range(1, 100):
        # It always holds what the leader had one step ago, never all of it.
        known.observe(step - 1, step - 1, step, step * 1.0)
        assert not known.is_lagging(step, step * 1.0, 3.0)


def test_follower_that_falls_behind_or_falls_silent_lags() -> None:
    known = FollowerProgress(10, 0, 0, 0.0, 0.0, 0, 0.0)  # type: ignore[arg-type]
    for step in range(1, 20):
        known.observe(0, 0, 10 * step, step * 1.0)
    assert known.is_lagging(200, 19.0, 3.0)
    known.observe(200, 200, 200, 20.0)
    assert not known.is_lagging(200, 23.0, 3.0)
    assert known.is_lagging(200, 23.5, 3.0)  # equal, but silent


def test_follower_whose_flushes_hang_lags_though_it_fetches() -> None:
    known = FollowerProgress(10, 0, 0, 0.0, 0.0, 0, 0.0)  # type: ignore[arg-type]
    known.observe(5, 5, 5, 0.0)
    for step in range(1, 10):
        known.observe(5 + step, 5, 5 + step, float(step))
    assert known.is_lagging(14, 9.0, 3.0)


def test_expand_needs_high_watermark_and_start_offset() -> None:
    state = LeaderState(ME, registration(isr=(0, 1)), start_offset=10, now=0.0)
    for ack, joins in ((7, False), (9, False), (10, True)):
        observe(state, 2, ack, 20)
        assert state.may_join(NodeId(2), 8, brokers()) is joins
    assert not state.may_join(NodeId(2), 11, brokers())


def test_expand_needs_an_active_broker_of_the_registered_process() -> None:
    state = LeaderState(ME, registration(isr=(0, 1)), 0, 0.0)
    assert not state.may_join(NodeId(2), 0, brokers())  # never fetched in this epoch
    observe(state, 2, 5, 5)
    assert state.may_join(NodeId(2), 5, brokers())
    assert not state.may_join(NodeId(2), 5, {NodeId(2): broker(2, fenced=True)})
    assert not state.may_join(NodeId(2), 5, {NodeId(2): broker(2, 11)})
    assert not state.may_join(NodeId(2), 5, {})


def test_proposal_widens_the_maximal_isr_until_the_log_overtakes_it() -> None:
    base = registration(isr=(0, 1))
    state = LeaderState(ME, base, 0, 0.0)
    observe(state, 2, 5, 5)
    assert state.consider_expand(NodeId(2), 5, brokers())
    assert state.pending is not None
    assert state.pending.isr == (
        IsrMember(NodeId(0), ALREADY_MEMBER),
        IsrMember(NodeId(1), ALREADY_MEMBER),
        IsrMember(NodeId(2), brokers()[NodeId(2)].broker_epoch),
    )
    assert state.maximal_isr == {0, 1, 2}
    assert not state.consider_expand(NodeId(2), 5, brokers())  # one at a time
    state.adopt(base)
    assert state.pending is not None
    state.adopt(next_registration(base))
    assert state.pending is None
    assert state.maximal_isr == {0, 1}


def test_shrink_counts_the_leaver_until_committed() -> None:
    base = registration()
    state = LeaderState(ME, base, 0, 0.0)
    observe(state, 1, 5, 5, now=10.0)
    observe(state, 2, 2, 5, now=1.0)
    assert not state.consider_shrink(5, 2.9, 3.0)
    assert state.consider_shrink(5, 3.1, 3.0)
    assert state.maximal_isr == {0, 1, 2}
    assert state.committed_end(5) == 2
    state.adopt(next_registration(base, isr=(NodeId(0), NodeId(1))))
    assert state.committed_end(5) == 5


def test_fresh_leader_counts_silence_from_taking_office() -> None:
    state = LeaderState(ME, registration(), 0, now=100.0)
    assert not state.consider_shrink(0, 102.0, 3.0)
    assert state.consider_shrink(0, 103.5, 3.0)
    assert state.pending is not None
    assert [member.node_id for member in state.pending.isr] == [0]


def lonely(elr: tuple[int, ...] = (1,)) -> LeaderState:
    """A leader in office since 0 with nobody beside it in the ISR."""
    left = replace(registration(isr=(0,)), elr=tuple(NodeId(node) for node in elr))
    return LeaderState(ME, left, 0, 0.0)


def test_a_leader_alone_for_twice_the_lag_time_relinquishes() -> None:
    state = lonely()
    assert not state.consider_relinquish(10.0, 3.0, brokers())
    assert not state.consider_relinquish(15.9, 3.0, brokers())
    assert state.consider_relinquish(16.1, 3.0, brokers())
    assert state.pending is not None
    assert (state.pending.relinquish, state.pending.isr) == (True, ())
    assert state.maximal_isr == {0}
    # Refused: the partition epoch moves on, and it is asked again after as long.
    state.adopt(next_registration(state.registration))
    assert state.pending is None
    assert not state.consider_relinquish(18.0, 3.0, brokers())
    assert state.consider_relinquish(22.2, 3.0, brokers())


def test_a_leader_with_a_follower_on_its_way_back_stays() -> None:
    state = lonely()
    assert not state.consider_relinquish(10.0, 3.0, brokers())
    observe(state, 2, 0, 0, now=14.0)
    assert not state.consider_relinquish(19.9, 3.0, brokers())
    assert state.consider_relinquish(20.1, 3.0, brokers())


def test_a_leader_stays_where_nobody_complete_is_alive_or_enough_are_in_sync() -> None:
    state = lonely()
    dead = {NodeId(1): broker(1, fenced=True), NodeId(2): broker(2)}
    assert not state.consider_relinquish(0.0, 3.0, dead)
    assert not state.consider_relinquish(50.0, 3.0, dead)
    state.adopt(next_registration(state.registration, isr=(NodeId(0), NodeId(1)), elr=()))
    assert not state.consider_relinquish(60.0, 3.0, brokers())
    state.adopt(next_registration(state.registration, isr=(NodeId(0),), elr=(NodeId(1),)))
    assert not state.consider_relinquish(61.0, 3.0, brokers()), "it counts anew"
    assert not state.consider_relinquish(66.5, 3.0, brokers())
    assert state.consider_relinquish(67.5, 3.0, brokers())


def test_proposal_is_sent_at_once_and_repeated_unchanged() -> None:
    state = LeaderState(ME, registration(), 0, 0.0)
    assert state.proposal_due(50.0) is None
    state.consider_shrink(0, 50.0, 3.0)
    first = state.proposal_due(50.0)
    assert first is not None
    assert state.proposal_due(50.4) is None
    assert state.proposal_due(50.5) is first
    assert state.proposal_due(50.9) is None


def test_simulated_slot_may_lag_as_far_as_it_is_allowed() -> None:
    slots = SimulatedSlots(lag_max_s=10.0, max_lag=2)
    slots.acknowledge(1, 5, 5, now=0.0)
    assert slots.in_sync(7, 0.0) == (1,)
    assert slots.in_sync(8, 0.0) == ()


def test_simulated_slot_is_in_sync_with_everything_held_and_seen_lately() -> None:
    slots = SimulatedSlots(lag_max_s=10.0)
    assert slots.in_sync(0, 0.0) == ()
    slots.acknowledge(1, 5, 5, now=0.0)
    slots.acknowledge(2, 99, 5, now=0.0)
    assert slots.ack(2) == 5
    assert slots.in_sync(5, 10.0) == (1, 2)
    assert slots.in_sync(5, 10.5) == ()
    slots.acknowledge(1, 3, 6, now=20.0)  # never back
    assert slots.ack(1) == 5
    assert slots.in_sync(6, 20.0) == ()
    slots.clear()
    assert slots.ack(1) == 0
