"""The cluster's time: one clock that is wrong lets nothing expire, and stamps no old records."""

from __future__ import annotations

import pytest

from paceline.types import NodeId
from paceline_node.cluster_time import ClusterTime
from paceline_node.controller.liveness import Sessions

YEAR_MS = 365 * 86_400_000
NOW_MS = 55 * YEAR_MS


def heard(*clocks: int, total: int | None = None, at: float = 10.0) -> int:
    sessions = Sessions(timeout_s=6)
    for number, clock in enumerate(clocks):
        sessions.heard(NodeId(number), 10.0, 0, clock)
    return sessions.cluster_ms(len(clocks) if total is None else total, at)


@pytest.mark.parametrize("wrong", [-YEAR_MS, YEAR_MS])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_cluster_goes_by_the_clock_in_the_middle(wrong: int, place: int) -> None:
    clocks = [NOW_MS, NOW_MS + 5, NOW_MS + 9]
    clocks[place] += wrong
    assert NOW_MS <= heard(*clocks) <= NOW_MS + 9
    assert heard(*clocks, at=12.5) == heard(*clocks) + 2_500


def test_of_two_clocks_the_earlier_one_counts() -> None:
    assert heard(NOW_MS + YEAR_MS, NOW_MS) == NOW_MS
    assert heard(NOW_MS) == NOW_MS


@pytest.mark.parametrize("wrong", [-YEAR_MS, YEAR_MS])
def test_of_two_clocks_the_one_counts_that_agrees_with_before(wrong: int) -> None:
    sessions = Sessions(timeout_s=6)
    for number, clock in enumerate([NOW_MS + wrong, NOW_MS, NOW_MS + 5]):
        sessions.heard(NodeId(number), 10.0, 0, clock)
    assert NOW_MS <= sessions.cluster_ms(3, 10.0) <= NOW_MS + 5
    sessions.end(NodeId(2))
    assert sessions.cluster_ms(3, 12.0) == NOW_MS + 2_000
    # Another controller goes on from what this one told.
    successor = Sessions(timeout_s=6)
    successor.reset([NodeId(0), NodeId(1), NodeId(2)], 12.0, NOW_MS + 2_000)
    assert successor.cluster_ms(3, 12.0) == -1
    successor.heard(NodeId(0), 13.0, 0, NOW_MS + wrong + 3_000)
    successor.heard(NodeId(1), 13.0, 0, NOW_MS + 3_000)
    assert successor.cluster_ms(3, 13.0) == NOW_MS + 3_000


def test_too_few_clocks_say_nothing() -> None:
    assert heard(NOW_MS + YEAR_MS, total=3) == -1
    assert heard(NOW_MS, NOW_MS, total=4) == -1
    assert heard(NOW_MS, NOW_MS, -1, total=4) == -1  # an older version does not say
    assert heard(NOW_MS, NOW_MS, NOW_MS, at=17.0) == -1  # nobody of late


def test_both_clocks_must_agree_that_something_has_expired() -> None:
    time = ClusterTime()
    assert time.expiry_ms(NOW_MS, 5.0) == NOW_MS  # a log without a cluster
    time.share()
    assert time.expiry_ms(NOW_MS, 5.0) == 0
    time.heard(-1, 5.0)
    assert time.expiry_ms(NOW_MS, 5.0) == 0
    time.heard(NOW_MS, 6.0)
    time.heard(-1, 7.0)  # a new controller has yet to hear of the others
    assert time.expiry_ms(NOW_MS + YEAR_MS, 8.0) == NOW_MS + 2_000
    assert time.expiry_ms(NOW_MS - YEAR_MS, 8.0) == NOW_MS - YEAR_MS


def test_a_clock_far_behind_stamps_nothing() -> None:
    time = ClusterTime()
    assert time.stamp_ms(NOW_MS, 1.0) == NOW_MS
    time.heard(NOW_MS, 6.0)
    assert time.stamp_ms(NOW_MS - 59_000, 6.0) == NOW_MS - 59_000
    assert time.stamp_ms(NOW_MS - YEAR_MS, 8.0) == NOW_MS + 2_000
    assert time.stamp_ms(NOW_MS + YEAR_MS, 8.0) == NOW_MS + YEAR_MS
