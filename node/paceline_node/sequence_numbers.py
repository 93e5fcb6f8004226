"""Records whose producers number each of them, as all rooms speak of them.

What a log knows of such producers: ``storage/sequenced_records.py``.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple, overload

from paceline.errors import InvalidProducerEpoch, OutOfOrderSequence


class Rule(enum.Enum):
    """Which policy a topic, or a request, asks for."""

    STRICT = "strict"
    WINDOW = "window"


class Number(NamedTuple):
    """Which record of whom. ``producer`` is for messages, ``key`` for the table."""

    key: bytes
    producer: str
    epoch: int
    sequence: int


class StaleProducerEpoch(InvalidProducerEpoch):
    """A newer instance of the producer has written."""

    def __init__(self, number: Number, current: int) -> None:
        super().__init__(f"producer {number.producer}: epoch {number.epoch}, newest is {current}")
        self.number = number
        self.current = current


class SequenceGap(OutOfOrderSequence):
    """Records before this one were never stored."""

    def __init__(self, number: Number, expected: int) -> None:
        super().__init__(
            f"producer {number.producer}: record {number.sequence}, expected {expected}"
        )
        self.number = number
        self.expected = expected


def producer_key(producer: bytes) -> bytes:
    """The 16 bytes that stand for a producer's name."""
    return blake2b(producer, digest_size=16).digest()


class NumberRuns(Sequence[Number | None]):
    """Numbers of records, kept as what is one after the other: 100,000 numbers of one producer are
    one run, and no objects that Python's collector has to look through."""

    __slots__ = ("_count", "_firsts", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._firsts: list[Number | None] = []
        self._count = 0

    @property
    def run_count(self) -> int:
        return len(self._starts)

    def add_nobody(self) -> None:
        """The next record has no number."""
        if not self._firsts or self._firsts[-1] is not None:
            self._begin(None)
        self._count += 1

    def add(self, key: bytes, producer: str, epoch: int, sequence: int) -> None:
        """The number of the next record."""
        first = self._firsts[-1] if self._firsts else None
        if (
            first is None
            or sequence != first.sequence + self._count - self._starts[-1]
            or epoch != first.epoch
            or key != first.key
        ):
            self._begin(Number(key, producer, epoch, sequence))
        self._count += 1

    def _begin(self, first: Number | None) -> None:
        self._starts.append(self._count)
        self._firsts.append(first)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Number | None]:
        for start, stop, first in self._runs():
            for ahead in range(stop - start):
                yield _ahead(first, ahead)

    @overload
    def __getitem__(self, index: int) -> Number | None: ...

    @overload
    def __getitem__(self, index: slice) -> NumberRuns: ...

    def __getitem__(self, index: int | slice) -> Number | NumberRuns | None:
        places = range(self._count)[index]
        if isinstance(places, range):
            return self._part(places)
        run = bisect_right(self._starts, places) - 1
        return _ahead(self._firsts[run], places - self._starts[run])

    def _part(self, places: range) -> NumberRuns:
        if places.step != 1:
            raise ValueError("of consecutive records only")
        part = NumberRuns()
        for start, stop, first in self._runs():
            low, high = max(start, places.start), min(stop, places.stop)
            if low < high:
                part._starts.append(part._count)
                part._firsts.append(_ahead(first, low - start))
                part._count += high - low
        return part

    def _runs(self) -> Iterator[tuple[int, int, Number | None]]:
        """Where each begins and ends, and its first number."""
        stops = [*self._starts[1:], self._count]
        return zip(self._starts, stops, self._firsts, strict=False)  # none: there is one stop


def _ahead(first: Number | None, by: int) -> Number | None:
    if first is None:
        return None
    return Number(first.key, first.producer, first.epoch, first.sequence + by)


class SequencedRecords(NamedTuple):
    """Records as columns of equal length; ``keys`` and ``headers`` are None when none has any.
    Headers are encoded (``encode_headers``)."""

    numbers: Sequence[Number | None]
    values: Sequence[bytes]
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[bytes] | None = None

    def chosen(self, indices: Sequence[int]) -> SequencedRecords:
        """Only the records at ``indices``."""
        if len(indices) == len(self.values):
            return self
        return SequencedRecords(
            [self.numbers[at] for at in indices],
            [self.values[at] for at in indices],
            None if self.keys is None else [self.keys[at] for at in indices],
            None if self.headers is None else [self.headers[at] for at in indices],
        )
