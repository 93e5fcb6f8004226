"""Trio made repeatable: virtual time, an order of tasks drawn from a seed, tasks that can be held.

Trio orders each batch of runnable tasks at random. With its own switch for deterministic scheduling
on, it sorts a batch by the tasks' numbers and shuffles it with one generator, which is seeded here;
virtual time comes from MockClock. Nothing else of trio depends on hashes or addresses (DESIGN
1.1), and a test compares whole traces of different processes.

A simulated process is stopped, as by SIGSTOP, by holding its tasks: trio wakes a task only through
``Runner.reschedule``, so that is where those of a held process are put aside.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import trio
import trio.testing
from trio._core import _run as trio_run

T = TypeVar("T")
_TRIO = ("0.35.",)


class TaskGroup:
    """The tasks of one simulated process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._woken = False
        self._was_woken = False
        self._is_held = False
        self._held: list[trio.lowlevel.Task] = []

    @property
    def is_held(self) -> bool:
        return self._is_held

    def may_have_run(self) -> bool:
        """Whether a task of the group may have run in the last batch; asked once between any two
        batches. A task runs in the batch after the one that woke it, or after time did."""
        ran = self._woken or self._was_woken
        self._was_woken, self._woken = self._woken, False
        return ran

    def hold(self) -> None:
        """Let none of the tasks run until :meth:`release`; what wakes them is remembered."""
        self._is_held = True

    def release(self) -> None:
        """Go on: everything that became due meanwhile happens now."""
        self._is_held = False
        held, self._held = self._held, []
        trio_run.GLOBAL_RUN_CONTEXT.runner.runq.extend(held)

    def woken(self, runner: Any, task: trio.lowlevel.Task) -> None:
        """``task``, just put at the end of the run queue, belongs to this group."""
        if self._is_held:
            last = runner.runq.pop()
            assert last is task, "trio does not append to its run queue any more"
            self._held.append(task)
        else:
            self._woken = True


PROCESS: ContextVar[TaskGroup | None] = ContextVar("PROCESS", default=None)
"""The simulated process that the running task belongs to; inherited by the tasks it starts."""


class _Steps(trio.abc.Instrument):
    """Calls back between any two batches of tasks."""

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step

    def before_io_wait(self, timeout: float) -> None:
        self._step()


def run(main: Callable[[], Awaitable[T]], *, seed: int, step: Callable[[], None]) -> T:
    """``trio.run(main)`` on virtual time, repeatable from ``seed``. ``step`` is called between any
    two batches of tasks and must not raise."""
    with _repeatable(seed), _holdable():
        return trio.run(
            main,
            clock=_quick_clock(),
            instruments=[_Steps(step)],
            strict_exception_groups=True,
        )


def _quick_clock() -> trio.testing.MockClock:
    """A MockClock that jumps to the next deadline whenever nobody runs. It is asked for the time in
    every other line of trio, and real time plays no part (its rate is 0), so the detour through the
    real clock is cut short; so is the search for the next deadline in trio's statistics."""
    clock: Any = trio.testing.MockClock(autojump_threshold=0)

    def current_time() -> float:
        now: float = clock._virtual_base
        return now

    def jump() -> None:
        deadline = trio_run.GLOBAL_RUN_CONTEXT.runner.deadlines.next_deadline()
        if clock._virtual_base < deadline < float("inf"):
            clock._virtual_base = deadline

    clock.current_time = current_time
    clock._autojump = jump
    quick: trio.testing.MockClock = clock
    return quick


@contextmanager
def _repeatable(seed: int) -> Iterator[None]:
    if not trio.__version__.startswith(_TRIO):
        raise RuntimeError(
            f"trio {trio.__version__}: the simulator knows the scheduler of {_TRIO[0]}x; "
            "compare trio._core._run with loop.py, then add the version"
        )
    orders: random.Random = trio_run._r
    state, allowed = orders.getstate(), trio_run._ALLOW_DETERMINISTIC_SCHEDULING
    orders.seed(seed)
    _allow(True)
    try:
        yield
    finally:
        _allow(allowed)
        orders.setstate(state)


def _allow(deterministic: bool) -> None:
    vars(trio_run)["_ALLOW_DETERMINISTIC_SCHEDULING"] = deterministic


@contextmanager
def _holdable() -> Iterator[None]:
    reschedule = trio_run.Runner.reschedule

    def holding(
        self: trio_run.Runner, task: trio.lowlevel.Task, next_send: Any = trio_run._NO_SEND
    ) -> None:
        reschedule(self, task, next_send)
        group = task.context.get(PROCESS)
        if group is not None:
            group.woken(self, task)

    vars_of_runner: Any = trio_run.Runner
    vars_of_runner.reschedule = holding
    try:
        yield
    finally:
        vars_of_runner.reschedule = reschedule
