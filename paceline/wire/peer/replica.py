"""REPLICA_FETCH and REPLICA_ACK: how followers copy a leader's log (replication/DESIGN 3.3).

A REPLICA_FETCH names many partitions of one follower-leader pair. The response's payload is the
concatenation of the partitions' record slices in the order of ``partitions``, each
``records_bytes`` long. REPLICA_ACK is a one-way frame with the same body: the leader treats it as
a fetch that reads nothing, so that a follower can report a finished flush while its next fetch is
parked (replication/DESIGN 3.4).

A connection remembers positions: a request with ``incremental`` names only the partitions whose
position changed since they were last named on the same connection, and the others stay as they
were. An answer names only partitions that have news, and one that it refuses or calls diverging is
forgotten until it is named again. So a round costs by what moves, not by what is followed.
"""

from __future__ import annotations

from uuid import UUID

from paceline.types import (
    NO_PARTITION_EPOCH,
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    PartitionEpoch,
    TopicId,
)
from paceline.values import dataclass
from paceline.wire.message import Message


@dataclass(frozen=True, slots=True)
class FetchPartition(Message):
    """A follower's position in one partition.

    ``fetch_offset`` is its log end offset, ``durable_offset`` what may be counted for
    acknowledgement (at most fetch_offset), ``last_fetched_epoch`` the leader epoch of its last
    batch (-1 for an empty log), ``known_hw`` its own high watermark (-1: it wants an answer in any
    case). ``partition_epoch`` is that of the registration by which it acts (-1: it does not tell).
    ``copied_at``: in this leader epoch it has begun anew, when the leader's log was compacted up to
    there (-1: it has not).
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
    partition_epoch: PartitionEpoch = NO_PARTITION_EPOCH
    copied_at: int = -1


@dataclass(frozen=True, slots=True)
class ReplicaFetch(Message):
    """Request body. ``nonce`` is random per process start plus a counter; it is echoed. Without
    ``incremental`` the partitions replace all that this connection had named."""

    cluster_id: UUID
    follower_id: NodeId
    follower_broker_epoch: BrokerEpoch
    follower_directory_id: UUID
    nonce: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partitions: tuple[FetchPartition, ...]
    incremental: bool = False


@dataclass(frozen=True, slots=True)
class EpochSpan(Message):
    """One entry of a leader epoch table: the epoch and its first offset."""

    epoch: LeaderEpoch
    start_offset: int


@dataclass(frozen=True, slots=True)
class FetchedPartition(Message):
    """Answer for one partition.

    ``error`` is an ErrorCode. When ``diverging_epoch`` is not -1 the follower's log forks from the
    leader's and it must truncate by (diverging_epoch, diverging_end_offset); no records then.
    ``state_offset`` is told with an error or a fork: where a follower begins that has nothing in
    common with the leader's log, with the state as of there (FETCH_STATE); -1: ask again later.
    ``begin_anew``: the follower must do so though their logs agree, because tombstones behind its
    end are gone from the leader's. ``follower_is_longer``, with a fork: the follower's log is the
    longer one of the two as they were when the leader's term began. ``epochs``, with records: the
    entries of the leader's epoch table that cover them; a batch's own header says its epoch outside
    the checksum. (Empty: a leader of an earlier version.)
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
    state_offset: int = -1
    begin_anew: bool = False
    follower_is_longer: bool = False
    epochs: tuple[EpochSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplicaFetched(Message):
    """Response body; its payload holds the records."""

    nonce: int
    partitions: tuple[FetchedPartition, ...]


@dataclass(frozen=True, slots=True)
class SuspectCorrupt(Message):
    """One-way, follower to leader: three answers in a row from ``offset`` on did not hold their
    checksums, so the leader should read that range of its own log."""

    topic_id: TopicId
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class FetchRange(Message):
    """Request for committed batches that cover ``start_offset`` up to ``end_offset``, for a replica
    whose copy of them is damaged (replication/DESIGN 3.4). Moves no follower state."""

    topic_id: TopicId
    partition: int
    current_leader_epoch: LeaderEpoch
    start_offset: int
    end_offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class RangeFetched(Message):
    """Answer: whole batches in the payload, from ``base_offset`` to before ``next_offset``; ask
    again from there. Equal ones mean that the leader's log has nothing there: it begins at
    ``log_start_offset`` (-1: not told). ``epochs`` is the leader's epoch table, against which the
    receiver checks every batch. Below ``removed_to`` tombstones may be missing there."""

    base_offset: int
    next_offset: int
    epochs: tuple[EpochSpan, ...]
    log_start_offset: int = -1
    removed_to: int = 0


@dataclass(frozen=True, slots=True)
class FetchState(Message):
    """Request for a piece of what the records below a leader's log start add up to: a snapshot file
    (``storage/producer_file.py`` of the node), from byte ``position`` on. ``offset`` is where the
    piece before was taken, -1 for the first one. Moves no follower state."""

    topic_id: TopicId
    partition: int
    current_leader_epoch: LeaderEpoch
    offset: int
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class StateFetched(Message):
    """Answer: a piece in the payload, of a snapshot taken at ``offset`` whose file has
    ``size_bytes``. 0 of them: the log begins at 0, and nothing is known before it. Another offset
    than asked for: the leader's log start has moved on, begin anew. From a log that is compacted up
    to ``cleaned_offset``, where tombstones below ``removed_to`` may be missing."""

    offset: int
    size_bytes: int
    removed_to: int = 0
    cleaned_offset: int = 0
