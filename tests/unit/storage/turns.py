"""What is done between two turns of the event loop, counted: the simulator, in which no time passes
in a step, does not see one that holds the loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio


class Turns(trio.abc.Instrument):
    """``number`` rises with every round of the loop within :meth:`counted`."""

    def __init__(self) -> None:
        self.number = 0

    def before_io_wait(self, timeout: float) -> None:
        self.number += 1

    def counting(self, counts: Counter[int], call: Callable[..., Any]) -> Callable[..., Any]:
        """``call``, each use of which is counted for its turn."""

        def counted(*arguments: Any) -> Any:
            counts[self.number] += 1
            return call(*arguments)

        return counted

    @asynccontextmanager
    async def counted(self) -> AsyncIterator[None]:
        """Count the rounds of the loop."""
        trio.lowlevel.add_instrument(self)
        try:
            yield
        finally:
            trio.lowlevel.remove_instrument(self)
