"""How long tasks keep the event loop to themselves, and which of them.

A task's step is what it does between two awaits; nobody else is served meanwhile. Handlers keep
their steps below :data:`SLICE_S` by working in slices or in a thread. What is longer is counted
under the task's name: connections are called after their protocol, requests with a task of their
own after their kind, so the names are few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import trio

from paceline_node.observe.task_counts import name_of

SLICE_S = 0.01
"""What one task may take of the loop at a time."""


class SliceMeter(trio.abc.Instrument):
    """Measures each step of each task by ``clock`` (seconds, from any origin). Costs 0.4 us a step
    with ``time.perf_counter``, 0.8 us with ``time.thread_time``."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = math.inf  # the step that is under way is not measured from its begin
        self._longest_s: dict[str, float] = {}
        self._longest_before_s: dict[str, float] = {}
        self._too_long: dict[str, int] = {}

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Trio is about to run a step."""
        self._began = self._clock()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """The step has ended."""
        took_s = self._clock() - self._began
        if took_s > SLICE_S:
            self._note(name_of(task), took_s)

    def _note(self, name: str, took_s: float) -> None:
        self._too_long[name] = self._too_long.get(name, 0) + 1
        if took_s > self._longest_s.get(name, 0.0):
            self._longest_s[name] = took_s

    def next_window(self) -> None:
        """What was longest before the last call is forgotten."""
        self._longest_before_s, self._longest_s = self._longest_s, {}

    def longest(self) -> Iterable[tuple[tuple[str, ...], float]]:
        """The gauge ``loop_longest_slice_seconds``: of those above :data:`SLICE_S`, by task."""
        for name in sorted(self._longest_s.keys() | self._longest_before_s.keys()):
            before_s = self._longest_before_s.get(name, 0.0)
            yield (name,), max(self._longest_s.get(name, 0.0), before_s)

    def too_long(self) -> Iterable[tuple[tuple[str, ...], float]]:
        """The counter ``loop_long_slices``: steps above :data:`SLICE_S`, by task."""
        return [((name,), float(count)) for name, count in sorted(self._too_long.items())]
