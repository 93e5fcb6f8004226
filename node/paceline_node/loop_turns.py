"""Long work on the event loop, in slices that take turns.

Trio runs everybody who is ready before it looks at sockets and clocks again, so a thousand requests
of a millisecond each keep it for a second just as one long request does. Work that clients can ask
for in any amount passes a turnstile before each slice: it lets one slice through in each round of
the loop, of clients' addresses and their connections in turns (``fair_line.py``). What a node does
for all of its partitions by itself stands in no queue: it only pauses.

One small request needs no turn, but thousands of them in one round would keep the loop as well. So
all together have a slice in each round: until it is spent they are served at once, and without a
checkpoint. Who comes then stands in a line of its own, out of which each round serves a slice's
worth, in turns again. What another node asks for passes neither.
"""

from __future__ import annotations

from typing import NamedTuple

import trio

from paceline_node.fair_line import ASKER, Asker, FairLine
from paceline_node.sliced_work import T, Work

SLICE_UNITS = 200
"""Units of work in a slice; together they take a few milliseconds."""
MOST_UNITS = 2 * SLICE_UNITS
"""What a slice may come to with the piece of work that ends it."""

SMALL_UNITS = 10
"""What a small request costs where nothing tells more: to read its bytes, to wake its connection's
tasks and to write an answer takes 0.2 ms."""

AT_A_TIME = 250
"""Partitions that a node looks at for its own purposes without a pause: a few milliseconds."""


async def pause_after(seen: int) -> None:
    """Called with how many partitions were looked at: lets everybody else have a turn from time to
    time."""
    if seen % AT_A_TIME == 0:
        await trio.lowlevel.checkpoint()


class _Rounds(trio.abc.Instrument):
    """Counts the rounds of the loop."""

    def __init__(self) -> None:
        self.number = 0

    def after_io_wait(self, timeout: float) -> None:
        """Trio is about to run everybody who is ready."""
        self.number += 1


_ROUNDS = trio.lowlevel.RunVar[_Rounds]("_ROUNDS")


def _rounds() -> _Rounds:
    """Of the loop that runs; nodes that are simulated share one."""
    try:
        return _ROUNDS.get()
    except LookupError:
        made = _Rounds()
        trio.lowlevel.add_instrument(made)
        _ROUNDS.set(made)
        return made


class _Waiting(NamedTuple):
    """A small request that waits, and what it costs."""

    task: trio.lowlevel.Task
    units: int


class _SmallRequests:
    """All of them together: a slice in each round."""

    def __init__(self) -> None:
        self._line = FairLine[_Waiting]()
        self._rounds: _Rounds | None = None
        self._round = 0
        self._left = SLICE_UNITS
        """Units that may be spent in that round."""
        self._releases: trio.lowlevel.Task | None = None
        """Who runs in the next round, and lets those of the round after it through. None: nobody
        waits."""

    def admits(self, units: int) -> bool:
        """Whether so much may be done at once; it is counted then."""
        if self._releases is not None:
            return False
        if self._rounds is None:
            self._rounds = _rounds()
        if self._round != self._rounds.number:
            self._round, self._left = self._rounds.number, SLICE_UNITS
        if self._left <= 0:
            return False
        self._left -= units
        return True

    async def wait(self, units: int) -> None:
        """Wait until so much may be done."""
        task = trio.lowlevel.current_task()
        if self._releases is None:
            self._releases = task
            self._left = SLICE_UNITS - units
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            await self._stand(ASKER.get(), _Waiting(task, units))
        if self._releases is task:
            self._release()

    async def _stand(self, asker: Asker, waiting: _Waiting) -> None:
        def give_up(_: object) -> trio.lowlevel.Abort:
            self._line.remove(asker, waiting)
            return trio.lowlevel.Abort.SUCCEEDED

        self._line.add(asker, waiting)
        await trio.lowlevel.wait_task_rescheduled(give_up)

    def _release(self) -> None:
        """Let a slice's worth through in the next round. Where nobody waits, what is left of this
        one is for newcomers."""
        self._releases, left = None, SLICE_UNITS
        while left > 0 and (waiting := self._line.next()) is not None:
            left -= waiting.units
            if self._releases is None:
                self._releases = waiting.task
            trio.lowlevel.reschedule(waiting.task)
        if self._releases is not None:
            self._left = left
        elif self._rounds is not None:
            self._round = self._rounds.number


class Turns:
    """The turnstile of a node."""

    def __init__(self) -> None:
        self._line = FairLine[trio.lowlevel.Task]()
        self._is_taken = False
        self._small = _SmallRequests()
        self.longest_units = 0
        """The most that was done in one turn; the simulator fails above :data:`MOST_UNITS`."""

    def spent(self, units: int) -> None:
        """So much has been done, or is about to be, since the last turn."""
        if units > self.longest_units:
            self.longest_units = units

    def admits(self, units: int = SMALL_UNITS) -> bool:
        """Whether a small request may be served at once; it is counted then. Who may not waits by
        :meth:`small`."""
        return self._small.admits(units)

    async def small(self, units: int = SMALL_UNITS) -> None:
        """Wait until a small request may be served; mostly not at all, and without a
        checkpoint."""
        if not self._small.admits(units):
            await trio.lowlevel.checkpoint_if_cancelled()
            await self._small.wait(units)

    async def next(self) -> None:
        """Wait for a turn. What the caller does until it awaits again is its slice."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._is_taken:
            await self._wait(ASKER.get(), trio.lowlevel.current_task())
        else:
            self._is_taken = True
            await trio.lowlevel.cancel_shielded_checkpoint()
        waiter = self._line.next()
        if waiter is None:
            self._is_taken = False
        else:  # it runs in the next round of the loop
            trio.lowlevel.reschedule(waiter)

    async def _wait(self, asker: Asker, task: trio.lowlevel.Task) -> None:
        def give_up(_: object) -> trio.lowlevel.Abort:
            self._line.remove(asker, task)
            return trio.lowlevel.Abort.SUCCEEDED

        self._line.add(asker, task)
        await trio.lowlevel.wait_task_rescheduled(give_up)

    async def run(self, work: Work[T]) -> T:
        """The result of ``work``, which yields the units that it has spent since it last did."""
        await self.next()
        spent = 0
        while True:
            try:
                spent += next(work)
            except StopIteration as end:
                result: T = end.value
                return result
            if spent >= SLICE_UNITS:
                self.spent(spent)
                spent = 0
                await self.next()
