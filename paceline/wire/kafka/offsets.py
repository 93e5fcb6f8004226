"""Requests about the positions that groups store. Source: Kafka's published message definitions."""

from __future__ import annotations

from typing import Annotated

from paceline.values import dataclass
from paceline.wire.kafka.layout import (
    I16,
    I32,
    I64,
    Bool,
    NullableStr,
    Str,
    Struct,
    between,
    nullable_since,
    since,
    until,
)

# OffsetCommit (8), versions 0 to 8


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequestTopicPartition(Struct):
    partition_index: I32 = 0
    committed_offset: I64 = 0
    committed_leader_epoch: Annotated[I32, since(6)] = -1
    commit_timestamp: Annotated[I64, between(1, 1)] = -1
    committed_metadata: NullableStr = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequestTopic(Struct):
    name: Str = ""
    partitions: tuple[OffsetCommitRequestTopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitRequest(Struct):
    """Store positions of a group."""

    group_id: Str = ""
    generation_id: Annotated[I32, since(1)] = -1
    member_id: Annotated[Str, since(1)] = ""
    group_instance_id: Annotated[NullableStr, since(7)] = None
    retention_time_ms: Annotated[I64, between(2, 4)] = -1
    topics: tuple[OffsetCommitRequestTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResponseTopicPartition(Struct):
    partition_index: I32 = 0
    error_code: I16


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResponseTopic(Struct):
    name: Str = ""
    partitions: tuple[OffsetCommitResponseTopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResponse(Struct):
    throttle_time_ms: Annotated[I32, since(3)] = 0
    topics: tuple[OffsetCommitResponseTopic, ...] = ()


# OffsetFetch (9), versions 0 to 8


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequestTopic(Struct):
    name: Annotated[Str, until(7)] = ""
    partition_indexes: Annotated[tuple[I32, ...], until(7)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequestGroupTopic(Struct):
    name: Str = ""
    partition_indexes: tuple[I32, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequestGroup(Struct):
    group_id: Annotated[Str, since(8)] = ""
    topics: Annotated[tuple[OffsetFetchRequestGroupTopic, ...] | None, since(8)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchRequest(Struct):
    """Positions a group stored: -1 for none."""

    group_id: Annotated[Str, until(7)] = ""
    topics: Annotated[tuple[OffsetFetchRequestTopic, ...] | None, until(7), nullable_since(2)] = (
        None
    )
    groups: Annotated[tuple[OffsetFetchRequestGroup, ...], since(8)] = ()
    require_stable: Annotated[Bool, since(7)] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponseTopicPartition(Struct):
    partition_index: I32 = 0
    committed_offset: I64 = 0
    committed_leader_epoch: Annotated[I32, between(5, 7)] = -1
    metadata: NullableStr = None
    error_code: I16


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponseTopic(Struct):
    name: Annotated[Str, until(7)] = ""
    partitions: Annotated[tuple[OffsetFetchResponseTopicPartition, ...], until(7)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponseGroupTopicPartition(Struct):
    partition_index: I32 = 0
    committed_offset: I64 = 0
    committed_leader_epoch: I32 = -1
    metadata: NullableStr = None
    error_code: I16


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponseGroupTopic(Struct):
    name: Annotated[Str, since(8)] = ""
    partitions: Annotated[tuple[OffsetFetchResponseGroupTopicPartition, ...], since(8)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponseGroup(Struct):
    group_id: Annotated[Str, since(8)] = ""
    topics: Annotated[tuple[OffsetFetchResponseGroupTopic, ...], since(8)] = ()
    error_code: Annotated[I16, since(8)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetFetchResponse(Struct):
    throttle_time_ms: Annotated[I32, since(3)] = 0
    topics: Annotated[tuple[OffsetFetchResponseTopic, ...], until(7)] = ()
    error_code: Annotated[I16, between(2, 7)] = 0
    groups: Annotated[tuple[OffsetFetchResponseGroup, ...], since(8)] = ()


# OffsetDelete (47), versions 0 to 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteRequestTopicPartition(Struct):
    partition_index: I32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteRequestTopic(Struct):
    name: Str = ""
    partitions: tuple[OffsetDeleteRequestTopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteRequest(Struct):
    """Forget positions of a group."""

    group_id: Str = ""
    topics: tuple[OffsetDeleteRequestTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteResponseTopicPartition(Struct):
    partition_index: I32 = 0
    error_code: I16


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteResponseTopic(Struct):
    name: Str = ""
    partitions: tuple[OffsetDeleteResponseTopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetDeleteResponse(Struct):
    error_code: I16
    throttle_time_ms: I32 = 0
    topics: tuple[OffsetDeleteResponseTopic, ...] = ()
