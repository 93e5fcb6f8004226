"""Producers that number each record: what a log knows of them (DESIGN 8.1).

Pure. A producer of this kind is named by text (16 bytes of its hash in the table), has an epoch of
its own choosing, and numbers its records from 1. A log remembers, for its newest epoch, which
numbers it holds, as runs; so records that come again are found one by one, in whatever order
batches overtook each other. Two policies read the same state:

    strict   the next record of a producer is exactly the next number (a gap is an error)
    window   a number that was never stored is stored, whatever came before it

Of an extended batch (``paceline/wire/batch_header.py``) they use the producer key and epoch and the
first and last number of its records, which are in a row. A batch of kind EXPIRE without records
says from which time on producers are remembered (its first number, ms): every replica forgets the
same ones at the same place, and none by a clock of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from paceline.errors import Throttled
from paceline.wire.batch_header import BatchExtension, BatchHeader, ProducerNamespace
from paceline_node.sequence_numbers import Number, Rule, SequenceGap, StaleProducerEpoch
from paceline_node.sliced_work import Work, at_once

_STRETCH_RECORDS = 32
MAX_RUNS = 256
"""Runs remembered per producer. One more is refused for now, not forgotten: a forgotten number
would be stored twice."""

STREAM_EPOCH = -2
"""The epoch of an event stream's events, numbered by their versions: such a producer is never
forgotten, since a version is given once, whatever became of its event."""

SequencedKey = tuple[int, bytes]
Run = tuple[int, int]


class SequencedState(NamedTuple):
    """One producer: the numbers stored in its newest epoch, as runs with both ends in them, in
    order and never touching; where its last batch ends, and when."""

    epoch: int
    runs: tuple[Run, ...]
    last_offset: int
    last_timestamp: int


Lookup = Callable[[SequencedKey], SequencedState | None]


def stream_key(key: bytes) -> bytes:
    """The 16 bytes that stand for the event stream of a key."""
    return blake2b(key, digest_size=16, person=b"event stream").digest()


def table_key(key: bytes) -> SequencedKey:
    """Where the producer table keeps a producer."""
    return (ProducerNamespace.CURSUS, key)


# --- what replicas keep -------------------------------------------------------------------------


def after(
    former: SequencedState | None, header: BatchHeader, extension: BatchExtension, base_offset: int
) -> SequencedState:
    """The state behind one more batch; never refuses (followers call it)."""
    runs: tuple[Run, ...] = ()
    if former is not None and former.epoch == extension.producer_epoch:
        runs = former.runs
    return SequencedState(
        extension.producer_epoch,
        with_run(runs, extension.first_sequence, extension.last_sequence),
        base_offset + header.last_offset_delta,
        header.max_timestamp,
    )


def with_run(runs: tuple[Run, ...], first: int, last: int) -> tuple[Run, ...]:
    """``runs`` and the numbers ``first..last``, joined where they touch."""
    if runs and runs[-1][1] + 1 == first:
        return (*runs[:-1], (runs[-1][0], last))
    start = bisect_right(runs, (first, -1))
    if start and runs[start - 1][1] >= first - 1:
        start -= 1
    end = start
    while end < len(runs) and runs[end][0] <= last + 1:
        first, last = min(first, runs[end][0]), max(last, runs[end][1])
        end += 1
    return (*runs[:start], (first, last), *runs[end:])


def silent(states: Iterable[tuple[SequencedKey, object]], cutoff_ms: int) -> Iterator[SequencedKey]:
    """Producers of this kind whose last batch is older than ``cutoff_ms``; streams never are."""
    for key, state in states:
        if not isinstance(state, SequencedState) or state.epoch == STREAM_EPOCH:
            continue
        if state.last_timestamp < cutoff_ms:
            yield key


def contains(runs: Sequence[Run], sequence: int) -> bool:
    """Whether a number is in one of the runs."""
    at = bisect_right(runs, (sequence, 2**63))
    return at > 0 and runs[at - 1][1] >= sequence


def to_row(state: SequencedState) -> list[Any]:
    """A state as a snapshot keeps it."""
    return [state.epoch, state.last_timestamp, state.last_offset, [list(run) for run in state.runs]]


def from_row(row: Sequence[Any]) -> SequencedState:
    """Inverse of :func:`to_row`. Raises ValueError or TypeError."""
    epoch, last_timestamp, last_offset, runs = row
    pairs = tuple((first, last) for first, last in runs)
    numbers = [epoch, last_timestamp, last_offset, *(number for run in pairs for number in run)]
    if not pairs or any(type(number) is not int for number in numbers):
        raise ValueError("a numbered producer without runs of numbers")
    return SequencedState(epoch, pairs, last_offset, last_timestamp)


# --- what a leader asks -------------------------------------------------------------------------


class _Walk:
    """A producer's state as it would be behind the records looked at so far."""

    __slots__ = ("epoch", "runs")

    def __init__(self, state: SequencedState | None) -> None:
        self.epoch = None if state is None else state.epoch
        self.runs: tuple[Run, ...] = () if state is None else state.runs

    def is_new(self, number: Number, rule: Rule) -> bool:
        """Whether to store the record; it counts as stored then."""
        if self.epoch is not None and number.epoch < self.epoch:
            raise StaleProducerEpoch(number, self.epoch)
        if number.epoch != self.epoch:
            self.epoch, self.runs = number.epoch, ()
        last = self.runs[-1][1] if self.runs else 0
        if rule is Rule.STRICT:
            # Runs may have gaps, of a time when the topic went by the other rule: what lies in a
            # gap was never stored.
            if number.sequence <= last and contains(self.runs, number.sequence):
                return False
            if number.sequence != last + 1:
                raise SequenceGap(number, last + 1)
        elif number.sequence <= last and contains(self.runs, number.sequence):
            return False
        self.runs = with_run(self.runs, number.sequence, number.sequence)
        if len(self.runs) > MAX_RUNS:
            raise Throttled(
                f"producer {number.producer}: {MAX_RUNS} gaps are open; send what is missing first"
            )
        return True


def select_new(numbers: Sequence[Number | None], lookup: Lookup, rule: Rule) -> list[int]:
    """Which records of a request to store, by index; those without a number always.

    Raises StaleProducerEpoch, SequenceGap or Throttled; nothing may be stored then.
    """
    return at_once(selecting(numbers, lookup, rule))


def selecting(numbers: Sequence[Number | None], lookup: Lookup, rule: Rule) -> Work[list[int]]:
    """As :func:`select_new`, a stretch of records at a time."""
    walks: dict[bytes, _Walk] = {}
    new = []
    for index, number in enumerate(numbers):
        if not index % _STRETCH_RECORDS:
            yield 1
        if number is not None:
            walk = walks.get(number.key)
            if walk is None:
                walk = walks[number.key] = _Walk(lookup(table_key(number.key)))
            if not walk.is_new(number, rule):
                continue
        new.append(index)
    return new
