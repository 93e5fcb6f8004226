"""Looking about in a leader's log: offsets by time, ends of epochs, how far so many bytes reach.

For readers that plan before they read (Spark's), and ask for the largest timestamp
(Kafka's). Answers come from the epoch table and the indexes; hardly a record is looked at.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from paceline.errors import (
    CorruptMessage,
    InvalidRequest,
    OffsetNotAvailable,
    StorageError,
    StorageFull,
    UnknownLeaderEpoch,
)
from paceline.types import Isolation, LeaderEpoch, OffsetSpec
from paceline_node.replication.partition import Partition
from paceline_node.storage.log import Log
from paceline_node.storage.reading import largest_timestamp
from paceline_node.storage.time_index_check import TimesInDoubt


class TimesNotKnown(OffsetNotAvailable):
    """A time index is looked at, or made anew: ask again soon."""


class FoundOffset(NamedTuple):
    """An offset by time or symbol; offset -1 when no record is that late."""

    offset: int
    timestamp_ms: int
    leader_epoch: LeaderEpoch


def find_offset(
    partition: Partition, spec: int, isolation: Isolation = Isolation.READ_UNCOMMITTED
) -> FoundOffset:
    """The offset for EARLIEST, LATEST or MAX_TIMESTAMP (the first of the readable records with the
    largest timestamp), or of the first readable record at or after a time in ms.

    Raises NotLeader, InvalidRequest for what is neither, and OffsetNotAvailable while a fresh
    leader does not know the true high watermark (DESIGN 3.2); TimesNotKnown while
    a time index is in doubt.
    """
    partition.replica.check_leading()
    epoch = partition.leader_epoch
    log = partition.log
    if spec == OffsetSpec.EARLIEST:
        return FoundOffset(log.tiers.start_offset, -1, epoch)
    end = _readable_end(partition, isolation)
    if spec == OffsetSpec.LATEST:
        return FoundOffset(end, -1, epoch)
    if spec < 0 and spec != OffsetSpec.MAX_TIMESTAMP:
        raise InvalidRequest(f"{partition}: {spec} is neither a time nor an offset's name")
    try:
        if spec == OffsetSpec.MAX_TIMESTAMP:
            spec = largest_timestamp(log.segments, log.log_start_offset, end)
        found = log.offset_for_timestamp(spec) if spec >= 0 else None
    except TimesInDoubt as doubt:
        _look_again(log, doubt)
        raise TimesNotKnown(f"{partition}: {doubt}") from None
    if found is None or found[0] >= end:
        return FoundOffset(-1, -1, epoch)
    return FoundOffset(found[0], found[1], epoch)


def _look_again(log: Log, doubt: TimesInDoubt) -> None:
    """Have the segment read whose time index is in doubt; the newest one first gets a successor."""
    if doubt.offset is None:
        return
    with contextlib.suppress(StorageFull, StorageError):
        if doubt.offset == log.segments[-1].base_offset:
            log.seal()
        log.doubt(doubt.offset, CorruptMessage(str(doubt)))


def _readable_end(partition: Partition, isolation: Isolation) -> int:
    """Up to where (exclusive) clients read. Raises OffsetNotAvailable."""
    if not partition.replica.high_watermark_is_true:
        raise OffsetNotAvailable(f"{partition}: the high watermark is not confirmed yet")
    if isolation == Isolation.READ_COMMITTED:
        return partition.last_stable_offset
    return partition.high_watermark


def epoch_end(partition: Partition, epoch: LeaderEpoch) -> FoundOffset:
    """Where ``epoch``, or the last one below it, ends in this leader's log (exclusive).

    Raises NotLeader, and UnknownLeaderEpoch for an epoch that has not begun here.
    """
    partition.replica.check_leading()
    log = partition.log
    found = log.epochs.end_offset_for(epoch, log.log_end_offset)
    if found is None:  # its own epoch is in a leader's table from the start
        raise UnknownLeaderEpoch(f"{partition}: epoch {epoch}, this is {partition.leader_epoch}")
    return FoundOffset(found.end, -1, found.epoch)


def ahead(partition: Partition, after_offset: int, size_bytes: int) -> FoundOffset:
    """The end of the last batch that ends within ``size_bytes`` stored bytes from ``after_offset``
    on, of the first one if that is larger; at most the last stable offset.

    Raises NotLeader, OffsetNotAvailable as :func:`find_offset`, CorruptMessage where the log is
    damaged.
    """
    partition.replica.check_leading()
    end = _readable_end(partition, Isolation.READ_COMMITTED)
    offset = max(after_offset, partition.log_start_offset)
    left = size_bytes
    reached = offset
    for segment in partition.log.segments:
        if segment.next_offset <= offset or reached >= end:
            continue
        first = segment.find(segment.readable_from(max(offset, segment.base_offset)))
        if first is None:
            continue
        if segment.size - first.position > left:
            within = segment.boundary_at_position(first.position + left).offset
            if reached == offset:
                within = max(within, first.next_offset)
            reached = max(reached, within)
            break
        left -= segment.size - first.position
        reached = segment.next_offset
    return FoundOffset(min(reached, end) if end > offset else offset, -1, partition.leader_epoch)
