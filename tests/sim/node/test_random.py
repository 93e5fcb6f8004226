"""Whole nodes under faults, from a few seeds of every profile: no invariant is ever broken.

``PACELINE_NODE_SEEDS`` is how many seeds each profile runs (1); more, and resumable: scripts/sim.
"""

from __future__ import annotations

import os

import pytest

from paceline_cluster.sim.plan import draw
from paceline_cluster.sim.profiles import (
    DISK,
    HARMED,
    MIXED,
    MOVER,
    POWER_ALL,
    PROFILES,
    QUIET,
    Profile,
)
from paceline_cluster.sim.run import Verdict, run

SEEDS = int(os.environ.get("PACELINE_NODE_SEEDS", "1"))
SECONDS = 4.0
PASSED = [profile for profile in PROFILES.values() if profile not in HARMED]
"""What every seed has to pass; of the others the product passes only some as yet."""
FIRST = (MIXED, MOVER, POWER_ALL, DISK, QUIET)
"""Those with faults of most kinds; of each of the others a story or a mutant tells as well."""


def told(verdict: Verdict) -> str:
    plan = verdict.plan
    lines = "\n".join(verdict.timeline.lines(60))
    again = f"scripts/sim --profile {plan.profile} --seconds {SECONDS:g} --replay {plan.seed}"
    return f"{lines}\n{verdict.violation}\n{again}"


@pytest.mark.timeout(120 + 60 * SEEDS)
@pytest.mark.parametrize(
    "profile",
    [
        pytest.param(each, id=each.name, marks=[] if each in FIRST else [pytest.mark.slow])
        for each in PASSED
    ],
)
def test_no_invariant_is_broken(profile: Profile) -> None:
    acknowledged = struck = 0
    for seed in range(SEEDS):
        verdict = run(draw(seed, profile, seconds=SECONDS))
        assert verdict.violation is None, told(verdict)
        acknowledged += verdict.acknowledged
        struck += verdict.faults
        if profile is QUIET:
            assert verdict.elections == 0, "a leader changed without a fault"
    # Otherwise nothing would have been shown.
    assert acknowledged > 20 * SEEDS
    assert struck >= SEEDS or profile is QUIET
