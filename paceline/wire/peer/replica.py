"""REPLICA_FETCH and REPLICA_ACK: how followers copy a leader's log (spec replication 3.3).

A REPLICA_FETCH names many partitions of one follower-leader pair. The response's payload is the
concatenation of the partitions' record slices in the order of ``partitions``, each
``records_bytes`` long. REPLICA_ACK is a one-way frame with the same body: the leader treats it as
a fetch that reads nothing, so that a follower can report a finished flush while its next fetch is
parked (spec replication 3.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from paceline.types import BrokerEpoch, LeaderEpoch, NodeId, TopicId
from paceline.wire.message import Message


@dataclass(frozen=True, slots=True)
class FetchPartition(Message):
    """A follower's position in one partition.

    ``fetch_offset`` is its log end offset, ``durable_offset`` what may be counted for
    acknowledgement (at most fetch_offset), ``last_fetched_epoch`` the leader epoch of its last
    batch (-1 for an empty log), ``known_hw`` its own high watermark.
    """

    topic_id: TopicId
    partition: int
    current_leader_epoch: LeaderEpoch
    fetch_offset: int
    durable_offset: int
    last_fetched_epoch: LeaderEpoch
    log_start_offset: int
    known_hw: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ReplicaFetch(Message):
    """Request body. ``nonce`` is random per process start plus a counter; it is echoed."""

    cluster_id: UUID
    follower_id: NodeId
    follower_broker_epoch: BrokerEpoch
    follower_directory_id: UUID
    nonce: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partitions: tuple[FetchPartition, ...]


@dataclass(frozen=True, slots=True)
class FetchedPartition(Message):
    """Answer for one partition.

    ``error`` is an ErrorCode. When ``diverging_epoch`` is not -1 the follower's log forks from the
    leader's and it must truncate by (diverging_epoch, diverging_end_offset); no records then.
    """

    topic_id: TopicId
    partition: int
    error: int
    leader_epoch: LeaderEpoch
    leader_id: NodeId
    fetch_offset: int
    high_watermark: int
    log_start_offset: int
    log_end_offset: int
    diverging_epoch: LeaderEpoch
    diverging_end_offset: int
    records_bytes: int


@dataclass(frozen=True, slots=True)
class ReplicaFetched(Message):
    """Response body; its payload holds the records."""

    nonce: int
    partitions: tuple[FetchedPartition, ...]
