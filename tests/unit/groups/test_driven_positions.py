"""Family ``coordinator``: where reading begins, and the pings that tell how far it has come."""

from __future__ import annotations

import pytest

from paceline_node.groups.committed_offsets import Commit, OffsetRule
from tests.unit.groups.consumers import KEY, Crew, pings, stable, starts

# --- where reading begins -------------------------------------------------------------------------


def test_smallest_and_largest() -> None:
    crew = Crew(t=1)
    crew.ends["t", 0] = (10, 90)
    a = crew.register("a", "t", smallest=True)
    crew.pass_time(1.0, a)
    assert a.owned == {("t", 0): 10}
    assert crew.committed("t", 0) is None
    crew = Crew(t=1)
    crew.ends[("t", 0)] = (10, 90)
    a = crew.register("a", "t", smallest=False)
    crew.pass_time(1.0, a)
    assert a.owned == {("t", 0): 90}
    assert crew.committed("t", 0) == 90  # so that a later owner does not skip


def test_the_end_is_committed_before_the_start_is_sent() -> None:
    crew = Crew(t=1)
    crew.ends[("t", 0)] = (0, 90)
    a = crew.register("a", "t", smallest=False)
    crew.desk.advance(0.5)
    plan = crew.plan()
    assert plan is not None
    crew.engine.coordinator.settle(KEY, plan, crew.beginnings(plan))
    assert crew.committed("t", 0) == 90
    assert starts(a) == []


@pytest.mark.parametrize(("ends", "begins"), [((50, 90), 50), ((0, 10), 0), ((0, 90), 42)])
def test_a_committed_offset_counts_while_it_is_in_range(ends: tuple[int, int], begins: int) -> None:
    crew, (a,) = stable("a", t=1)
    a.owned[("t", 0)] = 42
    crew.pass_time(4.0, a)
    a.close()
    crew.pass_time(1.0)
    crew.ends[("t", 0)] = ends
    b = crew.register("b", "t")
    crew.pass_time(1.0, b)
    assert b.owned == {("t", 0): begins}


def test_without_the_leader_the_consumer_resolves() -> None:
    crew = Crew(t=1)
    crew.unreachable.add(("t", 0))
    a = crew.register("a", "t", smallest=True)
    crew.pass_time(1.0, a)
    assert a.owned == {("t", 0): -2}
    a.owned[("t", 0)] = 3  # it found out, and read
    crew.pass_time(4.0, a)
    assert crew.committed("t", 0) == 3


# --- pings and positions --------------------------------------------------------------------------


def test_pings_come_within_the_interval_and_late_answers_count() -> None:
    crew, (a,) = stable("a")
    crew.pass_time(20.0, a)
    assert 9 <= len(pings(a)) <= 10
    while a.asked is None:
        crew.desk.advance(0.05)
    crew.desk.advance(12.9)  # its patience, nearly
    assert not a.ended
    a.answer()
    crew.pass_time(20.0, a)
    assert not a.ended


@pytest.mark.parametrize("retries", [0, 3])
def test_who_does_not_answer_is_failed_in_time(retries: int) -> None:
    crew = Crew(t=2)
    a = crew.register("a", "t", retries=retries)
    b = crew.register("b", "t")
    crew.pass_time(1.0, a, b)
    crew.pass_time(3.0 * (retries + 2) - 1.5, b)
    assert not a.ended
    crew.pass_time(1.6, b)
    assert a.ended  # (retries + 2) intervals after it was heard of
    crew.pass_time(1.0, b)
    assert len(b.owned) == 2


def test_positions_go_forward_only_and_only_those_of_the_owner_count() -> None:
    crew, (a, b) = stable("a", "b")
    a.owned[("t", 0)] = 50
    crew.pass_time(4.0, a, b)
    a.owned[("t", 0)] = 20
    b.owned[("t", 1)] = 99  # a's
    crew.pass_time(4.0, a, b)
    assert crew.committed("t", 0) == 50
    assert crew.committed("t", 1) is None


@pytest.mark.parametrize("late", [False, True])
def test_a_ping_from_before_a_commit_sets_nothing_back(late: bool) -> None:
    """Be it answered before the commit, and stored after it, or be it on its way."""
    crew, (a,) = stable("a", t=1)
    if not late:
        a.owned[("t", 0)] = 50
        while not pings(a):
            crew.pass_time(0.05, a)
        assert crew.committed("t", 0) is None, "it is stored once a second"
    commit = Commit("t", 0, 60)
    crew.engine.offsets.commit(KEY, [commit], OffsetRule.FREE)
    crew.engine.coordinator.committed(KEY, [commit])
    a.owned[("t", 0)] = 55
    crew.pass_time(6.0, a)
    assert crew.committed("t", 0) == 60
    a.owned[("t", 0)] = 61
    crew.pass_time(6.0, a)
    assert crew.committed("t", 0) == 61


def test_positions_of_another_generation_are_ignored() -> None:
    crew, (a,) = stable("a")
    a.owned[("t", 0)], a.generation = 50, 7
    crew.pass_time(4.0, a)
    assert crew.committed("t", 0) is None


def test_without_auto_commit_positions_are_ignored() -> None:
    crew = Crew(t=1)
    a = crew.register("a", "t", auto_commit=False)
    crew.pass_time(1.0, a)
    a.owned[("t", 0)] = 50
    crew.pass_time(4.0, a)
    assert crew.committed("t", 0) is None


def test_positions_are_stored_once_a_second_not_with_every_ping() -> None:
    crew = Crew(t=1)
    a = crew.register("a", "t", interval_ms=150)
    crew.pass_time(1.0, a)
    before = len(crew.desk.log)
    for at in range(40):
        a.owned[("t", 0)] = at + 1
        crew.pass_time(0.1, a)
    assert len(crew.desk.log) - before <= 4


def test_a_write_refused_delays_and_loses_nothing() -> None:
    crew, (a,) = stable("a")
    a.owned[("t", 0)] = 50
    crew.desk.refuses = True
    b = crew.register("b", "t")
    crew.pass_time(20.0, a, b)
    assert crew.generation == 1
    assert not a.ended  # pings go on meanwhile
    crew.desk.refuses = False
    crew.pass_time(6.0, a, b)
    assert crew.generation == 2
    assert crew.committed("t", 0) == 50
