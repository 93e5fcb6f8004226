from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from paceline_cluster.chaos.schedule import FaultSpec, ScheduleSpec, plan
from paceline_cluster.chaos.targets import parse_target

ANY = parse_target("any")
DRAWN = (FaultSpec("kill", ANY, (0.5, 3.0), weight=3), FaultSpec("isolate", ANY, (1.0, 9.0)))


@settings(deadline=None)
@given(st.integers(0, 10**6), st.floats(5, 200), st.integers(1, 3))
def test_drawn_faults_keep_the_rules(seed: int, seconds: float, at_once: int) -> None:
    schedule = ScheduleSpec(first_s=2.0, pause_s=(0.5, 2.0), calm=0.2, at_once=at_once)
    planned = plan(DRAWN, schedule, seconds, random.Random(seed))
    assert planned == plan(DRAWN, schedule, seconds, random.Random(seed))
    assert all(2.0 <= each.begin < each.end <= seconds for each in planned)
    assert [each.begin for each in planned] == sorted(each.begin for each in planned)
    for each in planned:
        active = sum(other.begin <= each.begin < other.end for other in planned)
        assert active <= at_once


def test_all_kinds_are_drawn_by_their_weight() -> None:
    planned = plan(DRAWN, ScheduleSpec(at_once=50), 3000, random.Random(1))
    kills = sum(each.spec.kind == "kill" for each in planned)
    assert 0.6 < kills / len(planned) < 0.9


def test_timed_faults_strike_at_their_time_and_again() -> None:
    once = FaultSpec("kill", ANY, (1.0, 1.0), at=3.0)
    again = FaultSpec("isolate", ANY, (2.0, 2.0), at=1.0, every=4.0)
    planned = plan((once, again), ScheduleSpec(), 10.0, random.Random(0))
    times = [(each.begin, each.end, each.spec.kind) for each in planned]
    assert times == [
        (1.0, 3.0, "isolate"),
        (3.0, 4.0, "kill"),
        (5.0, 7.0, "isolate"),
        (9.0, 10.0, "isolate"),
    ]
