"""Requests about versions, brokers, topics and coordinators. Source: Kafka's published message
definitions."""

from __future__ import annotations

from typing import Annotated

from paceline.values import dataclass
from paceline.wire.kafka.layout import (
    I8,
    I16,
    I32,
    I64,
    NO_UUID,
    NOT_ASKED,
    Bool,
    NullableStr,
    Str,
    Struct,
    Uuid,
    between,
    nullable_since,
    since,
    tag,
    until,
)

# ApiVersions (18), versions 0 to 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest(Struct):
    """Which APIs and versions the other side knows."""

    client_software_name: Annotated[Str, since(3)] = ""
    client_software_version: Annotated[Str, since(3)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponseApi(Struct):
    api_key: I16 = 0
    min_version: I16 = 0
    max_version: I16 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponseFeature(Struct):
    name: Str = ""
    min_version: I16 = 0
    max_version: I16 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponseFinalizedFeature(Struct):
    name: Str = ""
    max_version_level: I16 = 0
    min_version_level: I16 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse(Struct):
    error_code: I16
    api_keys: tuple[ApiVersionsResponseApi, ...] = ()
    throttle_time_ms: Annotated[I32, since(1)] = 0
    supported_features: Annotated[tuple[ApiVersionsResponseFeature, ...], since(3), tag(0)] = ()
    finalized_features_epoch: Annotated[I64, since(3), tag(1)] = -1
    finalized_features: Annotated[
        tuple[ApiVersionsResponseFinalizedFeature, ...], since(3), tag(2)
    ] = ()
    zk_migration_ready: Annotated[Bool, since(3), tag(3)] = False


# Metadata (3), versions 0 to 12


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequestTopic(Struct):
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    name: Annotated[NullableStr, nullable_since(10)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest(Struct):
    """Brokers, topics, leaders."""

    topics: Annotated[tuple[MetadataRequestTopic, ...] | None, nullable_since(1)] = None
    allow_auto_topic_creation: Annotated[Bool, since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, between(8, 10)] = False
    include_topic_authorized_operations: Annotated[Bool, since(8)] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponseBroker(Struct):
    node_id: I32 = 0
    host: Str = ""
    port: I32 = 0
    rack: Annotated[NullableStr, since(1)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponseTopicPartition(Struct):
    error_code: I16
    partition_index: I32 = 0
    leader_id: I32 = 0
    leader_epoch: Annotated[I32, since(7)] = -1
    replica_nodes: tuple[I32, ...] = ()
    isr_nodes: tuple[I32, ...] = ()
    offline_replicas: Annotated[tuple[I32, ...], since(5)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponseTopic(Struct):
    error_code: I16
    name: Annotated[NullableStr, nullable_since(12)] = None
    topic_id: Annotated[Uuid, since(10)] = NO_UUID
    is_internal: Annotated[Bool, since(1)] = False
    partitions: tuple[MetadataResponseTopicPartition, ...] = ()
    topic_authorized_operations: Annotated[I32, since(8)] = NOT_ASKED


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse(Struct):
    throttle_time_ms: Annotated[I32, since(3)] = 0
    brokers: tuple[MetadataResponseBroker, ...] = ()
    cluster_id: Annotated[NullableStr, since(2)] = None
    controller_id: Annotated[I32, since(1)] = -1
    topics: tuple[MetadataResponseTopic, ...] = ()
    cluster_authorized_operations: Annotated[I32, between(8, 10)] = NOT_ASKED


# DescribeCluster (60), versions 0 to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClusterRequest(Struct):
    """The brokers, for administration."""

    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[I8, since(1)] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClusterResponseBroker(Struct):
    broker_id: I32 = 0
    host: Str = ""
    port: I32 = 0
    rack: NullableStr = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeClusterResponse(Struct):
    throttle_time_ms: I32 = 0
    error_code: I16
    error_message: NullableStr = None
    endpoint_type: Annotated[I8, since(1)] = 1
    cluster_id: Str = ""
    controller_id: I32 = -1
    brokers: tuple[DescribeClusterResponseBroker, ...] = ()
    cluster_authorized_operations: I32 = NOT_ASKED


# FindCoordinator (10), versions 0 to 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinatorRequest(Struct):
    """Who coordinates a group (key_type 0) or a transactional id (1)."""

    key: Annotated[Str, until(3)] = ""
    key_type: Annotated[I8, since(1)] = 0
    coordinator_keys: Annotated[tuple[Str, ...], since(4)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinatorResponseCoordinator(Struct):
    key: Str = ""
    node_id: I32 = 0
    host: Str = ""
    port: I32 = 0
    error_code: I16
    error_message: NullableStr = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinatorResponse(Struct):
    throttle_time_ms: Annotated[I32, since(1)] = 0
    error_code: Annotated[I16, until(3)] = 0
    error_message: Annotated[NullableStr, between(1, 3)] = None
    node_id: Annotated[I32, until(3)] = 0
    host: Annotated[Str, until(3)] = ""
    port: Annotated[I32, until(3)] = 0
    coordinators: Annotated[tuple[FindCoordinatorResponseCoordinator, ...], since(4)] = ()
