"""A topic that somebody has been found to be allowed to write to: what alone takes records."""

from __future__ import annotations

from paceline_node.sequence_numbers import SequencedRecords
from paceline_node.services.partitions.partition_access import PartitionAccess
from paceline_node.services.partitions.sequenced_appends import (
    Appended,
    RecordsWish,
    SequencedAppender,
)


class WritableTopic:
    """Takes single records, and is what makes a topic part of a transaction."""

    __slots__ = ("_appender", "_records", "name")

    def __init__(self, name: str, records: PartitionAccess, appender: SequencedAppender) -> None:
        self.name = name
        self._records = records
        self._appender = appender

    async def append(
        self, partition: int, records: SequencedRecords, wish: RecordsWish
    ) -> Appended:
        """Append to a partition that this node leads; see :meth:`SequencedAppender.append`. Raises
        UnknownTopicOrPartition and NotLeader, too."""
        return await self._appender.append(
            self._records.leader(self.name, partition), records, wish
        )

    def in_sync(self, partition: int) -> tuple[int, int]:
        """How many replicas of a partition that this node leads are in sync, and how many have to
        be. Raises UnknownTopicOrPartition, NotLeader."""
        leader = self._records.leader(self.name, partition)
        return len(leader.isr), leader.config.min_insync_replicas

    async def append_one(
        self, partition: int, key: bytes | None, value: bytes, wish: RecordsWish
    ) -> Appended:
        """As :meth:`append`, for one record without a number."""
        return await self.append(partition, SequencedRecords([None], [value], [key]), wish)
