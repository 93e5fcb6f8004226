"""Attacks on the Kafka listener: requests that say much in little."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.types import Acks
from paceline.wire.batch import build_batch, build_raw_batch
from paceline.wire.kafka import offsets, records
from paceline.wire.records import Record

_MIB = 1024 * 1024


def repeated_fetch(
    topic: str, offset: int, *, times: int, wait_ms: int = 200
) -> records.FetchRequest:
    """A long poll that names one partition many times, from the end of its log."""
    part = records.FetchRequestTopicPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=2**20
    )
    return records.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=2**20,
        max_bytes=2**20,
        topics=(records.FetchRequestTopic(topic=topic, partitions=(part,) * times),),
    )


def repeated_queries(topic: str, *, times: int) -> records.ListOffsetsRequest:
    """LIST_OFFSETS that names one partition many times."""
    part = records.ListOffsetsRequestTopicPartition(partition_index=0, timestamp=-1)
    return records.ListOffsetsRequest(
        topics=(records.ListOffsetsRequestTopic(name=topic, partitions=(part,) * times),)
    )


def crowd_of_batches(topic: str, *, batches: int) -> records.ProduceRequest:
    """PRODUCE of as many of the smallest batches as fit, where one is allowed."""
    return _produce(topic, [bytes(build_batch([Record(value=b"")])) * batches])


def many_partitions_produced(topic: str, *, parts: int) -> records.ProduceRequest:
    """PRODUCE that names one partition many times, with a batch for each."""
    return _produce(topic, [bytes(build_batch([Record(value=b"")]))] * parts)


def great_produce(topic: str, *, megabytes: int) -> records.ProduceRequest:
    """PRODUCE of one batch of a MiB for a partition, again and again."""
    return _produce(topic, [bytes(build_raw_batch(bytes(_MIB - 200), record_count=1))] * megabytes)


def great_batch(topic: str, *, megabytes: int) -> records.ProduceRequest:
    """PRODUCE of what says that it is one batch, near the largest frame."""
    batch = bytearray(build_raw_batch(bytes(_MIB), record_count=1)) + bytes((megabytes - 1) * _MIB)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    return _produce(topic, [bytes(batch)])


def _produce(topic: str, batches: list[bytes]) -> records.ProduceRequest:
    parts = tuple(
        records.ProduceRequestTopicPartition(index=0, records=memoryview(bytearray(batch)))
        for batch in batches
    )
    entry = records.ProduceRequestTopic(name=topic, partition_data=parts)
    return records.ProduceRequest(acks=int(Acks.LEADER), timeout_ms=10_000, topic_data=(entry,))


def commits(group: str, topic: str, parts: Iterable[int]) -> offsets.OffsetCommitRequest:
    """OFFSET_COMMIT of these partitions, each with a position of its own."""
    asked = tuple(
        offsets.OffsetCommitRequestTopicPartition(partition_index=part, committed_offset=at)
        for at, part in enumerate(parts)
    )
    return offsets.OffsetCommitRequest(
        group_id=group, topics=(offsets.OffsetCommitRequestTopic(name=topic, partitions=asked),)
    )
