"""The leader epoch cache of one log: where each leader's term begins (DESIGN 2.4).

Pure. An ordered list of (epoch, start offset), both strictly increasing. The log is its authority;
it is written to ``epochs.ckpt`` only so that opening need not read every batch.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from paceline.types import NO_EPOCH, LeaderEpoch


class EpochStart(NamedTuple):
    """The first offset of a leader epoch."""

    epoch: int
    start: int


class EpochEnd(NamedTuple):
    """The end offset (exclusive) of ``epoch``, the largest one not above the epoch asked for."""

    epoch: LeaderEpoch
    end: int


class EpochCache:
    """Epochs and starts of one log, oldest first."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start in entries:
            if self._epochs and (epoch <= self._epochs[-1] or start <= self._starts[-1]):
                raise ValueError(f"epoch {epoch} at offset {start} is not above {self.entries[-1]}")
            self._epochs.append(epoch)
            self._starts.append(start)

    def __repr__(self) -> str:
        return f"EpochCache({[tuple(entry) for entry in self.entries]})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EpochCache):
            return NotImplemented
        return self._epochs == other._epochs and self._starts == other._starts

    __hash__ = None  # type: ignore[assignment]  # mutable

    @property
    def entries(self) -> Sequence[EpochStart]:
        """A copy of the table, oldest epoch first."""
        return [EpochStart(*pair) for pair in zip(self._epochs, self._starts, strict=True)]

    @property
    def last_epoch(self) -> LeaderEpoch:
        """The newest epoch; -1 when there is none."""
        return LeaderEpoch(self._epochs[-1]) if self._epochs else NO_EPOCH

    @property
    def first_epoch(self) -> LeaderEpoch:
        """The oldest epoch; -1 when there is none."""
        return LeaderEpoch(self._epochs[0]) if self._epochs else NO_EPOCH

    @property
    def first_start(self) -> int:
        """Where the oldest epoch begins; -1 when there is none."""
        return self._starts[0] if self._starts else -1

    def newest_outside(self, epochs: Container[int], log_end_offset: int) -> EpochEnd | None:
        """The newest epoch that is none of ``epochs``, and where it ends; None: there is none."""
        end = log_end_offset
        for epoch, start in zip(reversed(self._epochs), reversed(self._starts), strict=True):
            if epoch not in epochs:
                return EpochEnd(LeaderEpoch(epoch), end)
            end = start
        return None

    def assign(self, epoch: int, start: int) -> bool:
        """Note that ``epoch`` begins at ``start``; return whether the table changed.

        Ignored when the epoch is the last one and begins no earlier. Otherwise every entry with an
        epoch or a start not below the new one goes first, so that both stay strictly increasing.
        """
        if self._epochs and epoch == self._epochs[-1] and start >= self._starts[-1]:
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start)
        return True

    def truncate_end(self, offset: int) -> bool:
        """The log now ends at ``offset``: drop entries that begin there or later."""
        count = len(self._starts)
        while self._starts and self._starts[-1] >= offset:
            self._epochs.pop()
            self._starts.pop()
        return len(self._starts) != count

    def lower(self, newest: int) -> int | None:
        """No term above ``newest`` has begun: what the table says of such goes. Where the first
        began, None if there was none; its records count to the term before, or to the oldest."""
        start = None
        while self._epochs and self._epochs[-1] > newest:
            self._epochs.pop()
            start = self._starts.pop()
        if start is not None and not self._epochs:
            self.assign(0, start)
        return start

    def truncate_start(self, offset: int) -> bool:
        """The log now begins at ``offset``: drop entries whose successor begins at or before it;
        the one that covers it begins there."""
        covering = bisect_right(self._starts, offset) - 1
        if covering < 0:
            return False
        changed = covering > 0 or self._starts[0] != offset
        del self._epochs[:covering]
        del self._starts[:covering]
        self._starts[0] = offset
        return changed

    def splice(self, start: int, end: int, entries: Iterable[EpochStart]) -> None:
        """Replace what is known of offsets ``start..end`` by what was read there."""
        before = [entry for entry in self.entries if entry.start < start]
        after = [entry for entry in self.entries if entry.start >= end]
        self.clear()
        for entry in (*before, *entries, *after):
            if entry.epoch > self.last_epoch:
                self.assign(*entry)

    def conflict(self, other: EpochCache, end: int) -> tuple[int, int] | None:
        """From where to before where ``other`` says something else of offsets below ``end`` that
        both cover; None: nowhere."""
        if not self._starts or not other._starts:
            return None
        first = max(self._starts[0], other._starts[0])
        places = sorted({first, *self._starts, *other._starts, end})
        differing = [
            (start, until)
            for start, until in pairwise(places)
            if first <= start < end and self.epoch_at(start) != other.epoch_at(start)
        ]
        return (differing[0][0], differing[-1][1]) if differing else None

    def take(self, other: EpochCache, start: int, end: int) -> None:
        """Believe ``other`` of the offsets from ``start`` on, up to before ``end``, where this
        table ends; what is here of those below must not speak against it."""
        self.truncate_end(start)
        for entry in other.between(start, end):
            self.assign(entry.epoch, max(entry.start, start))

    def clear(self) -> None:
        self._epochs.clear()
        self._starts.clear()

    def epoch_at(self, offset: int) -> LeaderEpoch:
        """The epoch of the record at ``offset``; -1 when it lies before the table."""
        entry = self.entry_at(offset)
        return NO_EPOCH if entry is None else LeaderEpoch(entry.epoch)

    def entry_at(self, offset: int) -> EpochStart | None:
        """The entry of the record at ``offset``; None when it lies before the table."""
        index = bisect_right(self._starts, offset) - 1
        return EpochStart(self._epochs[index], self._starts[index]) if index >= 0 else None

    def start_above(self, epoch: int) -> int | None:
        """Where the oldest epoch begins that is newer than ``epoch``; None: there is none."""
        index = bisect_right(self._epochs, epoch)
        return self._starts[index] if index < len(self._starts) else None

    def span_at(self, offset: int) -> tuple[LeaderEpoch, float]:
        """The epoch of the record at ``offset``, as :meth:`epoch_at`, and the end of its term."""
        above = bisect_right(self._starts, offset)
        end = self._starts[above] if above < len(self._starts) else math.inf
        return (NO_EPOCH if above == 0 else LeaderEpoch(self._epochs[above - 1])), end

    def between(self, start: int, end: int) -> Sequence[EpochStart]:
        """The entries of the records at ``start`` up to before ``end``."""
        first = max(bisect_right(self._starts, start) - 1, 0)
        last = bisect_left(self._starts, end)
        return [
            EpochStart(*pair)
            for pair in zip(self._epochs[first:last], self._starts[first:last], strict=True)
        ]

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd | None:
        """Where ``epoch`` ends in this log, or the largest known epoch below it.

        None when the table knows no epoch above ``epoch`` and it is not the last one: a leader
        never gets there, since its own epoch is in its table. When the table knows none at or
        below, the answer is (``epoch``, start of the next one).
        """
        if not self._epochs or epoch > self._epochs[-1]:
            return None
        if epoch == self._epochs[-1]:
            return EpochEnd(LeaderEpoch(epoch), log_end_offset)
        above = bisect_right(self._epochs, epoch)
        if above == 0:
            return EpochEnd(LeaderEpoch(epoch), self._starts[0])
        return EpochEnd(LeaderEpoch(self._epochs[above - 1]), self._starts[above])
