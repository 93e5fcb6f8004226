"""Bytes per second: writing through the native producer, reading through the consumer."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable

import trio

from paceline.client import Client, Position, Producer, ProducerSettings
from paceline.types import TopicPartition
from paceline.wire.batch import build_batch
from paceline.wire.records import Record
from paceline_cluster.bench.figures import Aim, Figure, rate

PRODUCE_AIM = Aim(120, at_least=True)
CONSUME_AIM = Aim(500, at_least=True)
RECORDS_PER_CALL_BYTES = 1 << 20
WRITERS = 4
BATCHES_IN_FLIGHT = 12
REPLICATION_FACTOR = 3

Step = Callable[[], Awaitable[tuple[int, int]]]
"""Writes something acknowledged; returns (bytes of values, records)."""


async def produce_records(client: Client, *, size: int, partitions: int, seconds: float) -> Figure:
    """Records of ``size`` bytes, as many at a time as fit a MiB."""
    topic = f"records-{size}-{partitions}"
    await client.admin.create_topic(
        topic, partitions=partitions, replication_factor=REPLICATION_FACTOR
    )
    value = os.urandom(size)
    count = RECORDS_PER_CALL_BYTES // (size + 16)
    values = [value] * count
    async with client.producer(ProducerSettings()) as producer:

        async def step() -> tuple[int, int]:
            await producer.send_many(topic, values)
            return size * count, count

        total, records, wall_s = await _repeat([step] * WRITERS, seconds)
    name = f"produce {size} B records, {partitions} partitions, acks=all, RF 3"
    return rate(name, total, records, wall_s)


async def produce_batches(client: Client, *, size: int, partitions: int, seconds: float) -> Figure:
    """Batches of about ``size`` bytes that are built once and sent again and again."""
    topic = batches_topic(size, partitions)
    await client.admin.create_topic(
        topic, partitions=partitions, replication_factor=REPLICATION_FACTOR
    )
    value = os.urandom(1024)
    count = size // 1040
    batch = bytes(
        build_batch([Record(value=value)] * count, timestamp_ms=time.time_ns() // 1_000_000)
    )
    async with client.producer(ProducerSettings()) as producer:
        steps = [
            _batch_step(producer, topic, number % partitions, batch, 1024 * count, count)
            for number in range(max(BATCHES_IN_FLIGHT, partitions))
        ]
        total, records, wall_s = await _repeat(steps, seconds)
    name = f"produce {size // 1024} KiB batches, {partitions} partitions, acks=all, RF 3"
    return rate(name, total, records, wall_s, PRODUCE_AIM)


def batches_topic(size: int, partitions: int) -> str:
    """The topic that :func:`produce_batches` writes."""
    return f"batches-{size}-{partitions}"


def _batch_step(
    producer: Producer, topic: str, partition: int, batch: bytes, size: int, count: int
) -> Step:
    async def step() -> tuple[int, int]:
        await producer.send_batch(topic, partition, batch)
        return size, count

    return step


async def _repeat(steps: list[Step], seconds: float) -> tuple[int, int, float]:
    """Run every step in a task of its own, again and again, after a second of warming up."""
    totals = [0, 0]
    measuring = False
    stop_at = float("inf")

    async def repeat(step: Step) -> None:
        while time.monotonic() < stop_at:
            size, count = await step()
            if measuring:
                totals[0] += size
                totals[1] += count

    async with trio.open_nursery() as nursery:
        for step in steps:
            nursery.start_soon(repeat, step)
        await trio.sleep(1)
        measuring = True
        begin = time.monotonic()
        await trio.sleep(seconds)
        measuring = False
        wall_s = time.monotonic() - begin
        stop_at = 0
    return totals[0], totals[1], wall_s


async def consume(client: Client, *, topic: str, seconds: float) -> list[Figure]:
    """Read a topic from the start: whole batches (checksums verified), then decoded records."""
    begin = time.monotonic()
    size = records = 0
    async with client.consumer(topic, stop=Position.LATEST) as consumer:
        async for batch in consumer.batches():
            size += len(batch.data)
            records += batch.header.record_count
            if time.monotonic() - begin > seconds:
                break
    figures = [
        rate(f"consume batches of {topic}", size, records, time.monotonic() - begin, CONSUME_AIM)
    ]
    begin = time.monotonic()
    size = count = 0
    async with client.consumer(topic, stop=Position.LATEST) as consumer:
        async for batch in consumer.batches():
            count += len(batch.records())
            size += len(batch.data)
            if time.monotonic() - begin > seconds:
                break
    figures.append(
        rate(f"consume and decode records of {topic}", size, count, time.monotonic() - begin)
    )
    return figures


async def leader_of(client: Client, at: TopicPartition) -> int:
    """The node that leads a partition."""
    info = await client.admin.topic(at.topic)
    return int(info.partitions[at.partition].leader)
