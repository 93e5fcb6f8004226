"""A seed decides everything: the same bytes at the same times, in any process."""

from __future__ import annotations

from dataclasses import replace

from paceline_cluster.sim.batch import trace_elsewhere
from paceline_cluster.sim.plan import draw
from paceline_cluster.sim.profiles import MIXED
from paceline_cluster.sim.run import run
from paceline_cluster.sim.tiers import NODE, run_seed


def test_the_same_seed_gives_the_same_run_in_another_process_with_other_hashes() -> None:
    result = run_seed(NODE, "mixed", 10)
    assert result.violation is None
    assert result.faults > 5
    assert trace_elsewhere(NODE, "mixed", 10) == result.trace


def test_runs_do_not_disturb_each_other() -> None:
    plan = draw(2, MIXED, seconds=3.0)
    first, other, again = run(plan), run(replace(plan, seed=3)), run(plan)
    assert first.trace == again.trace
    assert first.timeline.lines() == again.timeline.lines()
    assert first.trace != other.trace
