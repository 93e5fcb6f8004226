"""The pending offsets of one group, found by partition and by producer without a search."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from paceline_node.groups.keys import TopicAndNumber
from paceline_node.groups.records import Pending, PendingKey

_NONE: Mapping[PendingKey, Pending] = MappingProxyType({})


_RECORD_BYTES = 96
"""About what a record takes beside its texts."""


def size_of(name: PendingKey, pending: Pending) -> int:
    """About what a pending offset takes in the log."""
    texts = (name.group.group, name.group.subject, name.topic)
    return _RECORD_BYTES + sum(len(each.encode()) for each in texts) + len(pending.metadata)


class PendingOffsets:
    """What open transactions will commit."""

    __slots__ = ("_by_partition", "_by_producer", "_bytes")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[PendingKey, Pending]] = {}
        self._by_partition: dict[TopicAndNumber, dict[int, Pending]] = {}
        self._bytes: dict[int, int] = {}

    def put(self, name: PendingKey, pending: Pending | None) -> None:
        """Note one; None forgets it."""
        at = (name.topic, name.partition)
        if pending is not None:
            self.put(name, None)
            self._by_producer.setdefault(name.producer_id, {})[name] = pending
            self._bytes[name.producer_id] = self.bytes_of(name.producer_id) + size_of(name, pending)
            self._by_partition.setdefault(at, {})[name.producer_id] = pending
            return
        of_producer = self._by_producer.get(name.producer_id)
        before = None if of_producer is None else of_producer.pop(name, None)
        if before is None:
            return
        self._bytes[name.producer_id] -= size_of(name, before)
        if not of_producer:
            del self._by_producer[name.producer_id]
            del self._bytes[name.producer_id]
        of_partition = self._by_partition[at]
        del of_partition[name.producer_id]
        if not of_partition:
            del self._by_partition[at]

    def of_producer(self, producer_id: int) -> Mapping[PendingKey, Pending]:
        """Those of one producer's transactions."""
        return self._by_producer.get(producer_id, _NONE)

    def producers(self) -> Collection[int]:
        """Who has any."""
        return self._by_producer.keys()

    def bytes_of(self, producer_id: int) -> int:
        """What those of one producer take in the log, about."""
        return self._bytes.get(producer_id, 0)

    def at(self, topic: str, partition: int) -> Collection[Pending]:
        """Those of one partition."""
        return self._by_partition.get((topic, partition), {}).values()

    def producers_at(self, topic: str, partition: int) -> Collection[int]:
        """Who has any of one partition."""
        return self._by_partition.get((topic, partition), {}).keys()

    def items(self) -> Iterator[tuple[PendingKey, Pending]]:
        """All of them."""
        for of_producer in self._by_producer.values():
            yield from of_producer.items()

    def __len__(self) -> int:
        return sum(map(len, self._by_producer.values()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PendingOffsets) and dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]  # it changes
