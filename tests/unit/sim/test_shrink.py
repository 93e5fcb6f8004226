"""Shrinking keeps what the failure needs and drops the rest."""

from __future__ import annotations

from paceline_cluster.sim.oracle import Violation
from paceline_cluster.sim.plan import Plan, draw
from paceline_cluster.sim.profiles import MIXED
from paceline_cluster.sim.shrink import shrink


def plan_with_faults() -> Plan:
    plan = next(plan for seed in range(100) if len((plan := draw(seed, MIXED)).faults) >= 12)
    assert plan.writers > 1
    return plan


def fails_with(*needed: int) -> tuple[list[Plan], object]:
    tried: list[Plan] = []

    def attempt(plan: Plan) -> Violation | None:
        tried.append(plan)
        numbers = {fault.number for fault in plan.faults}
        if not set(needed) <= numbers:
            return None
        return Violation("I1", f"with {len(numbers)} faults", 1.0)

    return tried, attempt


def test_two_faults_out_of_many() -> None:
    plan = plan_with_faults()
    tried, attempt = fails_with(3, 9)
    shrunk = shrink(plan, Violation("I1", "", 1.0), attempt)  # type: ignore[arg-type]
    assert [fault.number for fault in shrunk.plan.faults] == [3, 9]
    assert shrunk.plan.writers == 1
    assert shrunk.plan.readers == 0
    assert shrunk.plan.seconds < plan.seconds
    assert shrunk.runs == len(tried) <= 60


def test_another_failure_does_not_count() -> None:
    plan = plan_with_faults()
    shrunk = shrink(plan, Violation("I1", "", 1.0), lambda smaller: Violation("I8", "", 1.0))
    assert shrunk.plan == plan


def test_the_number_of_runs_is_bounded() -> None:
    plan = plan_with_faults()
    tried, attempt = fails_with(*range(len(plan.faults)))
    shrink(plan, Violation("I1", "", 1.0), attempt, limit=7)  # type: ignore[arg-type]
    assert len(tried) <= 8
