"""Looking about in a leader's log: where an epoch ends, how far so many bytes reach.

For readers that plan before they read (spec spark 7: R6, R8). Answers come from the epoch table
and the offset index; no record is looked at.
"""

from __future__ import annotations

from paceline.errors import OffsetNotAvailable, UnknownLeaderEpoch
from paceline.types import LeaderEpoch
from paceline_node.replication.partition import FoundOffset, Partition


def epoch_end(partition: Partition, epoch: LeaderEpoch) -> FoundOffset:
    """Where ``epoch``, or the last one below it, ends in this leader's log (exclusive).

    Raises NotLeader, and UnknownLeaderEpoch for an epoch that has not begun here.
    """
    partition.replica.check_leading()
    log = partition.log
    found = log.epochs.end_offset_for(epoch, log.log_end_offset)
    if found is None:
        if epoch == partition.leader_epoch:
            return FoundOffset(log.log_end_offset, -1, epoch)  # nothing was written in it yet
        raise UnknownLeaderEpoch(f"{partition}: epoch {epoch}, this is {partition.leader_epoch}")
    return FoundOffset(found.end, -1, found.epoch)


def ahead(partition: Partition, after_offset: int, size_bytes: int) -> FoundOffset:
    """The end of the last batch that ends within ``size_bytes`` stored bytes from ``after_offset``
    on, of the first one if that is larger; at most the last stable offset.

    Raises NotLeader, OffsetNotAvailable as :meth:`Partition.list_offset`, CorruptMessage where the
    log is damaged.
    """
    partition.replica.check_leading()
    if not partition.replica.high_watermark_is_true:
        raise OffsetNotAvailable(f"{partition}: the high watermark is not confirmed yet")
    end = partition.last_stable_offset
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
