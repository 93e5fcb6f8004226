"""Records whose producers number each of them, as all rooms speak of them.

What a log knows of such producers: ``storage/sequenced_records.py``.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

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
