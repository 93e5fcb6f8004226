"""Random histories of the replication cores: no invariant is ever broken.

``PACELINE_SEEDS`` is how many seeds each profile runs (5; scripts/sim runs thousands);
``PACELINE_SEED`` and ``PACELINE_PROFILE`` repeat one.
"""

from __future__ import annotations

import os

import pytest

from paceline_cluster.sim.replicas.runs import PROFILES, Profile, Run, run

SEEDS = int(os.environ.get("PACELINE_SEEDS", "5"))
ONE_SEED = os.environ.get("PACELINE_SEED")
ONE_PROFILE = os.environ.get("PACELINE_PROFILE")


@pytest.mark.timeout(60 + 5 * SEEDS)
@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda profile: profile.name)
def test_no_invariant_is_broken(profile: Profile) -> None:
    if ONE_PROFILE not in (None, profile.name):
        pytest.skip(f"PACELINE_PROFILE={ONE_PROFILE}")
    seeds = range(SEEDS) if ONE_SEED is None else (int(ONE_SEED),)
    acknowledged = elections = faults = 0
    for seed in seeds:
        verdict = run(seed, profile)
        assert verdict.violation is None, verdict.report()
        acknowledged += verdict.acknowledged
        elections += verdict.elections
        faults += verdict.faults
    # Otherwise nothing would have been shown.
    assert acknowledged > 50 * len(seeds)
    assert elections > len(seeds)
    assert faults + elections > 10 * len(seeds)


def test_a_seed_repeats_exactly() -> None:
    def trace(seed: int) -> list[str]:
        history = Run(seed, PROFILES["mixed"])
        history.execute()
        return history.world.trace

    assert trace(11) == trace(11)
    assert trace(11) != trace(12)
