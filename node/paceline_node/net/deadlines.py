"""Many deadlines, one sleeping task: a request's timeout costs a heap entry, not a task."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import trio

_SWEEP_COUNT = 1024
_SLOWEST_BYTES_S = 64 * 1024


def arrival_s(stall_s: float, size: int) -> float:
    """Within what a client's message of ``size`` bytes must arrive once it has begun, whatever the
    protocol: ``stall_s``, and a second for every 64 KiB."""
    return stall_s + size / _SLOWEST_BYTES_S


class Deadline:
    """One entry; :meth:`cancel` it when what it guards has happened."""

    __slots__ = ("_keeper", "at", "expired", "order")

    def __init__(
        self, keeper: Deadlines, at: float, order: int, expired: Callable[[], None]
    ) -> None:
        self._keeper = keeper
        self.at = at
        self.order = order
        self.expired: Callable[[], None] | None = expired

    def __lt__(self, other: Deadline) -> bool:
        return (self.at, self.order) < (other.at, other.order)

    def cancel(self) -> None:
        """Do not call back; no effect once it has."""
        if self.expired is not None:
            self.expired = None
            self._keeper.cancelled()


class Deadlines:
    """Calls back when deadlines pass, in their order; equal ones in the order they were set."""

    def __init__(self) -> None:
        self._heap: list[Deadline] = []
        self._count = 0
        self._cancelled_count = 0
        self._scope: trio.CancelScope | None = None

    def __len__(self) -> int:
        """Entries kept, cancelled ones that were not swept yet included."""
        return len(self._heap)

    def after(self, seconds: float, expired: Callable[[], None]) -> Deadline:
        """Call ``expired`` (sync, must not raise) in ``seconds`` unless cancelled before."""
        return self.at(trio.current_time() + seconds, expired)

    def at(self, deadline: float, expired: Callable[[], None]) -> Deadline:
        """Call ``expired`` (sync, must not raise) at ``deadline``, a time of trio's clock, or soon
        if that has passed; unless cancelled before."""
        self._count += 1
        entry = Deadline(self, deadline, self._count, expired)
        heapq.heappush(self._heap, entry)
        if self._scope is not None and entry.at < self._scope.deadline:
            self._scope.deadline = entry.at
        return entry

    def cancelled(self) -> None:
        """An entry was cancelled (called by it). Most are, long before their time: when they make
        up most of the heap they are swept out."""
        self._cancelled_count += 1
        if self._cancelled_count > max(_SWEEP_COUNT, len(self._heap) // 2):
            self._heap = [entry for entry in self._heap if entry.expired is not None]
            heapq.heapify(self._heap)
            self._cancelled_count = 0

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
            expired, entry.expired = entry.expired, None
            if expired is None:
                self._cancelled_count = max(0, self._cancelled_count - 1)
            else:
                expired()
