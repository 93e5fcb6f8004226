"""Every wrong rule is found within its budget of seeds (spec testing 4.1).

By default the mutants run that have budgets up to 50 or a seed that is known to find them,
beginning with it; ``PACELINE_MUTANTS=all`` looks for the rare ones too, which takes minutes each.
"""

from __future__ import annotations

import os

import pytest

from paceline_cluster.sim.replicas.runs import run
from tests.sim.replication.mutants import EARLY, LATE, MIDDLE, Mutant

RUN_LATE = os.environ.get("PACELINE_MUTANTS") == "all"


def find(mutant: Mutant) -> str | None:
    """The first violation of the mutant within its budget."""
    with mutant.patch():
        for seed in (mutant.seed, *range(mutant.budget)):
            verdict = run(seed, mutant.profile)
            if verdict.violation is not None:
                return verdict.violation
    return None


KNOWN_LATE = [mutant for mutant in LATE if mutant.seed]
UNKNOWN_LATE = [mutant for mutant in LATE if not mutant.seed]


@pytest.mark.parametrize("mutant", [*EARLY, *MIDDLE, *KNOWN_LATE], ids=lambda mutant: mutant.name)
def test_mutant_is_found(mutant: Mutant) -> None:
    assert find(mutant) is not None, f"{mutant.name} survives {mutant.budget} seeds"


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not RUN_LATE, reason="PACELINE_MUTANTS=all runs the rare mutants")
@pytest.mark.parametrize("mutant", UNKNOWN_LATE, ids=lambda mutant: mutant.name)
def test_rare_mutant_is_found(mutant: Mutant) -> None:
    assert find(mutant) is not None, f"{mutant.name} survives {mutant.budget} seeds"


@pytest.mark.parametrize("mutant", [*MIDDLE, *KNOWN_LATE], ids=lambda mutant: mutant.name)
def test_the_seed_that_finds_a_mutant_is_clean_without_it(mutant: Mutant) -> None:
    verdict = run(mutant.seed, mutant.profile)
    assert verdict.violation is None, verdict.report()
