"""One alarm per name, the earliest that was asked for."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from paceline.errors import PacelineError

_AT_ONCE = 20
"""So many are woken before others have their turn."""
_RETRY_S = 1.0
K = TypeVar("K", bound=Hashable)


class Alarms(Generic[K]):
    """Whoever is woken looks at its own state and asks again, so asking for a later time than the
    one that stands changes nothing, and a heartbeat costs nothing here."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, K]] = []  # (time, order of asking, name)
        self._at: dict[K, float] = {}
        self._count = 0

    def ask(self, name: K, at: float) -> None:
        """Wake ``name`` at ``at``, unless it is to be woken before."""
        if at >= self._at.get(name, math.inf):
            return
        self._at[name] = at
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, name))

    def next(self) -> float:
        """When the first one is due, inf for never."""
        heap = self._heap
        while heap and self._at.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def pop_due(self, now: float) -> K | None:
        """Take the first one that is due; None when none is."""
        if self.next() > now:
            return None
        name = heapq.heappop(self._heap)[2]
        del self._at[name]
        return name

    def ring(self, now: float, wake: Callable[[K], float]) -> None:
        """Wake some of those that are due. ``wake`` returns when the name wants to be woken again,
        inf for never; where it cannot store what it has to, that is in a second."""
        asked: list[tuple[K, float]] = []
        for _ in range(_AT_ONCE):
            name = self.pop_due(now)
            if name is None:
                break
            try:
                again = wake(name)
            except PacelineError:
                again = now + _RETRY_S
            asked.append((name, max(again, now)))
        for name, again in asked:  # after the others: who has more to do waits for its turn
            self.ask(name, again)

    def clear(self) -> None:
        """Wake nobody."""
        self._heap.clear()
        self._at.clear()
