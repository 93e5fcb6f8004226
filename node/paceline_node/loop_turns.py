"""Long work on the event loop, in slices that take turns.

Trio runs everybody who is ready before it looks at sockets and clocks again, so a thousand requests
of a millisecond each keep it for a second just as one long request does. Work that clients can ask
for in any amount passes a turnstile before each slice: it lets one slice through in each round of
the loop, of clients' addresses and their connections in turns (``fair_line.py``). What costs little
(one small request) needs no turn. What a node does for all of its partitions by itself stands in no
queue: it only pauses.
"""

from __future__ import annotations

import trio

from paceline_node.fair_line import ASKER, Asker, FairLine
from paceline_node.sliced_work import T, Work

SLICE_UNITS = 200
"""Units of work in a slice; together they take a few milliseconds."""
MOST_UNITS = 2 * SLICE_UNITS
"""What a slice may come to with the piece of work that ends it."""

AT_A_TIME = 250
"""Partitions that a node looks at for its own purposes without a pause: a few milliseconds."""


async def pause_after(seen: int) -> None:
    """Called with how many partitions were looked at: lets everybody else have a turn from time to
    time."""
    if seen % AT_A_TIME == 0:
        await trio.lowlevel.checkpoint()


class Turns:
    """The turnstile of a node."""

    def __init__(self) -> None:
        self._line = FairLine[trio.lowlevel.Task]()
        self._is_taken = False
        self.longest_units = 0
        """The most that was done in one turn; the simulator fails above :data:`MOST_UNITS`."""

    def spent(self, units: int) -> None:
        """So much has been done, or is about to be, since the last turn."""
        if units > self.longest_units:
            self.longest_units = units

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
