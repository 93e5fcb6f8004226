"""Callbacks that wait for an offset of one partition: producers, long polls, status requests.

No task and no timer per waiter. Everything is synchronous: whoever moves an offset calls
:meth:`OffsetWaiters.advance`, and each callback runs there and then, once. Whoever gives deadlines
calls :meth:`OffsetWaiters.expire` when the earliest has passed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Generic, TypeVar

from paceline.types import NodeId

T = TypeVar("T")
_SWEEP_COUNT = 64


class Waiter(Generic[T]):
    """One waiting callback; ``done`` is None once it was called or forgotten."""

    __slots__ = ("data", "deadline", "done", "keeper")

    def __init__(
        self,
        keeper: OffsetWaiters[T],
        data: T,
        deadline: float,
        done: Callable[[T], None] | None,
    ) -> None:
        self.keeper = keeper
        self.data = data
        self.deadline = deadline
        self.done = done


class OffsetWaiters(Generic[T]):
    """Waiters ordered by offset; equal ones in the order they came."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Waiter[T]]] = []  # (offset, order of coming, waiter)
        self._count = 0
        self._cancelled_count = 0  # entries of the heap that nobody waits for any more
        self._advancing = False
        self._end = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled_count

    def add(
        self, offset: int, data: T, done: Callable[[T], None], deadline: float = math.inf
    ) -> Waiter[T]:
        """Call ``done(data)`` once the watched offset is above ``offset``."""
        self._count += 1
        waiter = Waiter(self, data, deadline, done)
        heapq.heappush(self._heap, (offset, self._count, waiter))
        return waiter

    def cancel(self, waiter: Waiter[T]) -> None:
        """Forget a waiter without calling it; fine when it was called already."""
        if waiter.done is None:
            return
        waiter.done = None
        self._cancelled_count += 1
        # Each sweep is paid for by as many cancellations as half of what it looks at.
        if self._cancelled_count > max(_SWEEP_COUNT, len(self._heap) // 2):
            self._keep(self._heap)

    def advance(self, end: int) -> None:
        """The watched offset is ``end`` now: call everyone it has passed. Called by a callback, it
        leaves that to the call that is under way: whoever waits again at once must not wake the
        next one, who would wake the next."""
        if self._advancing:
            self._end = max(self._end, end)
            return
        self._advancing, self._end = True, end
        try:
            while self._heap and self._heap[0][0] < self._end:
                waiter = heapq.heappop(self._heap)[2]
                done, waiter.done = waiter.done, None
                if done is None:
                    self._cancelled_count -= 1
                else:
                    done(waiter.data)
        finally:
            self._advancing = False

    def drain(self) -> list[T]:
        """Remove everyone, for the caller to tell of a failure, in order of offset."""
        waiting = sorted(self._heap)
        self._keep([])
        return _taken(waiting)

    def expire(self, now: float) -> list[T]:
        """Remove everyone whose deadline has passed, for the caller to tell, in order of offset."""
        expired = sorted(entry for entry in self._heap if entry[2].deadline <= now)
        if expired:
            self._keep([entry for entry in self._heap if entry[2].deadline > now])
        return _taken(expired)

    def earliest_deadline(self) -> float:
        """Of those who wait; inf without one."""
        waiting = (entry[2] for entry in self._heap if entry[2].done is not None)
        return min((waiter.deadline for waiter in waiting), default=math.inf)

    def _keep(self, entries: list[tuple[int, int, Waiter[T]]]) -> None:
        self._heap = [entry for entry in entries if entry[2].done is not None]
        self._cancelled_count = 0
        heapq.heapify(self._heap)


class AckWatchers:
    """Callbacks that wait until one node has acknowledged so much; few, and rare. ``acked`` tells
    how far a node is."""

    def __init__(self, acked: Callable[[NodeId], int]) -> None:
        self._acked = acked
        self._watchers: dict[object, tuple[NodeId, int, Callable[[], None]]] = {}

    def add(self, node: NodeId, end: int, callback: Callable[[], None]) -> object:
        """Call ``callback`` once ``node`` is at ``end``. Returns a token for :meth:`cancel`."""
        token = object()
        self._watchers[token] = (node, end, callback)
        return token

    def cancel(self, token: object) -> None:
        """Forget a callback; idempotent."""
        self._watchers.pop(token, None)

    def notify(self, *, role_changed: bool) -> None:
        """Somebody may be further, or nobody's progress counts any more: then all are called."""
        for token, (node, end, callback) in list(self._watchers.items()):
            if role_changed or self._acked(node) >= end:
                self._watchers.pop(token, None)
                callback()


def _taken(entries: list[tuple[int, int, Waiter[T]]]) -> list[T]:
    waiting = [waiter for _, _, waiter in entries if waiter.done is not None]
    for waiter in waiting:
        waiter.done = None
    return [waiter.data for waiter in waiting]
