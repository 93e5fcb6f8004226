"""Two ways for work between nodes: a narrow one for what is large, a wide one for what is small.

What ends with a thousand partitions costs each node tens of milliseconds, and hundreds may end at
once: they go two at a time, and whatever is small passes them by. First come, first served in each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

SMALL_UNITS = 50
SMALL_AT_ONCE = 64
LARGE_AT_ONCE = 2


class WorkLimits:
    """Lets so much work go at a time. Where there is room nobody waits, not even for others that
    are ready to run."""

    def __init__(self) -> None:
        self._small = trio.Semaphore(SMALL_AT_ONCE)
        self._large = trio.Semaphore(LARGE_AT_ONCE)

    @asynccontextmanager
    async def enter(self, units: int) -> AsyncIterator[None]:
        """Room for work on ``units`` partitions."""
        lane = self._small if units <= SMALL_UNITS else self._large
        try:
            lane.acquire_nowait()
        except trio.WouldBlock:
            await lane.acquire()
        try:
            yield
        finally:
            lane.release()
