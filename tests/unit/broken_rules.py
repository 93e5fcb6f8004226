"""Machines that Hypothesis drives must be able to fail: each is run with one rule broken."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Collection

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import RULE_MARKER, RuleBasedStateMachine, run_state_machine_as_test

from paceline.errors import CorruptMessage


def assert_found(
    machine: type[RuleBasedStateMachine],
    broken: contextlib.AbstractContextManager[object],
    *,
    examples: int = 5000,
    steps: int = 40,
    rules: Collection[str] = (),
) -> None:
    """``machine`` finds what ``broken`` breaks while it is entered, within ``examples`` lives. That
    is far above what any rule needs, some hundreds at most on average: how many changes with
    whatever the machine and the product do, and none of those changes is to be a failure here.
    What the product itself calls damage, on a disk that has none, is found as well. ``rules``: the
    only ones that are played, where what is broken shows in a sequence of few of them: among all of
    a machine's that is rare, and its finding a matter of luck and time."""
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
        run_state_machine_as_test(_only(machine, rules) if rules else machine, settings=much)


def _only(
    machine: type[RuleBasedStateMachine], names: Collection[str]
) -> type[RuleBasedStateMachine]:
    """``machine`` without its other rules; what it begins with and what always holds stay."""
    kept: type[RuleBasedStateMachine] = type(f"Some{machine.__name__}", (machine,), {})
    parts = inspect.getmembers(machine, inspect.isfunction)
    own = {name: getattr(part, RULE_MARKER) for name, part in parts if hasattr(part, RULE_MARKER)}
    assert own.keys() >= set(names), f"{machine.__name__} has no {set(names) - own.keys()}"
    for name in own.keys() - set(names):
        setattr(kept, name, own[name].function)  # others may call it still
    return kept
