"""Callbacks that wait for an offset of one partition: producers, long polls, status requests.

No task and no timer per waiter. Everything is synchronous: whoever moves an offset calls
:meth:`OffsetWaiters.advance`, and each callback runs there and then, once. Timeouts cost one armed
deadline for all waiters together, re-armed only when it has passed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

Arm = Callable[[float], None]
"""Asks to be called back (``expire``) at this time; asking again for another time is fine."""


class Waiter(Generic[T]):
    """One waiting callback. ``offset`` is the end that must be passed: it is met once the watched
    offset is above it."""

    __slots__ = ("data", "deadline", "done", "offset", "order")

    def __init__(
        self, offset: int, order: int, data: T, deadline: float, done: Callable[[T], None] | None
    ) -> None:
        self.offset = offset
        self.order = order
        self.data = data
        self.deadline = deadline
        self.done = done

    def __lt__(self, other: Waiter[T]) -> bool:
        if self.offset != other.offset:
            return self.offset < other.offset
        return self.order < other.order


class OffsetWaiters(Generic[T]):
    """Waiters ordered by offset; equal ones in the order they came."""

    def __init__(self, arm: Arm) -> None:
        self._heap: list[Waiter[T]] = []
        self._count = 0
        self._arm = arm
        self._armed_for = float("inf")

    def __len__(self) -> int:
        return len(self._heap)

    def add(
        self, offset: int, data: T, done: Callable[[T], None], deadline: float = float("inf")
    ) -> Waiter[T]:
        """Call ``done(data)`` once the watched offset is above ``offset``."""
        self._count += 1
        waiter = Waiter(offset, self._count, data, deadline, done)
        heapq.heappush(self._heap, waiter)
        if deadline < self._armed_for:
            self._armed_for = deadline
            self._arm(deadline)
        return waiter

    def cancel(self, waiter: Waiter[T]) -> None:
        """Forget a waiter without calling it; fine when it was called already."""
        if waiter.done is not None:
            waiter.done = None
            self._heap.remove(waiter)
            heapq.heapify(self._heap)

    def advance(self, end: int) -> None:
        """The watched offset is ``end`` now: call everyone it has passed."""
        heap = self._heap
        while heap and heap[0].offset < end:
            waiter = heapq.heappop(heap)
            done, waiter.done = waiter.done, None
            if done is not None:
                done(waiter.data)

    def drain(self) -> list[T]:
        """Remove everyone, for the caller to tell of a failure, in order of offset."""
        waiting = sorted(self._heap)
        self._heap.clear()
        return self._taken(waiting)

    def expire(self, now: float) -> list[T]:
        """Remove everyone whose deadline has passed, for the caller to tell, in order of offset."""
        expired = sorted(waiter for waiter in self._heap if waiter.deadline <= now)
        if expired:
            self._heap = [waiter for waiter in self._heap if waiter.deadline > now]
            heapq.heapify(self._heap)
        self._armed_for = min((waiter.deadline for waiter in self._heap), default=float("inf"))
        if self._armed_for != float("inf"):
            self._arm(self._armed_for)
        return self._taken(expired)

    @staticmethod
    def _taken(waiters: list[Waiter[T]]) -> list[T]:
        for waiter in waiters:
            waiter.done = None
        return [waiter.data for waiter in waiters]
