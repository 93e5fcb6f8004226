"""No batch is acknowledged whose records are not in the log, whatever overtook it.

A producer that the log does not know may begin with any sequence. While ``min.insync.replicas`` is
altered, the first of several batches under way is refused and the next one taken, if nothing
prevents it: a gap, whose retry may never be called a duplicate, for clients take that as stored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import confluent_kafka
import pytest
import trio

from paceline.errors import ErrorCode
from paceline.wire.batch import build_batch
from paceline.wire.kafka import topics
from paceline.wire.records import Record
from tests.integration.node.kafka_client import HANG_S, KafkaClient
from tests.integration.node.nodes import lone_node
from tests.integration.node.test_kafka import (
    NOW,
    ONE,
    TOPIC,
    fetch,
    fetched,
    make_topic,
    one,
    produce,
    records_in,
)

_ASKING = 2**40
_PRODUCERS = 20
_EACH = 6


@asynccontextmanager
async def replicated(directory: Path) -> AsyncIterator[tuple[tuple[str, int], KafkaClient]]:
    """A node that has one of a topic's three replicas, the others being vacant."""
    async with lone_node(directory, ONE) as node:
        address = node.addresses["kafka"]
        async with KafkaClient(address) as client:
            await make_topic(client, replicas=3)
            assert await send(client, 0, producer=_ASKING) == 0
            yield address, client


async def set_min_isr(client: KafkaClient, count: int) -> None:
    """From here on a lone node refuses acks=all where ``count`` is 2, or takes it where it is 1."""
    change = topics.IncrementalAlterConfigsRequestResourceConfig(
        name="min.insync.replicas", config_operation=0, value=str(count)
    )
    resource = topics.IncrementalAlterConfigsRequestResource(
        resource_type=2, resource_name=TOPIC, configs=(change,)
    )
    [told] = (
        await client.ask(topics.IncrementalAlterConfigsRequest(resources=(resource,)), 1)
    ).responses
    assert told.error_code == 0
    # A batch with a hole behind it stores nothing, and tells which one holds.
    with trio.fail_after(HANG_S):
        while True:
            refused = await send(client, 7, producer=_ASKING) == ErrorCode.NOT_ENOUGH_REPLICAS
            if refused == (count > 1):
                return
            await trio.sleep(0.01)


async def send(client: KafkaClient, sequence: int, *, producer: int = 900) -> int:
    """Produce the value ``sequence`` under that sequence; the error code."""
    data = build_batch(
        [Record(-1, NOW, None, b"%d" % sequence)],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
    )
    return int(one(await client.ask(produce(data), 9)).error_code)


async def stored(client: KafkaClient) -> list[bytes | None]:
    """All values in the log."""
    values: list[bytes | None] = []
    offset = 0
    while True:
        part = fetched(await client.ask(fetch(offset), 11))
        if offset >= part.high_watermark:
            return values[1:]  # the first is that of the producer that only asks
        found = [each for each in records_in(part.records, 11) if each.offset >= offset]
        values += [each.value for each in found]
        offset = found[-1].offset + 1


async def test_a_gap_is_not_opened_and_its_retry_is_stored(tmp_path) -> None:  # type: ignore[no-untyped-def]
    async with replicated(tmp_path) as (_, client):
        await set_min_isr(client, 2)
        assert await send(client, 0) == ErrorCode.NOT_ENOUGH_REPLICAS
        await set_min_isr(client, 1)
        assert await send(client, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE  # 0 may come again
        assert [await send(client, each) for each in (0, 1, 2)] == [0, 0, 0]
        assert await stored(client) == [b"0", b"1", b"2"]


async def test_what_lies_before_the_first_batch_of_an_unknown_producer_is_refused(
    tmp_path,  # type: ignore[no-untyped-def]
) -> None:
    """As Kafka does: it takes the first batch, whose producer may have been forgotten."""
    async with replicated(tmp_path) as (_, client):
        assert await send(client, 5) == 0
        assert await send(client, 4) == ErrorCode.OUT_OF_ORDER_SEQUENCE
        assert [await send(client, each) for each in range(6, 14)] == [0] * 8
        assert await send(client, 4) == ErrorCode.OUT_OF_ORDER_SEQUENCE
        assert await send(client, 5) == ErrorCode.DUPLICATE_SEQUENCE  # stored, long ago
        assert await stored(client) == [b"%d" % each for each in range(5, 14)]


@asynccontextmanager
async def altered_under_load(client: KafkaClient) -> AsyncIterator[None]:
    """``min.insync.replicas`` goes up and down."""

    async def alter() -> None:
        while True:
            await set_min_isr(client, 2)
            await set_min_isr(client, 1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(alter)
        yield
        nursery.cancel_scope.cancel()


def librdkafka_writes(server: str, number: int) -> list[tuple[bytes, object]]:
    """Values that a fresh idempotent producer sent side by side, with what it was told of each."""
    told: list[tuple[bytes, object]] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": server,
            "enable.idempotence": True,
            "batch.num.messages": 1,
            "linger.ms": 0,
            "retry.backoff.ms": 1,
            "retry.backoff.max.ms": 5,
        }
    )
    for index in range(_EACH):
        producer.produce(
            TOPIC,
            value=b"%d-%d" % (number, index),
            partition=0,
            on_delivery=lambda error, message: told.append((message.value(), error)),
        )
        producer.poll(0.001)
    assert producer.flush(HANG_S) == 0
    return told


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_librdkafka_is_told_of_nothing_that_is_not_in_the_log(tmp_path) -> None:  # type: ignore[no-untyped-def]
    async with replicated(tmp_path) as (address, client):
        told: list[tuple[bytes, object]] = []
        async with altered_under_load(client):
            for number in range(_PRODUCERS):
                told += await trio.to_thread.run_sync(
                    librdkafka_writes, f"{address[0]}:{address[1]}", number
                )
        async with KafkaClient(address) as fresh:  # the other's last request was not answered
            await set_min_isr(fresh, 1)
            check(told, await stored(fresh))


def check(told: Sequence[tuple[bytes, object]], values: Sequence[bytes | None]) -> None:
    """Everything was acknowledged, is there once, and in order of its producer."""
    assert len(told) == _PRODUCERS * _EACH
    assert [(value, error) for value, error in told if error is not None] == []
    acknowledged = {value for value, _ in told}
    assert acknowledged - set(values) == set(), "acknowledged, and not in the log"
    assert sorted(values, key=repr) == sorted(acknowledged, key=repr)
    for number in range(_PRODUCERS):
        own = [value for value in values if (value or b"").startswith(b"%d-" % number)]
        assert own == [b"%d-%d" % (number, index) for index in range(_EACH)]
