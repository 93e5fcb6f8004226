"""What an archive and its copies must hold, by what the writers know. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, field

from paceline.spark.jobs.restoring import ORIGIN_HEADER
from paceline.values import dataclass
from paceline_cluster.round_trip.drawing import Drawn

SHOWN = 5
"""Findings of one kind that are told."""
LONGEST = 60
"""Characters that are told of a value."""
Place = tuple[int, int]
"""Partition and offset."""


@dataclass
class Log:
    """One topic, under one id. ``records``: the committed ones; ``starts``: below is trimmed.
    ``must``: what its archive has to hold; ``may``: what it has if the cleaner was slower."""

    name: str
    is_compacted: bool
    partitions: int
    records: dict[Place, Drawn] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    must: dict[Place, Drawn] = field(default_factory=dict)
    may: dict[Place, Drawn] = field(default_factory=dict)
    _seen: set[Place] = field(default_factory=set)

    def trimmed_unseen(self) -> bool:
        """Whether anything went before it was archived: that is data loss, and has to be told."""
        return any(
            offset < self.starts.get(partition, 0)
            for partition, offset in self.records.keys() - self._seen
        )

    def superseded(self) -> set[Place]:
        """What the cleaner of a compacted topic may remove."""
        if not self.is_compacted:
            return set()
        last: dict[tuple[int, bytes | None], int] = {}
        for partition, offset in sorted(self.records):
            last[partition, self.records[partition, offset].key] = offset
        return {
            (partition, offset)
            for (partition, offset), record in self.records.items()
            if offset < last[partition, record.key]
        }

    def archive(self) -> None:
        """All that is there is archived now."""
        superseded = self.superseded()
        for place in self.records.keys() - self._seen:
            if place[1] >= self.starts.get(place[0], 0):
                kept = self.may if place in superseded else self.must
                kept[place] = self.records[place]
        self._seen.update(self.records)


@dataclass(frozen=True, slots=True)
class Copy:
    """A record of a restored topic: where it lies, its last header apart."""

    partition: int
    offset: int
    record: Drawn
    origin: tuple[str, bytes | None] | None


def judge(log: Log, copies: Iterable[Copy], *, by_key: bool) -> list[str]:
    """What is wrong with the copies of a topic's archive; nothing, if each record is there once,
    unchanged, in order and in its partition (``by_key``: in one for each key)."""
    wrong: dict[str, list[str]] = {}
    known = {**log.must, **log.may}
    seen: set[Place] = set()
    latest: dict[tuple[int, int], int] = {}
    homes: dict[bytes, int] = {}
    for copy in sorted(copies, key=lambda each: (each.partition, each.offset)):
        place = _place(log.name, copy.origin)
        where = f"{copy.partition}/{copy.offset} of {copy.origin}"
        if place is None or place not in known:
            wrong.setdefault("unknown", []).append(where)
            continue
        if place in seen:
            wrong.setdefault("repeated", []).append(where)
        seen.add(place)
        if copy.record != known[place]:
            wrong.setdefault("changed", []).append(
                f"{where}: {_differing(known[place], copy.record)}"
            )
        key = copy.record.key
        home = copy.partition if key is None else homes.setdefault(key, copy.partition)
        if copy.partition != (home if by_key else place[0]):
            wrong.setdefault("misplaced", []).append(where)
        if place[1] < latest.get((place[0], copy.partition), 0):
            wrong.setdefault("out of order", []).append(where)
        latest[place[0], copy.partition] = place[1]
    if lost := sorted(log.must.keys() - seen):
        wrong["lost"] = [str(place) for place in lost]
    return [
        f"{log.name}: {len(found)} {kind}: {'; '.join(found[:SHOWN])}"
        for kind, found in wrong.items()
    ]


def _differing(one: Drawn, other: Drawn) -> str:
    told = []
    for name, before in asdict(one).items():
        after = getattr(other, name)
        if before != after:
            told.append(f"{name} {str(before)[:LONGEST]} is {str(after)[:LONGEST]}")
    return ", ".join(told)


def _place(topic: str, origin: tuple[str, bytes | None] | None) -> Place | None:
    if origin is None or origin[0] != ORIGIN_HEADER:
        return None
    name, partition, offset = (origin[1] or b"").decode().split("/")
    return (int(partition), int(offset)) if name == topic else None


def summary(logs: Iterable[Log]) -> Mapping[str, int]:
    """Counts for a report."""
    logs = list(logs)
    return {
        "records": sum(len(log.records) for log in logs),
        "archived": sum(len(log.must) for log in logs),
        "superseded": sum(len(log.may) for log in logs),
    }
