"""Event streams of a topic, for somebody who has been asked about: the only way to them."""

from __future__ import annotations

from paceline.wire.records import Record
from paceline_node.replication.partition import Partition
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.authorization.authorizer import Authorizer
from paceline_node.services.event_streams.event_streams import EventStreams
from paceline_node.services.partitions.partition_access import PartitionAccess


class _Streams:
    """Methods are those of :class:`EventStreams`, on partitions of the topic that this node leads;
    they raise UnknownTopicOrPartition and NotLeader, too."""

    def __init__(self, topic: str, records: PartitionAccess, streams: EventStreams) -> None:
        self._topic = topic
        self._records = records
        self._streams = streams

    def _leader(self, number: int) -> Partition:
        return self._records.leader(self._topic, number)


class ReadableStreams(_Streams):
    """For one who may read the topic."""

    async def version(self, number: int, key: bytes) -> int:
        """See :meth:`EventStreams.version`."""
        return await self._streams.version(self._leader(number), key)

    async def snapshot(self, number: int, key: bytes) -> tuple[int, bytes] | None:
        """See :meth:`EventStreams.snapshot`."""
        return await self._streams.snapshot(self._leader(number), key)

    async def read(self, number: int, key: bytes, from_version: int) -> list[Record]:
        """See :meth:`EventStreams.read`."""
        return await self._streams.read(self._leader(number), key, from_version)


class WritableStreams(_Streams):
    """For one who may write to the topic."""

    async def append(
        self, number: int, key: bytes, version: int, event: Record, *, timeout_s: float
    ) -> int:
        """See :meth:`EventStreams.append`."""
        return await self._streams.append(
            self._leader(number), key, version, event, timeout_s=timeout_s
        )

    async def save_snapshot(
        self, number: int, key: bytes, version: int, payload: bytes, *, timeout_s: float
    ) -> None:
        """See :meth:`EventStreams.save_snapshot`."""
        await self._streams.save_snapshot(
            self._leader(number), key, version, payload, timeout_s=timeout_s
        )


class EventStreamService:
    """Opens the event streams of topics, which need not exist. Raises AuthorizationFailed."""

    def __init__(self, access: Authorizer, records: PartitionAccess, streams: EventStreams) -> None:
        self._access = access
        self._records = records
        self._streams = streams

    def open_to_read(self, principal: Principal, topic: str) -> ReadableStreams:
        """For ``principal`` to read."""
        self._access.topic(principal, Operation.CONSUME, topic)
        return ReadableStreams(topic, self._records, self._streams)

    def open_to_write(self, principal: Principal, topic: str) -> WritableStreams:
        """For ``principal`` to write."""
        self._access.topic(principal, Operation.PRODUCE, topic)
        return WritableStreams(topic, self._records, self._streams)
