"""Event streams of a topic, for somebody who has been asked about: the only way to them."""

from __future__ import annotations

from paceline.wire.records import Record
from paceline_node.replication.partition import Partition
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.access import Access
from paceline_node.services.event_streams import EventStreams


class ReadableStreams:
    """For one who may read the topic. Methods are those of :class:`EventStreams`, on partitions of
    the topic that this node leads."""

    def __init__(self, topic: str, streams: EventStreams) -> None:
        self._topic = topic
        self._streams = streams

    async def version(self, partition: Partition, key: bytes) -> int:
        """See :meth:`EventStreams.version`."""
        return await self._streams.version(_of(self._topic, partition), key)

    async def snapshot(self, partition: Partition, key: bytes) -> tuple[int, bytes] | None:
        """See :meth:`EventStreams.snapshot`."""
        return await self._streams.snapshot(_of(self._topic, partition), key)

    async def read(self, partition: Partition, key: bytes, from_version: int) -> list[Record]:
        """See :meth:`EventStreams.read`."""
        return await self._streams.read(_of(self._topic, partition), key, from_version)


class WritableStreams:
    """For one who may write to the topic; otherwise as :class:`ReadableStreams`."""

    def __init__(self, topic: str, streams: EventStreams) -> None:
        self._topic = topic
        self._streams = streams

    async def append(
        self, partition: Partition, key: bytes, version: int, event: Record, *, timeout_s: float
    ) -> int:
        """See :meth:`EventStreams.append`."""
        return await self._streams.append(
            _of(self._topic, partition), key, version, event, timeout_s=timeout_s
        )

    async def save_snapshot(
        self, partition: Partition, key: bytes, version: int, payload: bytes, *, timeout_s: float
    ) -> None:
        """See :meth:`EventStreams.save_snapshot`."""
        await self._streams.save_snapshot(
            _of(self._topic, partition), key, version, payload, timeout_s=timeout_s
        )


class EventStreamService:
    """Opens the event streams of topics, which need not exist. Raises AuthorizationFailed."""

    def __init__(self, access: Access, streams: EventStreams) -> None:
        self._access = access
        self._streams = streams

    def open_to_read(self, principal: Principal, topic: str) -> ReadableStreams:
        """For ``principal`` to read."""
        self._access.topic(principal, Operation.CONSUME, topic)
        return ReadableStreams(topic, self._streams)

    def open_to_write(self, principal: Principal, topic: str) -> WritableStreams:
        """For ``principal`` to write."""
        self._access.topic(principal, Operation.PRODUCE, topic)
        return WritableStreams(topic, self._streams)


def _of(topic: str, partition: Partition) -> Partition:
    assert partition.topic == topic, f"{partition} is not of {topic}"
    return partition
