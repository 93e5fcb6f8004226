"""Requests that move replicas. Source: Kafka's published message definitions."""

from __future__ import annotations

from typing import Annotated

from paceline.values import dataclass
from paceline.wire.kafka.layout import I16, I32, Bool, NullableStr, Str, Struct, since

# AlterPartitionReassignments (45), versions 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignmentsRequestTopicPartition(Struct):
    partition_index: I32 = 0
    replicas: tuple[I32, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignmentsRequestTopic(Struct):
    name: Str = ""
    partitions: tuple[AlterPartitionReassignmentsRequestTopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignmentsRequest(Struct):
    """Move partitions to other replicas; null gives up a move under way."""

    timeout_ms: I32 = 60000
    allow_replication_factor_change: Annotated[Bool, since(1)] = True
    topics: tuple[AlterPartitionReassignmentsRequestTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignmentsResponseTopicPartition(Struct):
    partition_index: I32 = 0
    error_code: I16
    error_message: NullableStr = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignmentsResponseTopic(Struct):
    name: Str = ""
    partitions: tuple[AlterPartitionReassignmentsResponseTopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionReassignmentsResponse(Struct):
    throttle_time_ms: I32 = 0
    allow_replication_factor_change: Annotated[Bool, since(1)] = True
    error_code: I16
    error_message: NullableStr = None
    responses: tuple[AlterPartitionReassignmentsResponseTopic, ...] = ()


# ListPartitionReassignments (46), version 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsRequestTopic(Struct):
    name: Str = ""
    partition_indexes: tuple[I32, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsRequest(Struct):
    """Which of these partitions are being moved; null asks for all."""

    timeout_ms: I32 = 60000
    topics: tuple[ListPartitionReassignmentsRequestTopic, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsResponseTopicPartition(Struct):
    partition_index: I32 = 0
    replicas: tuple[I32, ...] = ()
    adding_replicas: tuple[I32, ...] = ()
    removing_replicas: tuple[I32, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsResponseTopic(Struct):
    name: Str = ""
    partitions: tuple[ListPartitionReassignmentsResponseTopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPartitionReassignmentsResponse(Struct):
    throttle_time_ms: I32 = 0
    error_code: I16
    error_message: NullableStr = None
    topics: tuple[ListPartitionReassignmentsResponseTopic, ...] = ()
