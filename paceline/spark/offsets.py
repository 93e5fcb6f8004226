"""Offsets of a streaming query, as they stand in Spark's checkpoint. Pure.

::

    {"$paceline": {"v": 1, "cluster": "c-9f2", "ids": {"orders": "6c1d..."},
                   "epochs": {"orders": {"0": 5}}, "lost": {}},
     "orders": {"0": 1042}}

Topics as in Spark's Kafka source: the next offset to read. Spark compares offsets by their JSON
text, so there is one order (``$paceline`` first, topics by code point, partitions by number) and
one function that writes it; nothing in it may change unless an offset moves. ``epochs`` holds the
leader epoch in which an offset was learnt: no record before the offset is of a newer one. ``lost``
counts records passed over under ``failOnDataLoss=false``; ``resumed`` (absent while empty) says
where reading went on after the last such loss, so that the batch that ends here is read from there.

A new query starts with a marker instead (DESIGN 2.1)::

    {"$paceline": {"v": 1, "start": "latest"}}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from paceline.spark.errors import OptionError
from paceline.types import TopicPartition

HEAD = "$paceline"
VERSION = 1

Json = dict[str, Any]


@dataclass(frozen=True)
class StreamOffset:
    """Where a query is in every partition it reads. ``ids``: topic -> id, as hex text."""

    cluster: str
    ids: Mapping[str, str]
    ends: Mapping[TopicPartition, int]
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)
    lost: Mapping[TopicPartition, int] = field(default_factory=dict)
    resumed: Mapping[TopicPartition, int] = field(default_factory=dict)

    def to_json(self) -> Json:
        """The one canonical form."""
        topics = sorted({at.topic for at in self.ends})
        head: Json = {
            "v": VERSION,
            "cluster": self.cluster,
            "ids": {topic: self.ids[topic] for topic in topics},
            "epochs": _by_topic(self.epochs, self.ends),
            "lost": _by_topic({at: count for at, count in self.lost.items() if count}, self.lost),
        }
        if self.resumed:
            head["resumed"] = _by_topic(self.resumed, self.resumed)
        return {HEAD: head, **_by_topic(self.ends, self.ends)}

    def to_text(self) -> str:
        """As Spark writes it."""
        return json.dumps(self.to_json())

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read a checkpoint's offset. Raises OptionError for what this version did not write."""
        head = data.get(HEAD)
        if not isinstance(head, dict) or head.get("v") != VERSION or "cluster" not in head:
            raise OptionError(
                f"paceline: this checkpoint's offsets are not of this source, version {VERSION}: "
                f"{json.dumps(data)[:200]}"
            )
        topics = {topic: places for topic, places in data.items() if topic != HEAD}
        return cls(
            head["cluster"],
            dict(head["ids"]),
            _by_partition(topics),
            _by_partition(head["epochs"]),
            _by_partition(head["lost"]),
            _by_partition(head.get("resumed", {})),
        )

    def start_of(self, at: TopicPartition, before: StreamOffset) -> int:
        """Where the batch between ``before`` and this offset begins in a partition."""
        begin = before.ends.get(at, 0)
        lost = (
            (at in before.ends and before.ids.get(at.topic) != self.ids[at.topic])
            or before.lost.get(at, 0) != self.lost.get(at, 0)
            or before.resumed.get(at) != self.resumed.get(at)
            or begin > self.ends[at]
        )
        return self.resumed.get(at, 0) if lost else begin


def marker(start: str) -> Json:
    """The offset before a new query's first batch."""
    return {HEAD: {"v": VERSION, "start": start}}


def is_marker(data: Mapping[str, Any]) -> bool:
    """Whether ``data`` is what :func:`marker` makes."""
    head = data.get(HEAD)
    return isinstance(head, dict) and "start" in head


def lag(end: Mapping[str, Any], latest: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Records between two offsets, per partition of ``latest``; a partition that ``end`` does not
    have yet counts from 0."""
    if is_marker(latest):
        return {}
    known = {} if is_marker(end) else dict(StreamOffset.from_json(end).ends)
    ends = StreamOffset.from_json(latest).ends
    return {at: max(0, value - known.get(at, 0)) for at, value in ends.items()}


def _by_topic(
    values: Mapping[TopicPartition, int], wanted: Iterable[TopicPartition]
) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for at in sorted(at for at in wanted if at in values):
        found.setdefault(at.topic, {})[str(at.partition)] = values[at]
    return found


def _by_partition(topics: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): value
        for topic, places in topics.items()
        for partition, value in places.items()
    }
