"""What the transactions of one log mean to readers: what is stable, what was aborted. Pure.

Part of the producer table (``producers.py``), and like it a function of the log: a transaction is
open from its first batch to its end marker. Nothing at or above the *first unstable offset* is
shown to readers of committed records.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from paceline.wire.batch_header import BatchHeader


class AbortedTransaction(NamedTuple):
    """Readers drop what ``producer_id`` wrote from ``first_offset`` up to its marker at
    ``last_offset``."""

    producer_id: int
    first_offset: int
    last_offset: int


def is_aborted(header: BatchHeader, aborted: Sequence[AbortedTransaction]) -> bool:
    """Whether a stored batch belongs to one of these transactions."""
    return header.is_transactional and any(
        each.producer_id == header.producer_id
        and each.first_offset <= header.base_offset <= each.last_offset
        for each in aborted
    )


class AbortedRanges:
    """Aborted transactions for many questions: those of one producer follow each other."""

    def __init__(self, entries: Iterable[AbortedTransaction] = ()) -> None:
        """``entries`` by marker, ascending."""
        by_producer: dict[int, tuple[list[int], list[int]]] = {}
        for entry in entries:
            firsts, lasts = by_producer.setdefault(entry.producer_id, ([], []))
            firsts.append(entry.first_offset)
            lasts.append(entry.last_offset)
        self._by_producer: Mapping[int, tuple[list[int], list[int]]] = by_producer

    def contains(self, header: BatchHeader) -> bool:
        """Whether a stored batch belongs to one of them."""
        if not header.is_transactional or header.producer_id not in self._by_producer:
            return False
        firsts, lasts = self._by_producer[header.producer_id]
        at = bisect_left(lasts, header.base_offset)
        return at < len(lasts) and firsts[at] <= header.base_offset


class TransactionIndex:
    """``open`` holds the first offset of each open transaction, by producer id."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        self.known_to: int | None = None
        """While the table is rebuilt from the log: how far. Nobody may rely on what is behind."""
        self._aborted: list[AbortedTransaction] = []  # by marker, ascending
        self._least_first: list[int] = []  # the least first offset from each entry on
        self._ended: deque[tuple[int, int]] = deque()  # (marker, first offset), ascending

    @property
    def aborted(self) -> Sequence[AbortedTransaction]:
        """All aborted transactions whose markers lie in the log, by marker."""
        return self._aborted

    def ended(self, producer_id: int, first_offset: int, marker: int, *, commits: bool) -> None:
        """A transaction that was open ends with the marker at offset ``marker``."""
        self._ended.append((marker, first_offset))
        if not commits:
            self._add(AbortedTransaction(producer_id, first_offset, marker))

    def _add(self, entry: AbortedTransaction) -> None:
        self._aborted.append(entry)
        least = self._least_first
        least.append(entry.first_offset)
        at = len(least) - 2
        while at >= 0 and least[at] > entry.first_offset:
            least[at] = entry.first_offset
            at -= 1

    def first_unstable(self, high_watermark: int) -> int:
        """Readers of committed records may go up to here, at most: before the first open
        transaction, and the first whose marker is not committed itself."""
        self.settled(high_watermark)
        least = high_watermark if self.known_to is None else min(high_watermark, self.known_to)
        for first in self.open.values():
            least = min(least, first)
        for _, first in self._ended:
            least = min(least, first)
        return least

    def settled(self, high_watermark: int) -> None:
        """Markers below ``high_watermark`` are committed: nothing more hangs on them."""
        ended = self._ended
        while ended and ended[0][0] < high_watermark:
            ended.popleft()

    @property
    def unsettled_count(self) -> int:
        """Ended transactions whose markers are not known to be committed."""
        return len(self._ended)

    def aborted_in(self, start: int, end: int) -> list[AbortedTransaction]:
        """Those with records in offsets ``start..end`` (exclusive), by marker."""
        aborted = self._aborted
        at = bisect_left(aborted, start, key=lambda entry: entry.last_offset)
        found = []
        while at < len(aborted) and self._least_first[at] < end:
            if aborted[at].first_offset < end:
                found.append(aborted[at])
            at += 1
        return found

    def truncate(self, offset: int) -> None:
        """Markers at or above ``offset`` are gone; the table reopens what they ended."""
        while self._ended and self._ended[-1][0] >= offset:
            self._ended.pop()
        kept = [entry for entry in self._aborted if entry.last_offset < offset]
        if len(kept) < len(self._aborted):
            self.replace_aborted(kept)

    def forget_below(self, offset: int) -> None:
        """The log begins at ``offset`` now, or holds nothing aborted below it any more."""
        at = bisect_left(self._aborted, offset, key=lambda entry: entry.last_offset)
        del self._aborted[:at]
        del self._least_first[:at]

    def replace_aborted(self, entries: Iterable[AbortedTransaction]) -> None:
        """Take over a list, by marker ascending."""
        self._aborted = []
        self._least_first = []
        for entry in entries:
            self._add(entry)

    def clear(self) -> None:
        """Forget everything."""
        self.open.clear()
        self._ended.clear()
        self.replace_aborted(())
