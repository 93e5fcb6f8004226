"""Where a reset would set a group's offsets: decided before anything is changed. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from paceline.types import TopicPartition, is_valid_topic_name
from paceline.values import dataclass

Offsets = Mapping[TopicPartition, int]


class BadPlan(ValueError):
    """What was asked for cannot be planned; the text says why."""


@dataclass(frozen=True, slots=True)
class Change:
    """One partition; ``before`` None: nothing was committed."""

    at: TopicPartition
    before: int | None
    after: int

    @property
    def is_one(self) -> bool:
        return self.before != self.after


def plan(current: Offsets, wanted: Offsets) -> list[Change]:
    """What setting ``wanted`` means."""
    return [Change(at, current.get(at), offset) for at, offset in sorted(wanted.items())]


def require_within(wanted: Offsets, starts: Offsets, ends: Offsets) -> None:
    """Raises BadPlan naming the partitions that have no such offset."""
    outside = [
        f"{at} has {starts[at]} to {ends[at]}, not {offset}"
        for at, offset in sorted(wanted.items())
        if not starts[at] <= offset <= ends[at]
    ]
    if outside:
        raise BadPlan(
            f"no such offset: {', '.join(outside)}; --topic TOPIC/N takes partitions apart, "
            "--to-earliest and --to-latest go as far as there is"
        )


def shifted(
    current: Offsets, partitions: list[TopicPartition], by: int
) -> dict[TopicPartition, int]:
    """The committed offsets of some partitions, moved. Raises BadPlan where there is none."""
    missing = [str(at) for at in partitions if at not in current]
    if missing:
        raise BadPlan(f"--shift-by: nothing is committed of {', '.join(missing)}")
    return {at: current[at] + by for at in partitions}


def to_json(group: str, family: str, offsets: Offsets) -> dict[str, Any]:
    """What ``group offsets export`` prints and ``--from-file`` reads."""
    rows = [
        {"topic": at.topic, "partition": at.partition, "offset": offset}
        for at, offset in sorted(offsets.items())
    ]
    return {"group": group, "family": family, "offsets": rows}


def from_json(text: str) -> dict[TopicPartition, int]:
    """The offsets of an exported file, whichever group it was of. Raises BadPlan."""
    try:
        rows = json.loads(text)["offsets"]
        return dict(_row(row) for row in rows)
    except (ValueError, KeyError, TypeError) as error:
        raise BadPlan(
            f'expected {{"offsets": [{{"topic", "partition", "offset"}}, ...]}}: {error!r}'
        ) from None


def _row(row: Any) -> tuple[TopicPartition, int]:
    topic, partition, offset = row["topic"], row["partition"], row["offset"]
    numbers = type(partition) is int and type(offset) is int and partition >= 0 <= offset
    if not numbers or not isinstance(topic, str) or not is_valid_topic_name(topic):
        raise ValueError(row)
    return TopicPartition(topic, partition), offset
