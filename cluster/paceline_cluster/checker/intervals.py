"""Sets of whole numbers that mostly come in long runs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator


class IntervalSet:
    """Numbers kept as sorted, disjoint, non-adjacent half-open intervals. Pure.

    Memory and time grow with the number of intervals, not of numbers.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(start, end) of each interval, growing."""
        return zip(self._starts, self._ends, strict=True)

    def __len__(self) -> int:
        """How many numbers are in the set."""
        return sum(self._ends) - sum(self._starts)

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._starts, number) - 1
        return place >= 0 and number < self._ends[place]

    def add(self, start: int, end: int) -> None:
        """Add ``start .. end``."""
        if start >= end:
            return
        if self._ends and start == self._ends[-1]:  # the usual case: the run goes on
            self._ends[-1] = end
            return
        low = bisect_left(self._ends, start)
        high = bisect_right(self._starts, end)
        if low < high:
            start = min(start, self._starts[low])
            end = max(end, self._ends[high - 1])
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]

    def common(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of ``start .. end`` that are in the set."""
        found = []
        place = max(0, bisect_right(self._starts, start) - 1)
        while place < len(self._starts) and self._starts[place] < end:
            low, high = max(start, self._starts[place]), min(end, self._ends[place])
            if low < high:
                found.append((low, high))
            place += 1
        return found

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of ``start .. end`` that are not in the set."""
        found = []
        for low, high in self.common(start, end):
            if start < low:
                found.append((start, low))
            start = high
        if start < end:
            found.append((start, end))
        return found
