"""What is done between two turns of the event loop, counted: the simulator, in which no time passes
in a step, does not see one that holds the loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio


class Turns:
    """``number`` rises with every round of the loop within :meth:`counted`."""

    def __init__(self) -> None:
        self.number = 0

    def counting(self, counts: Counter[int], call: Callable[..., Any]) -> Callable[..., Any]:
        """``call``, each use of which is counted for its turn."""

        def counted(*arguments: Any) -> Any:
            counts[self.number] += 1
            return call(*arguments)

        return counted

    @asynccontextmanager
    async def counted(self) -> AsyncIterator[None]:
        """Count the rounds of the loop."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._count)
            yield
            nursery.cancel_scope.cancel()

    async def _count(self, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        while True:
            self.number += 1
            await trio.lowlevel.checkpoint()
