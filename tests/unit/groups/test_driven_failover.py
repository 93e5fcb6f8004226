"""Coordinators of driven consumers come and go: who is waited for, and what is void
(groups/DESIGN 6.5)."""

from __future__ import annotations

import pytest

from paceline.errors import ErrorCode, PacelineError
from paceline.wire.coordinator.messages import StartRequest
from tests.unit.groups.consumers import KEY, Crew, pings, stable, starts, stops


def test_a_new_coordinator_waits_until_all_are_back() -> None:
    crew, (a, b) = stable("a", "b")
    a.owned[("t", 0)] = 30
    crew.pass_time(4.0, a, b)
    crew.desk.fail_over()
    assert a.ended
    assert b.ended
    assert stops(a)[-1].reason == 3
    a2 = crew.register("a", "t", generation=1)
    crew.pass_time(5.0, a2)
    assert crew.state == "PreparingRebalance"
    assert starts(a2) == []
    b2 = crew.register("b", "t", generation=1)
    crew.settle(a2, b2)
    assert (crew.state, crew.generation) == ("Stable", 2)
    assert a2.owned[("t", 0)] == 30
    assert starts(a2)[0].coordinator_epoch == 1


def test_who_does_not_come_back_is_given_up_once_it_has_fenced_itself() -> None:
    crew, _ = stable("a", "b")
    crew.desk.fail_over()
    a2 = crew.register("a", "t", generation=1)
    crew.pass_time(16.9, a2)  # the lease of 4 s, the fence of 12 s, and a second
    assert crew.generation == 1
    assert crew.engine.coordinator.member_count(KEY) == 2
    crew.pass_time(0.5, a2)
    assert crew.generation == 2
    assert len(a2.owned) == 4


def test_a_failover_in_every_state_of_a_round_loses_nobody() -> None:
    for stop_at in range(6):
        crew, (a,) = stable("a")
        b = crew.register("b", "t")
        for step in range(stop_at):
            match step:
                case 0:
                    crew.desk.advance(0.4)
                case 1:
                    a.answer()
                case 2:
                    crew.plan(crew.due.take() or KEY)
                case 3:
                    crew.pass_time(6.0)  # its worker was lost; the next one begins again
                case 4:
                    a.answer()
        before = crew.generation
        crew.desk.fail_over()
        a2 = crew.register("a", "t", generation=a.generation)
        b2 = crew.register("b", "t", generation=b.generation)
        crew.pass_time(20.0, a2, b2)
        assert crew.state == "Stable"
        assert crew.generation > before
        assert sorted([*a2.owned, *b2.owned]) == [("t", number) for number in range(4)]


def test_without_a_session_nobody_is_pinged_and_all_channels_close() -> None:
    crew, (a,) = stable("a")
    crew.desk.serves = False
    crew.engine.coordinator.leaderless()
    crew.desk.advance(3.0)
    assert a.ended
    assert pings(a) == []
    crew.desk.serves = True
    b = crew.register("b", "t")
    crew.pass_time(10.0, b)
    assert starts(b) == []  # a is waited for, as after a failover
    crew.pass_time(8.0, b)
    assert len(b.owned) == 4


def test_a_node_that_stops_stores_positions_and_keeps_the_members() -> None:
    crew, (a, b) = stable("a", "b")
    a.owned[("t", 0)] = 30
    crew.desk.advance(2.0)
    a.answer()
    crew.engine.coordinator.shut()
    assert crew.committed("t", 0) == 30
    assert a.ended
    assert [each.reason for each in stops(a)] == [4]
    assert stops(b) == []  # a ping is under way: it hears of the close only
    for each in (a, b):
        each.close()
    crew.desk.advance(5.0)
    assert len(crew.engine.store.groups[KEY].members) == 2
    with pytest.raises(PacelineError) as caught:
        crew.register("a", "t")
    assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_plan_that_was_overtaken_is_void() -> None:
    crew = Crew(t=1)
    a = crew.register("a", "t")
    crew.desk.advance(0.5)
    plan = crew.plan()
    assert plan is not None
    crew.pass_time(6.0, a)
    assert crew.generation == 2
    [start] = starts(a)
    crew.engine.coordinator.start(KEY, plan, crew.beginnings(plan))
    assert starts(a) == [start]
    assert isinstance(start, StartRequest)
    assert start.generation == 2
