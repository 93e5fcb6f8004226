"""Requests about the records of partitions. Source: Kafka's published message definitions."""

from __future__ import annotations

from typing import Annotated

from paceline.values import dataclass
from paceline.wire.kafka.layout import (
    I8,
    I16,
    I32,
    I64,
    NullableStr,
    Records,
    Str,
    Struct,
    since,
    tag,
    until,
)

# Produce (0), versions 0 to 9


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRequestTopicPartition(Struct):
    index: I32 = 0
    records: Records = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRequestTopic(Struct):
    name: Str = ""
    partition_data: tuple[ProduceRequestTopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceRequest(Struct):
    """Append batches to partitions; with acks 0 there is no response."""

    transactional_id: Annotated[NullableStr, since(3)] = None
    acks: I16 = 0
    timeout_ms: I32 = 0
    topic_data: tuple[ProduceRequestTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResponseEntryPartitionRecordError(Struct):
    batch_index: I32 = 0
    batch_index_error_message: NullableStr = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResponseEntryPartition(Struct):
    index: I32 = 0
    error_code: I16
    base_offset: I64 = 0
    log_append_time_ms: Annotated[I64, since(2)] = -1
    log_start_offset: Annotated[I64, since(5)] = -1
    record_errors: Annotated[tuple[ProduceResponseEntryPartitionRecordError, ...], since(8)] = ()
    error_message: Annotated[NullableStr, since(8)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResponseEntry(Struct):
    name: Str = ""
    partition_responses: tuple[ProduceResponseEntryPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResponse(Struct):
    responses: tuple[ProduceResponseEntry, ...] = ()
    throttle_time_ms: Annotated[I32, since(1)] = 0


# Fetch (1), versions 0 to 12


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequestTopicPartition(Struct):
    partition: I32 = 0
    current_leader_epoch: Annotated[I32, since(9)] = -1
    fetch_offset: I64 = 0
    last_fetched_epoch: Annotated[I32, since(12)] = -1
    log_start_offset: Annotated[I64, since(5)] = -1
    partition_max_bytes: I32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequestTopic(Struct):
    topic: Str = ""
    partitions: tuple[FetchRequestTopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequestForgottenTopic(Struct):
    topic: Str = ""
    partitions: tuple[I32, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest(Struct):
    """Read batches, waiting up to max_wait_ms for min_bytes."""

    cluster_id: Annotated[NullableStr, since(12), tag(0)] = None
    replica_id: I32 = -1
    max_wait_ms: I32 = 0
    min_bytes: I32 = 0
    max_bytes: Annotated[I32, since(3)] = 0x7FFFFFFF
    isolation_level: Annotated[I8, since(4)] = 0
    session_id: Annotated[I32, since(7)] = 0
    session_epoch: Annotated[I32, since(7)] = -1
    topics: tuple[FetchRequestTopic, ...] = ()
    forgotten_topics_data: Annotated[tuple[FetchRequestForgottenTopic, ...], since(7)] = ()
    rack_id: Annotated[Str, since(11)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponseEntryPartitionDivergingEpoch(Struct):
    epoch: I32 = -1
    end_offset: I64 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponseEntryPartitionCurrentLeader(Struct):
    leader_id: I32 = -1
    leader_epoch: I32 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponseEntryPartitionSnapshotId(Struct):
    end_offset: I64 = -1
    epoch: I32 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponseEntryPartitionAbortedTransaction(Struct):
    producer_id: I64 = 0
    first_offset: I64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponseEntryPartition(Struct):
    partition_index: I32 = 0
    error_code: I16
    high_watermark: I64 = 0
    last_stable_offset: Annotated[I64, since(4)] = -1
    log_start_offset: Annotated[I64, since(5)] = -1
    diverging_epoch: Annotated[FetchResponseEntryPartitionDivergingEpoch, since(12), tag(0)] = (
        FetchResponseEntryPartitionDivergingEpoch()
    )
    current_leader: Annotated[FetchResponseEntryPartitionCurrentLeader, since(12), tag(1)] = (
        FetchResponseEntryPartitionCurrentLeader()
    )
    snapshot_id: Annotated[FetchResponseEntryPartitionSnapshotId, since(12), tag(2)] = (
        FetchResponseEntryPartitionSnapshotId()
    )
    aborted_transactions: Annotated[
        tuple[FetchResponseEntryPartitionAbortedTransaction, ...] | None, since(4)
    ] = None
    preferred_read_replica: Annotated[I32, since(11)] = -1
    records: Records = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponseEntry(Struct):
    topic: Str = ""
    partitions: tuple[FetchResponseEntryPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResponse(Struct):
    throttle_time_ms: Annotated[I32, since(1)] = 0
    error_code: Annotated[I16, since(7)] = 0
    session_id: Annotated[I32, since(7)] = 0
    responses: tuple[FetchResponseEntry, ...] = ()


# ListOffsets (2), versions 0 to 7


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsRequestTopicPartition(Struct):
    partition_index: I32 = 0
    current_leader_epoch: Annotated[I32, since(4)] = -1
    timestamp: I64 = 0
    max_num_offsets: Annotated[I32, until(0)] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsRequestTopic(Struct):
    name: Str = ""
    partitions: tuple[ListOffsetsRequestTopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsRequest(Struct):
    """Offsets by time: -1 latest, -2 earliest, -3 that of the largest timestamp, else ms."""

    replica_id: I32 = 0
    isolation_level: Annotated[I8, since(2)] = 0
    topics: tuple[ListOffsetsRequestTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsResponseTopicPartition(Struct):
    partition_index: I32 = 0
    error_code: I16
    old_style_offsets: Annotated[tuple[I64, ...], until(0)] = ()
    timestamp: Annotated[I64, since(1)] = -1
    offset: Annotated[I64, since(1)] = -1
    leader_epoch: Annotated[I32, since(4)] = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsResponseTopic(Struct):
    name: Str = ""
    partitions: tuple[ListOffsetsResponseTopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOffsetsResponse(Struct):
    throttle_time_ms: Annotated[I32, since(2)] = 0
    topics: tuple[ListOffsetsResponseTopic, ...] = ()


# OffsetForLeaderEpoch (23), versions 2 to 4


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpochRequestTopicPartition(Struct):
    partition: I32 = 0
    current_leader_epoch: I32 = -1
    leader_epoch: I32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpochRequestTopic(Struct):
    topic: Str = ""
    partitions: tuple[OffsetForLeaderEpochRequestTopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpochRequest(Struct):
    """Where an epoch of leadership ended."""

    replica_id: Annotated[I32, since(3)] = -2
    topics: tuple[OffsetForLeaderEpochRequestTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpochResponseTopicPartition(Struct):
    error_code: I16
    partition: I32 = 0
    leader_epoch: I32 = -1
    end_offset: I64 = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpochResponseTopic(Struct):
    topic: Str = ""
    partitions: tuple[OffsetForLeaderEpochResponseTopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForLeaderEpochResponse(Struct):
    throttle_time_ms: I32 = 0
    topics: tuple[OffsetForLeaderEpochResponseTopic, ...] = ()


# DeleteRecords (21), versions 0 to 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsRequestTopicPartition(Struct):
    partition_index: I32 = 0
    offset: I64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsRequestTopic(Struct):
    name: Str = ""
    partitions: tuple[DeleteRecordsRequestTopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsRequest(Struct):
    """Move the log start forward."""

    topics: tuple[DeleteRecordsRequestTopic, ...] = ()
    timeout_ms: I32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsResponseTopicPartition(Struct):
    partition_index: I32 = 0
    low_watermark: I64 = 0
    error_code: I16


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsResponseTopic(Struct):
    name: Str = ""
    partitions: tuple[DeleteRecordsResponseTopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecordsResponse(Struct):
    throttle_time_ms: I32 = 0
    topics: tuple[DeleteRecordsResponseTopic, ...] = ()
