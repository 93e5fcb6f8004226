"""What clients were told against what is there. Pure.

An output record says which input record it is a copy of, and which transaction wrote it. So it is
known of every one whether it may be there; and of every input record that it must be, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.e2e.exactly_once.journal import Attempt, Told


class Copy(NamedTuple):
    """An output record: the number of its transaction, and the input record's place."""

    attempt: int
    partition: int
    offset: int


def encode(copy: Copy) -> bytes:
    return b"%d/%d/%d" % copy


def decode(value: bytes) -> Copy:
    """Raises ValueError."""
    attempt, partition, offset = map(int, value.split(b"/"))
    return Copy(attempt, partition, offset)


@dataclass(frozen=True)
class Expected:
    """The input's ends by partition, and what the copier was told."""

    ends: Mapping[int, int]
    attempts: Mapping[int, Attempt]


@dataclass
class Differences:
    """Each a sentence; all empty: exactly once."""

    missing: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    aborted_seen: list[str] = field(default_factory=list)
    in_part: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)
    offsets: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        return [f"{name}: {each}" for name, found in vars(self).items() for each in found]


def judge(
    expected: Expected, seen: Mapping[int, Iterable[Copy]], committed: Mapping[int, int]
) -> Differences:
    """``seen``: what readers of committed data see of each output partition, in order;
    ``committed``: the group's offsets. Nobody writes any more."""
    found = Differences()
    copies = {at: list(each) for at, each in seen.items()}
    everything = [copy for at in sorted(copies) for copy in copies[at]]
    _judge_inputs(expected, everything, found)
    _judge_attempts(expected, everything, found)
    for at in sorted(copies):
        _judge_order(at, copies[at], found)
    for partition, end in sorted(expected.ends.items()):
        offset = committed.get(partition)
        if offset != end:
            found.offsets.append(f"partition {partition} is committed at {offset}, not at {end}")
    return found


def _judge_inputs(expected: Expected, copies: list[Copy], found: Differences) -> None:
    """Each input record is there once."""
    writers: dict[tuple[int, int], list[int]] = {}
    for copy in copies:
        writers.setdefault((copy.partition, copy.offset), []).append(copy.attempt)
    for partition, end in sorted(expected.ends.items()):
        for offset in range(end):
            if (partition, offset) not in writers:
                found.missing.append(f"input {partition}/{offset} was not copied")
    for (partition, offset), by in sorted(writers.items()):
        if len(by) > 1:
            found.twice.append(f"input {partition}/{offset} was copied by transactions {by}")
        if not 0 <= offset < expected.ends.get(partition, 0):
            found.foreign.append(f"there is no input {partition}/{offset}")


def _judge_attempts(expected: Expected, copies: list[Copy], found: Differences) -> None:
    """Each transaction is there as a whole or not at all, as its client was told."""
    by_attempt: dict[int, set[tuple[int, int]]] = {}
    for copy in copies:
        by_attempt.setdefault(copy.attempt, set()).add((copy.partition, copy.offset))
    for number in sorted(set(by_attempt) - set(expected.attempts)):
        found.foreign.append(f"nobody has begun transaction {number}")
    for number, attempt in sorted(expected.attempts.items()):
        there = by_attempt.get(number, set())
        wanted = _places(attempt)
        if attempt.told is Told.COMMITTED and not there:
            found.missing.append(f"transaction {number} was told committed, nothing of it is there")
        elif attempt.told is Told.ABORTED and there:
            found.aborted_seen.append(
                f"transaction {number}: {len(there)} of {len(wanted)} records"
            )
        if there and there != wanted:
            both = f"{len(there & wanted)} of {len(wanted)} records"
            found.in_part.append(f"transaction {number} ({attempt.told.value}): {both}")


def _places(attempt: Attempt) -> set[tuple[int, int]]:
    return {
        (partition, offset)
        for partition, (first, end) in attempt.slices.items()
        for offset in range(first, end)
    }


def _judge_order(at: int, copies: list[Copy], found: Differences) -> None:
    """Copies of one input partition keep its order."""
    last: dict[int, int] = {}
    for copy in copies:
        before = last.get(copy.partition, -1)
        if copy.offset < before:
            place = f"input {copy.partition}/{copy.offset} behind {before}"
            found.disordered.append(f"output {at} has {place}")
        last[copy.partition] = copy.offset
