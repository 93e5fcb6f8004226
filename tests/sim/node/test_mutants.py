"""Broken rules are seen in whole nodes too, by the oracle or by the checker of histories.

Each mutant runs with the seed that was found to show it, then with the others of its budget.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline_cluster.sim.plan import Plan, draw
from paceline_cluster.sim.run import run
from tests.sim.node import disk_mutants
from tests.sim.node.mutants import MUTANTS, NodeMutant

pytestmark = pytest.mark.timeout(600)


def plan_of(mutant: NodeMutant, seed: int) -> Plan:
    """A disk that lies beside what a profile is about is no rule's concern but its own."""
    profile = replace(mutant.profile, besides={})
    if mutant.whole:
        return draw(seed, profile)
    plan = draw(seed, profile, seconds=mutant.seconds)
    if mutant.alone:
        plan = replace(
            plan,
            writers=1,
            crowd=0,
            readers=1,
            members=0,
            troubled=0,
            line_writers=0,
            line_members=0,
        )
    foreign_clients = plan.foreign_clients if mutant.foreign_clients else ()
    return replace(
        plan,
        transactors=0,
        copiers=0,
        streamers=0,
        foreign_clients=foreign_clients,
        foreign_copiers=(),
    )


@pytest.mark.slow
def test_who_is_alone_breaks_nothing() -> None:
    """What finds a rule that is left out finds nothing where all are kept."""
    for mutant in (*MUTANTS, *disk_mutants.MUTANTS):
        for seed in mutant.seeds if mutant.alone else ():
            assert run(plan_of(mutant, seed)).violation is None, seed


def find(mutant: NodeMutant) -> str | None:
    """The first violation within the budget."""
    with mutant.patch():
        for seed in mutant.seeds:
            verdict = run(plan_of(mutant, seed))
            if verdict.violation is not None:
                return str(verdict.violation)
    return None


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, id=mutant.name, marks=[pytest.mark.slow] if mutant.is_slow else [])
        for mutant in (*MUTANTS, *disk_mutants.MUTANTS)
    ],
)
def test_mutant_is_found(mutant: NodeMutant) -> None:
    assert find(mutant) is not None, f"{mutant.name} survives {len(mutant.seeds)} seeds"
