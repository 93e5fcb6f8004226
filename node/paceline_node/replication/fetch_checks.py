"""A leader's judgement of a follower's position (DESIGN 3.3). Pure."""

from __future__ import annotations

from uuid import UUID

from paceline.errors import ErrorCode
from paceline.types import NO_EPOCH, BrokerEpoch, LeaderEpoch, NodeId
from paceline.values import dataclass
from paceline.wire.peer.replica import FetchPartition
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.replication import refused_truncations
from paceline_node.replication.leader import LeaderState
from paceline_node.replication.replica_log import ReplicaLog


@dataclass(frozen=True, slots=True)
class FollowerIdentity:
    """Who fetches; node id as bound to the connection, the rest from the request."""

    node: NodeId
    broker_epoch: BrokerEpoch
    directory_id: UUID


@dataclass(frozen=True, slots=True)
class FetchCheck:
    """A leader's judgement of one fetch. Without error and divergence, records may be read."""

    error: ErrorCode = ErrorCode.NONE
    diverging_epoch: LeaderEpoch = NO_EPOCH
    diverging_end: int = -1
    begin_anew: bool = False
    follower_is_longer: bool = False


ACCEPTED = FetchCheck()


def check_position(
    log: ReplicaLog, registration: PartitionRegistration, position: FetchPartition
) -> FetchCheck:
    """Whether a leader's log joins on to one that ends there."""
    if position.fetch_offset < log.oldest_whole_offset:
        return FetchCheck(ErrorCode.OFFSET_OUT_OF_RANGE)
    last = position.last_fetched_epoch
    if last >= 0:
        found = log.epochs.end_offset_for(last, log.log_end_offset)
        if found is None:
            return FetchCheck(ErrorCode.OFFSET_OUT_OF_RANGE)
        epoch, end = found
        if epoch < last or end < position.fetch_offset:
            longer = refused_truncations.is_longer(registration, log, position)
            return FetchCheck(diverging_epoch=epoch, diverging_end=end, follower_is_longer=longer)
    if position.fetch_offset > log.log_end_offset:
        return FetchCheck(ErrorCode.OFFSET_OUT_OF_RANGE)
    return ACCEPTED


def lacks_deletions(
    log: ReplicaLog, leader: LeaderState, node: NodeId, position: FetchPartition
) -> bool:
    """Whether tombstones or markers behind a follower's end are gone from this log, so that it
    would keep what they deleted. Never so of one that is complete: only what is committed is
    compacted, and on it others may count."""
    registration = leader.registration
    if node in registration.isr or node in registration.elr:
        return False
    return log.compaction.removals.forbids(position.fetch_offset, position.copied_at)
