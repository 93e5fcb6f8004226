"""The pending offsets of one group, found by partition and by producer without a search."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from paceline_node.groups.keys import TopicPartition
from paceline_node.groups.records import Pending, PendingKey

_NONE: Mapping[PendingKey, Pending] = MappingProxyType({})


class PendingOffsets:
    """What open transactions will commit."""

    __slots__ = ("_by_partition", "_by_producer")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[PendingKey, Pending]] = {}
        self._by_partition: dict[TopicPartition, dict[int, Pending]] = {}

    def put(self, name: PendingKey, pending: Pending | None) -> None:
        """Note one; None forgets it."""
        at = (name.topic, name.partition)
        if pending is not None:
            self._by_producer.setdefault(name.producer_id, {})[name] = pending
            self._by_partition.setdefault(at, {})[name.producer_id] = pending
            return
        of_producer = self._by_producer.get(name.producer_id)
        if of_producer is None or of_producer.pop(name, None) is None:
            return
        if not of_producer:
            del self._by_producer[name.producer_id]
        of_partition = self._by_partition[at]
        del of_partition[name.producer_id]
        if not of_partition:
            del self._by_partition[at]

    def of_producer(self, producer_id: int) -> Mapping[PendingKey, Pending]:
        """Those of one producer's transactions."""
        return self._by_producer.get(producer_id, _NONE)

    def at(self, topic: str, partition: int) -> Collection[Pending]:
        """Those of one partition."""
        return self._by_partition.get((topic, partition), {}).values()

    def items(self) -> Iterator[tuple[PendingKey, Pending]]:
        """All of them."""
        for of_producer in self._by_producer.values():
            yield from of_producer.items()

    def __len__(self) -> int:
        return sum(map(len, self._by_producer.values()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PendingOffsets) and dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]  # it changes
