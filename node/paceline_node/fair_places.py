"""Places for a few at a time, of which no source of requests has all."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from paceline_node.fair_line import ASKER, FairLine


class FairPlaces:
    """``total`` places, ``of_one`` for those who ask from one address. Who finds none waits;
    sources and their connections take turns (``fair_line.py``)."""

    def __init__(self, total: int, *, of_one: int) -> None:
        self._free = total
        self._of_one = of_one
        self._taken: Counter[str] = Counter()
        self._line = FairLine[tuple[str, trio.Event]]()

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """A place while the block lasts."""
        asker = ASKER.get()
        source, given = asker.source, trio.Event()
        waiter = source, given
        self._line.add(asker, waiter)
        self._give()
        try:
            await given.wait()
        except trio.Cancelled:
            if given.is_set():
                self._leave(source)
            else:
                self._line.remove(asker, waiter)
            raise
        try:
            yield
        finally:
            self._leave(source)

    def _give(self) -> None:
        while self._free and (found := self._line.next(self._may)) is not None:
            source, given = found
            self._free -= 1
            self._taken[source] += 1
            given.set()

    def _may(self, source: str) -> bool:
        return self._taken[source] < self._of_one

    def _leave(self, source: str) -> None:
        self._taken[source] -= 1
        if not self._taken[source]:
            del self._taken[source]
        self._free += 1
        self._give()
