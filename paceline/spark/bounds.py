"""What ``startingOffsets`` and ``endingOffsets`` mean at this moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from paceline.client.offsets import Wanted
from paceline.spark.errors import OptionError
from paceline.spark.facts import Facts
from paceline.spark.options import Bound, BoundKind, SourceOptions
from paceline.types import OffsetSpec, TopicPartition
from paceline.wire.native.data import OffsetFound


class Finder(Protocol):
    """Looks offsets up, as :class:`paceline.spark.cluster.Cluster` does."""

    def find(self, wanted: Mapping[TopicPartition, Wanted]) -> dict[TopicPartition, OffsetFound]:
        """Each partition's answer."""


def explicit(bound: Bound, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The offsets named, which must be those of all ``partitions``. Raises OptionError."""
    wanted = set(partitions)
    missing, unknown = sorted(wanted - set(bound.places)), sorted(set(bound.places) - wanted)
    if missing or unknown:
        raise OptionError(
            "paceline: offsets must name every partition that is read, and no other; "
            f"missing {', '.join(map(str, missing)) or 'none'}, "
            f"unknown {', '.join(map(str, unknown)) or 'none'}"
        )
    return dict(bound.places)


def resolve(options: SourceOptions, finder: Finder, facts: Facts) -> dict[TopicPartition, int]:
    """Where to start, in every partition of ``facts``. Raises OptionError."""
    return _resolve(options.start, finder, facts, late=options.late_start, is_end=False)


def resolve_end(options: SourceOptions, finder: Finder, facts: Facts) -> dict[TopicPartition, int]:
    """Where a batch query ends."""
    return _resolve(options.end, finder, facts, late=True, is_end=True)


def _resolve(
    bound: Bound, finder: Finder, facts: Facts, *, late: bool, is_end: bool
) -> dict[TopicPartition, int]:
    parts = facts.partitions
    if bound.kind is BoundKind.EARLIEST:
        return {at: known.log_start for at, known in parts.items()}
    if bound.kind is BoundKind.LATEST:
        return facts.ends()
    if bound.kind is BoundKind.OFFSETS:
        special = {OffsetSpec.LATEST: facts.ends(), OffsetSpec.EARLIEST: _starts(facts)}
        named = explicit(bound, parts)
        return {at: special[OffsetSpec(n)][at] if n < 0 else n for at, n in named.items()}
    if bound.kind is BoundKind.TIME:
        times = dict.fromkeys(parts, bound.timestamp_ms)
    else:
        times = explicit(bound, parts)
    return _by_time(times, finder, facts, late=late, is_end=is_end)


def _starts(facts: Facts) -> dict[TopicPartition, int]:
    return {at: known.log_start for at, known in facts.partitions.items()}


def _by_time(
    times: Mapping[TopicPartition, int], finder: Finder, facts: Facts, *, late: bool, is_end: bool
) -> dict[TopicPartition, int]:
    found = finder.find(dict(times))
    resolved = {}
    for at, answer in found.items():
        if answer.offset >= 0:
            resolved[at] = answer.offset
        elif late or is_end:
            resolved[at] = facts.partitions[at].end
        else:
            raise OptionError(
                f"paceline: {at}: no record at or after {times[at]} ms; "
                "startingOffsetsByTimestampStrategy=latest starts at the end instead"
            )
    return resolved
