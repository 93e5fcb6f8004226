"""Requests of idempotent and transactional producers. Source: Kafka's published message
definitions."""

from __future__ import annotations

from typing import Annotated

from paceline.values import dataclass
from paceline.wire.kafka.layout import I16, I32, I64, Bool, NullableStr, Str, Struct, since
from paceline.wire.kafka.offsets import OffsetCommitResponseTopic

# InitProducerId (22), versions 0 to 4


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdRequest(Struct):
    """A producer id and epoch, fencing who had them."""

    transactional_id: NullableStr = None
    transaction_timeout_ms: I32 = 0
    producer_id: Annotated[I64, since(3)] = -1
    producer_epoch: Annotated[I16, since(3)] = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdResponse(Struct):
    throttle_time_ms: I32 = 0
    error_code: I16
    producer_id: I64 = -1
    producer_epoch: I16 = 0


# AddPartitionsToTxn (24), versions 0 to 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnRequestTopic(Struct):
    name: Str = ""
    partitions: tuple[I32, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnRequest(Struct):
    """Register partitions with the transaction."""

    transactional_id: Str = ""
    producer_id: I64 = 0
    producer_epoch: I16 = 0
    topics: tuple[AddPartitionsToTxnRequestTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnResponseTopicPartition(Struct):
    partition_index: I32 = 0
    partition_error_code: I16


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnResponseTopic(Struct):
    name: Str = ""
    results_by_partition: tuple[AddPartitionsToTxnResponseTopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnResponse(Struct):
    throttle_time_ms: I32 = 0
    results_by_topic: tuple[AddPartitionsToTxnResponseTopic, ...] = ()


# AddOffsetsToTxn (25), versions 0 to 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOffsetsToTxnRequest(Struct):
    """Register a group with the transaction."""

    transactional_id: Str = ""
    producer_id: I64 = 0
    producer_epoch: I16 = 0
    group_id: Str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddOffsetsToTxnResponse(Struct):
    throttle_time_ms: I32 = 0
    error_code: I16


# EndTxn (26), versions 0 to 3


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxnRequest(Struct):
    """Commit or abort."""

    transactional_id: Str = ""
    producer_id: I64 = 0
    producer_epoch: I16 = 0
    committed: Bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTxnResponse(Struct):
    throttle_time_ms: I32 = 0
    error_code: I16


# TxnOffsetCommit (28), versions 0 to 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequestTopicPartition(Struct):
    partition_index: I32 = 0
    committed_offset: I64 = 0
    committed_leader_epoch: Annotated[I32, since(2)] = -1
    committed_metadata: NullableStr = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequestTopic(Struct):
    name: Str = ""
    partitions: tuple[TxnOffsetCommitRequestTopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitRequest(Struct):
    """Store positions of a group when the transaction commits."""

    transactional_id: Str = ""
    group_id: Str = ""
    producer_id: I64 = 0
    producer_epoch: I16 = 0
    generation_id: Annotated[I32, since(3)] = -1
    member_id: Annotated[Str, since(3)] = ""
    group_instance_id: Annotated[NullableStr, since(3)] = None
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnOffsetCommitResponse(Struct):
    throttle_time_ms: I32 = 0
    topics: tuple[OffsetCommitResponseTopic, ...] = ()
