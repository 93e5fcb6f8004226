"""Making a failing plan small: delta debugging over its faults, then a shorter and emptier run.

A smaller plan counts when it breaks the same invariant. Every try is a whole run, so the number of
tries is bounded; what was found so far is a failing plan at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from paceline.values import dataclass
from paceline_cluster.sim.oracle import Violation
from paceline_cluster.sim.plan import Fault, Plan

Try = Callable[[Plan], Violation | None]
_AFTER_S = 0.5


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest plan found, how it fails, and after how many runs."""

    plan: Plan
    violation: Violation
    runs: int


class _Search:
    def __init__(self, plan: Plan, violation: Violation, attempt: Try, limit: int) -> None:
        self.plan = plan
        self.violation = violation
        self._attempt = attempt
        self._limit = limit
        self.runs = 0

    @property
    def may_go_on(self) -> bool:
        return self.runs < self._limit

    def accepts(self, smaller: Plan) -> bool:
        """Whether ``smaller`` fails alike; it is the plan from then on."""
        self.runs += 1
        violation = self._attempt(smaller)
        if violation is None or violation.invariant != self.violation.invariant:
            return False
        self.plan, self.violation = smaller, violation
        return True


def shrink(plan: Plan, violation: Violation, attempt: Try, *, limit: int = 60) -> Shrunk:
    """Find a smaller plan that breaks the same invariant, in at most ``limit`` runs."""
    search = _Search(plan, violation, attempt, limit)
    _fewer_faults(search)
    for smaller in _emptier(search):
        if not search.may_go_on:
            break
        if smaller != search.plan:
            search.accepts(smaller)
    return Shrunk(search.plan, search.violation, search.runs)


def _fewer_faults(search: _Search) -> None:
    """Zeller's ddmin over the fault list."""
    pieces = 2
    while len(search.plan.faults) > 0 and search.may_go_on:
        faults = search.plan.faults
        pieces = min(pieces, len(faults))
        if any(_without(search, part) for part in _parts(faults, pieces) if search.may_go_on):
            pieces = max(2, pieces - 1)
        elif pieces >= len(faults):
            return
        else:
            pieces *= 2


def _parts(faults: Sequence[Fault], count: int) -> list[Sequence[Fault]]:
    size = -(-len(faults) // count)
    return [faults[start : start + size] for start in range(0, len(faults), size)]


def _without(search: _Search, part: Sequence[Fault]) -> bool:
    left_out = {fault.number for fault in part}
    kept = tuple(fault for fault in search.plan.faults if fault.number not in left_out)
    return search.accepts(replace(search.plan, faults=kept))


def _emptier(search: _Search) -> Iterator[Plan]:
    """Smaller runs to try, each made from the smallest found so far."""
    last = max((fault.at_s for fault in search.plan.faults), default=0.0)
    yield replace(search.plan, seconds=min(search.plan.seconds, last + _AFTER_S))
    yield replace(search.plan, topics=search.plan.topics[:1])
    yield replace(search.plan, readers=0)
    yield replace(search.plan, foreign_copiers=())
    while search.plan.writers > 1 and search.may_go_on:
        before = search.plan.writers
        yield replace(search.plan, writers=before - 1)
        if search.plan.writers == before:
            return
