"""Every wrong rule is found within its budget of seeds (sim/DESIGN 4.1), the known seed first.

Two that random runs hardly hit are in ``test_scripted_mutants.py``.
"""

from __future__ import annotations

import pytest

from paceline_cluster.sim.replicas.runs import run
from tests.sim.replication.mutants import EARLY, LATE, MIDDLE, Mutant


def find(mutant: Mutant) -> str | None:
    """The first violation of the mutant within its budget."""
    with mutant.patch():
        for seed in (mutant.seed, *range(mutant.budget)):
            verdict = run(seed, mutant.profile)
            if verdict.violation is not None:
                return verdict.violation
    return None


@pytest.mark.parametrize("mutant", [*EARLY, *MIDDLE, *LATE], ids=lambda mutant: mutant.name)
def test_mutant_is_found(mutant: Mutant) -> None:
    assert find(mutant) is not None, f"{mutant.name} survives {mutant.budget} seeds"


@pytest.mark.parametrize("mutant", [*MIDDLE, *LATE], ids=lambda mutant: mutant.name)
def test_the_seed_that_finds_a_mutant_is_clean_without_it(mutant: Mutant) -> None:
    verdict = run(mutant.seed, mutant.profile)
    assert verdict.violation is None, verdict.report()
