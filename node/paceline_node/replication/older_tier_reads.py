"""Reading what this node's disk gave up to an older storage tier (storage/DESIGN 11)."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.types import Isolation
from paceline_node.replication.partition import Partition, ReadResult
from paceline_node.storage.transaction_index import AbortedTransaction


async def read_older(
    partition: Partition, offset: int, max_bytes: int, isolation: Isolation
) -> ReadResult:
    """What :meth:`Partition.read`, whose checks have been made, has just refused with InOlderTier.

    What lies there is committed and stays as it is, whoever leads by the time it is found. Raises
    OffsetOutOfRange, OffsetNotAvailable, CorruptMessage.
    """
    log = partition.log
    found = await log.tiers.find(offset, max_bytes, partition.readable_end(isolation))
    aborted: Sequence[AbortedTransaction] = ()
    if found is not None and isolation == Isolation.READ_COMMITTED:
        aborted = await log.tiers.aborted_in(offset, found.next_offset)
    return ReadResult(
        found,
        partition.high_watermark,
        partition.last_stable_offset,
        log.tiers.start_offset,
        log.log_end_offset,
        partition.leader_epoch,
        aborted,
    )
