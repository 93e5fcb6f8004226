"""Broken rules are seen in whole nodes too, by the oracle or by the checker of histories.

By default those run whose seed is known; ``PACELINE_MUTANTS=all`` looks for the others.
"""

from __future__ import annotations

import os

import pytest

from paceline_cluster.sim.plan import draw
from paceline_cluster.sim.run import run
from tests.sim.node.mutants import MUTANTS, NodeMutant

RUN_ALL = os.environ.get("PACELINE_MUTANTS") == "all"
SECONDS = 6.0
KNOWN = [mutant for mutant in MUTANTS if mutant.seed is not None]


def find(mutant: NodeMutant) -> str | None:
    """The first violation within the budget."""
    known = () if mutant.seed is None else (mutant.seed,)
    with mutant.patch():
        for seed in (*known, *range(mutant.budget)):
            verdict = run(draw(seed, mutant.profile, seconds=SECONDS))
            if verdict.violation is not None:
                return str(verdict.violation)
    return None


@pytest.mark.parametrize("mutant", KNOWN, ids=lambda mutant: mutant.name)
def test_mutant_is_found(mutant: NodeMutant) -> None:
    assert find(mutant) is not None, f"{mutant.name} survives {mutant.budget} seeds"


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not RUN_ALL, reason="PACELINE_MUTANTS=all looks for these")
@pytest.mark.parametrize(
    "mutant", [mutant for mutant in MUTANTS if mutant.seed is None], ids=lambda mutant: mutant.name
)
def test_other_mutant_is_found(mutant: NodeMutant) -> None:
    assert find(mutant) is not None, f"{mutant.name} survives {mutant.budget} seeds"
