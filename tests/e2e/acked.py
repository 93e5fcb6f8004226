"""The proof over an acknowledged-file: what was acknowledged was read back, once, in order."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Acked:
    """One line of an acknowledged-file."""

    line: int
    partition: int
    offset: int
    leader_epoch: int


def read_acked(path: Path) -> list[Acked]:
    """Every whole line of an acknowledged-file (the last one may be cut by a kill)."""
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    return [
        Acked(data["line"], data["partition"], data["offset"], data["leader_epoch"])
        for data in map(json.loads, whole.splitlines())
    ]


def read_consumed(path: Path) -> Iterator[tuple[int, int, str, str]]:
    """(partition, offset, key, value) of every record that ``consume --output json`` printed."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            yield record["partition"], record["offset"], record["key"], record["value"]


class Problems(AssertionError):
    """What the reader found wrong, a few examples each."""


def check(
    source: list[tuple[str, str]],
    acked: list[Acked],
    consumed: Iterable[tuple[int, int, str, str]],
) -> None:
    """``source`` holds (key, value) per input line; values are unique.

    Raises Problems unless: every acknowledged line was read exactly once and at the place of its
    acknowledgement; nothing was read twice or that was not written; the lines of each key came in
    the order of the input, within one partition, at growing offsets.
    """
    line_of = {value: number for number, (_, value) in enumerate(source, start=1)}
    assert len(line_of) == len(source), "the values of the input must be unique"
    problems: dict[str, list[object]] = defaultdict(list)
    place: dict[int, tuple[int, int]] = {}
    last_line: dict[str, int] = {}
    partition_of: dict[str, int] = {}
    last_offset: dict[int, int] = {}
    for partition, offset, key, value in consumed:
        line = line_of.get(value)
        if line is None or source[line - 1][0] != key:
            problems["read but never written"].append((partition, offset, key, value))
            continue
        if line in place:
            problems["read twice"].append((line, place[line], (partition, offset)))
        place[line] = (partition, offset)
        if last_line.get(key, 0) >= line:
            problems["out of order in its key"].append((key, last_line[key], line))
        last_line[key] = line
        if partition_of.setdefault(key, partition) != partition:
            problems["key in two partitions"].append((key, partition_of[key], partition))
        if last_offset.get(partition, -1) >= offset:
            problems["offsets do not grow"].append((partition, last_offset[partition], offset))
        last_offset[partition] = offset
    for ack in acked:
        found = place.get(ack.line)
        if found is None:
            problems["acknowledged but not read"].append(ack)
        elif found != (ack.partition, ack.offset):
            problems["read at another place than acknowledged"].append((ack, found))
    if len({ack.line for ack in acked}) != len(acked):
        problems["acknowledged twice"].append(len(acked))
    if problems:
        raise Problems(
            "; ".join(f"{len(found)} {what}: {found[:3]}" for what, found in problems.items())
        )
