"""Machines that Hypothesis drives must be able to fail: each is run with one rule broken."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from paceline.errors import CorruptMessage


def assert_found(
    machine: type[RuleBasedStateMachine],
    broken: contextlib.AbstractContextManager[object],
    *,
    examples: int = 5000,
    steps: int = 40,
) -> None:
    """``machine`` finds what ``broken`` breaks while it is entered, within ``examples`` lives. That
    is far above what any rule needs, some hundreds at most on average: how many changes with
    whatever the machine and the product do, and none of those changes is to be a failure here.
    What the product itself calls damage, on a disk that has none, is found as well."""
    much = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        phases=[Phase.generate],
        database=None,
        derandomize=True,
        print_blob=False,
    )
    with broken, pytest.raises((AssertionError, CorruptMessage)):
        run_state_machine_as_test(machine, settings=much)
