"""A seed decides everything: the same bytes at the same times, in any process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline_cluster.sim.plan import draw
from paceline_cluster.sim.profiles import MIXED
from paceline_cluster.sim.run import run
from paceline_cluster.sim.seed_sweep import traces_elsewhere
from paceline_cluster.sim.simulators import NODE, RAFT, REPLICAS, profiles_of, run_seed

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(
    "profiles",
    [("mixed", "aged"), pytest.param(profiles_of(REPLICAS), marks=pytest.mark.slow)],
    ids=["two", "all"],
)
def test_the_same_seed_gives_the_same_run_in_another_process_with_other_hashes(
    profiles: tuple[str, ...],
) -> None:
    jobs = [(NODE, "membership@3", 3), (RAFT, "swarm", 10)]
    jobs += [(REPLICAS, profile, 10) for profile in profiles]
    here = [run_seed(*job) for job in jobs]
    assert [result.violation for result in here] == [None] * len(jobs)
    assert sum(result.faults for result in here) > 7 * len(jobs)
    assert traces_elsewhere(jobs) == [result.trace for result in here]


@pytest.mark.slow
def test_runs_do_not_disturb_each_other() -> None:
    plan = draw(2, MIXED, seconds=1.5)
    first, other, again = run(plan), run(replace(plan, seed=3)), run(plan)
    assert first.trace == again.trace
    assert first.timeline.lines() == again.timeline.lines()
    assert first.trace != other.trace
