"""A native group whose programs fail, are long at work, and commit by name: no record is passed
over that nobody has worked through, and nothing that was kept is set back. Without a rule it is
found out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from unittest import mock

import pytest

from paceline.client.committable_offsets import CommittableOffsets
from paceline.client.progress import Progress
from paceline.client.shared_consumer import SharedConsumer
from paceline_cluster.sim.plan import draw
from paceline_cluster.sim.profiles import LABOUR
from paceline_cluster.sim.run import run

pytestmark = pytest.mark.timeout(600)

BUDGET = 10


def _forgets_what_it_drops(self: Progress) -> None:
    self._in_hand = None


@dataclass(frozen=True)
class Mutant:
    """A rule taken away; ``seed`` is the first that was found to show it."""

    name: str
    target: type
    method: str
    broken: Callable[..., object]
    seed: int


MUTANTS = (
    Mutant("what a program failed on is done", Progress, "drop", _forgets_what_it_drops, 0),
    Mutant("so is what a time-out cut short", SharedConsumer, "may_be_through", lambda _: True, 41),
    Mutant("what was given up is forgotten", CommittableOffsets, "owed", lambda *_: [], 20),
    Mutant("automatic commits go behind a program's", Progress, "say", lambda *_: None, 10),
)


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(each, id=each.name, marks=[] if each in MUTANTS[2:] else [pytest.mark.slow])
        for each in MUTANTS
    ],
)
def test_without_the_rule_it_is_found_out(mutant: Mutant) -> None:
    told = []
    with mock.patch.object(mutant.target, mutant.method, mutant.broken):
        for seed in (mutant.seed, *range(BUDGET)):
            plan = replace(draw(seed, LABOUR, seconds=6.0), foreign_clients=(), foreign_copiers=())
            found = run(replace(plan, transactors=0, copiers=0, streamers=0)).violation
            if found is not None:
                assert "committed" in str(found)
                return
            told.append(seed)
    raise AssertionError(f"{mutant.name} survives seeds {told}")
