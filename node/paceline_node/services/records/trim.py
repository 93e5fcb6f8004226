"""Deleting a partition's oldest records: its log start moves forward, on all replicas."""

from __future__ import annotations

import trio

from paceline.errors import (
    NotLeader,
    PolicyViolation,
    RequestTimedOut,
    StorageError,
    UnknownTopicOrPartition,
)
from paceline.types import OffsetSpec, is_internal_topic
from paceline_node.replication.offset_lookups import find_offset
from paceline_node.replication.partition import Partition
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.authorization.authorizer import Authorizer
from paceline_node.services.partitions.partition_access import LOG, PartitionAccess
from paceline_node.services.topics.topic_service import TopicService
from paceline_node.settings.topic_config import CleanupPolicy

TO_HIGH_WATERMARK = -1


class TrimService:
    """Trims the partitions that this node leads."""

    def __init__(self, access: Authorizer, records: PartitionAccess, topics: TopicService) -> None:
        self._access = access
        self._records = records
        self._topics = topics

    async def trim(
        self, principal: Principal, topic: str, number: int, offset: int, *, timeout_s: float
    ) -> int:
        """Delete the records below ``offset``, -1: all that are committed. Returns the first
        offset kept, once every in-sync replica has it on disk.

        Raises AuthorizationFailed, UnknownTopicOrPartition, NotLeader, OffsetOutOfRange beyond the
        high watermark, OffsetNotAvailable while a new leader does not know where that is,
        PolicyViolation for topics that keep their records by other rules, and RequestTimedOut:
        deleted here, but not surely everywhere.
        """
        self._access.topic(principal, Operation.DELETE, topic)
        self._check_kind(topic)
        partition = self._records.leader(topic, number)
        if partition.config.cleanup_policy is CleanupPolicy.COMPACT:
            raise PolicyViolation(f"{topic}: cleanup.policy=compact keeps the last value of a key")
        if not 0 <= offset <= partition.high_watermark:
            # A new leader may hold committed records that it does not know to be that yet.
            committed = find_offset(partition, OffsetSpec.LATEST).offset
            offset = committed if offset == TO_HIGH_WATERMARK else offset
        partition.trim(offset)
        return await _reached(partition, offset, timeout_s)

    def _check_kind(self, topic: str) -> None:
        found = self._topics.find(topic)
        if found is None:
            raise UnknownTopicOrPartition(topic)
        if is_internal_topic(topic) or found.kind != LOG:
            raise PolicyViolation(f"{topic}: only topics that take records are trimmed")


async def _reached(partition: Partition, offset: int, timeout_s: float) -> int:
    settled = trio.Event()
    epoch = partition.leader_epoch
    waiter = partition.trims.when_reached(offset, settled.set)
    try:
        with trio.move_on_after(timeout_s):
            await settled.wait()
    finally:
        partition.trims.cancel(waiter)
    if not partition.is_leader or partition.leader_epoch != epoch:
        raise NotLeader(f"{partition}: another leader was elected; ask it to delete again")
    if partition.log.failed is not None:
        raise StorageError(f"{partition}: {partition.log.failed}")
    if partition.trims.low_watermark < offset:
        raise RequestTimedOut(
            f"{partition}: deleted up to {offset} here, not yet on all in-sync replicas"
        )
    return partition.log_start_offset
