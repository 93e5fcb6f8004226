"""Machines that Hypothesis drives must be able to fail: each is run with one rule broken."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def assert_found(
    machine: type[RuleBasedStateMachine],
    broken: contextlib.AbstractContextManager[object],
    *,
    examples: int = 300,
    steps: int = 40,
) -> None:
    """``machine`` finds what ``broken`` breaks while it is entered, within ``examples`` lives, the
    same ones every time."""
    much = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        phases=[Phase.generate],
        database=None,
        derandomize=True,
        print_blob=False,
    )
    with broken, pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=much)
