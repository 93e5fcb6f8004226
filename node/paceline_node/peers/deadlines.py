"""Many deadlines, one sleeping task: a request's timeout costs a heap entry, not a task."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import trio


class Deadline:
    """One entry; :meth:`cancel` it when what it guards has happened."""

    __slots__ = ("at", "expired", "order")

    def __init__(self, at: float, order: int, expired: Callable[[], None]) -> None:
        self.at = at
        self.order = order
        self.expired: Callable[[], None] | None = expired

    def __lt__(self, other: Deadline) -> bool:
        return (self.at, self.order) < (other.at, other.order)

    def cancel(self) -> None:
        self.expired = None


class Deadlines:
    """Calls back when deadlines pass, in their order; equal ones in the order they were set."""

    def __init__(self) -> None:
        self._heap: list[Deadline] = []
        self._count = 0
        self._scope: trio.CancelScope | None = None

    def after(self, seconds: float, expired: Callable[[], None]) -> Deadline:
        """Call ``expired`` (sync, must not raise) in ``seconds`` unless cancelled before."""
        self._count += 1
        entry = Deadline(trio.current_time() + seconds, self._count, expired)
        heapq.heappush(self._heap, entry)
        if self._scope is not None and entry.at < self._scope.deadline:
            self._scope.deadline = entry.at
        return entry

    async def run(self) -> None:
        """Serve the deadlines; runs until cancelled."""
        while True:
            self._fire(trio.current_time())
            head = self._heap[0].at if self._heap else math.inf
            with trio.CancelScope(deadline=head) as self._scope:
                await trio.sleep_forever()

    def _fire(self, now: float) -> None:
        while self._heap and (self._heap[0].at <= now or self._heap[0].expired is None):
            entry = heapq.heappop(self._heap)
            if entry.expired is not None:
                entry.expired()
