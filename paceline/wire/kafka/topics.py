"""Requests that administer topics and settings. Source: Kafka's published message definitions."""

from __future__ import annotations

from typing import Annotated

from paceline.values import dataclass
from paceline.wire.kafka.layout import (
    I8,
    I16,
    I32,
    NO_UUID,
    Bool,
    NullableStr,
    Str,
    Struct,
    Uuid,
    since,
    tag,
)

# CreateTopics (19), versions 2 to 7


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsRequestTopicAssignment(Struct):
    partition_index: I32 = 0
    broker_ids: tuple[I32, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsRequestTopicConfig(Struct):
    name: Str = ""
    value: NullableStr = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsRequestTopic(Struct):
    name: Str = ""
    num_partitions: I32 = 0
    replication_factor: I16 = 0
    assignments: tuple[CreateTopicsRequestTopicAssignment, ...] = ()
    configs: tuple[CreateTopicsRequestTopicConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsRequest(Struct):
    """Create topics."""

    topics: tuple[CreateTopicsRequestTopic, ...] = ()
    timeout_ms: I32 = 60000
    validate_only: Bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsResponseTopicConfig(Struct):
    name: Str = ""
    value: NullableStr = None
    read_only: Bool = False
    config_source: I8 = -1
    is_sensitive: Bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsResponseTopic(Struct):
    name: Str = ""
    topic_id: Annotated[Uuid, since(7)] = NO_UUID
    error_code: I16
    error_message: NullableStr = None
    topic_config_error_code: Annotated[I16, since(5), tag(0)] = 0
    num_partitions: Annotated[I32, since(5)] = -1
    replication_factor: Annotated[I16, since(5)] = -1
    configs: Annotated[tuple[CreateTopicsResponseTopicConfig, ...] | None, since(5)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopicsResponse(Struct):
    throttle_time_ms: I32 = 0
    topics: tuple[CreateTopicsResponseTopic, ...] = ()


# DeleteTopics (20), versions 1 to 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsRequest(Struct):
    """Delete topics."""

    topic_names: tuple[Str, ...] = ()
    timeout_ms: I32 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsResponseEntry(Struct):
    name: Str = ""
    error_code: I16
    error_message: Annotated[NullableStr, since(5)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsResponse(Struct):
    throttle_time_ms: I32 = 0
    responses: tuple[DeleteTopicsResponseEntry, ...] = ()


# CreatePartitions (37), versions 0 to 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsRequestTopicAssignment(Struct):
    broker_ids: tuple[I32, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsRequestTopic(Struct):
    name: Str = ""
    count: I32 = 0
    assignments: tuple[CreatePartitionsRequestTopicAssignment, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsRequest(Struct):
    """Grow topics."""

    topics: tuple[CreatePartitionsRequestTopic, ...] = ()
    timeout_ms: I32 = 0
    validate_only: Bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsResponseResult(Struct):
    name: Str = ""
    error_code: I16
    error_message: NullableStr = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePartitionsResponse(Struct):
    throttle_time_ms: I32 = 0
    results: tuple[CreatePartitionsResponseResult, ...] = ()


# DescribeConfigs (32), versions 1 to 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsRequestResource(Struct):
    resource_type: I8 = 0
    resource_name: Str = ""
    configuration_keys: tuple[Str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsRequest(Struct):
    """Settings of topics and brokers."""

    resources: tuple[DescribeConfigsRequestResource, ...] = ()
    include_synonyms: Bool = False
    include_documentation: Annotated[Bool, since(3)] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResponseResultConfigSynonym(Struct):
    name: Str = ""
    value: NullableStr = None
    source: I8 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResponseResultConfig(Struct):
    name: Str = ""
    value: NullableStr = None
    read_only: Bool = False
    config_source: I8 = -1
    is_sensitive: Bool = False
    synonyms: tuple[DescribeConfigsResponseResultConfigSynonym, ...] = ()
    config_type: Annotated[I8, since(3)] = 0
    documentation: Annotated[NullableStr, since(3)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResponseResult(Struct):
    error_code: I16
    error_message: NullableStr = None
    resource_type: I8 = 0
    resource_name: Str = ""
    configs: tuple[DescribeConfigsResponseResultConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeConfigsResponse(Struct):
    throttle_time_ms: I32 = 0
    results: tuple[DescribeConfigsResponseResult, ...] = ()


# IncrementalAlterConfigs (44), versions 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigsRequestResourceConfig(Struct):
    name: Str = ""
    config_operation: I8 = 0
    value: NullableStr = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigsRequestResource(Struct):
    resource_type: I8 = 0
    resource_name: Str = ""
    configs: tuple[IncrementalAlterConfigsRequestResourceConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigsRequest(Struct):
    """Change settings one by one."""

    resources: tuple[IncrementalAlterConfigsRequestResource, ...] = ()
    validate_only: Bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigsResponseEntry(Struct):
    error_code: I16
    error_message: NullableStr = None
    resource_type: I8 = 0
    resource_name: Str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementalAlterConfigsResponse(Struct):
    throttle_time_ms: I32 = 0
    responses: tuple[IncrementalAlterConfigsResponseEntry, ...] = ()
