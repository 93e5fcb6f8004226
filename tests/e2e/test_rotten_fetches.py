"""One bit has rotted on the leader's disk. Kafka's clients, which cannot say so, read every record
as it was written all the same, with their own defaults."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import aiokafka
import confluent_kafka
import kafka
import kafka.errors
import pytest

from tests.e2e.cluster import Cluster, wait_until

COUNT = 60
ROTTEN_AT = 110  # among the records of the first batch
READ_S = 60.0
Read = Callable[[str, str], list[str]]
"""The first ``COUNT`` values of a topic, at an address."""


def librdkafka(address: str, topic: str) -> list[str]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[str] = []
    deadline = time.monotonic() + READ_S
    while len(found) < COUNT and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message.value().decode())
    consumer.close()
    return found


def kafka_python(address: str, topic: str) -> list[str]:
    consumer = kafka.KafkaConsumer(topic, bootstrap_servers=address, auto_offset_reset="earliest")
    found: list[str] = []
    deadline = time.monotonic() + READ_S
    while len(found) < COUNT and time.monotonic() < deadline:
        try:
            polled = consumer.poll(timeout_ms=500)
        except kafka.errors.RetriableError:
            continue
        found += [each.value.decode() for records in polled.values() for each in records]
    consumer.close()
    return found


def aio(address: str, topic: str) -> list[str]:
    async def read() -> list[str]:
        consumer = aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=address, auto_offset_reset="earliest"
        )
        await consumer.start()
        found: list[str] = []
        try:
            async with asyncio.timeout(READ_S):
                while len(found) < COUNT:
                    found.append((await consumer.getone()).value.decode())
        finally:
            await consumer.stop()
        return found

    return asyncio.run(read())


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("read", [librdkafka, kafka_python, aio])
def test_what_has_rotted_reaches_no_client(
    shared_cluster: Cluster, read: Read, compression: str
) -> None:
    cluster = shared_cluster
    topic = f"rotten-{read.__name__}-{compression}"
    cluster.run("topic", "create", topic, "--partitions", "1", "--config", "segment.bytes=4096")
    values = [f"{topic} value {number:04} {'x' * 200}" for number in range(COUNT)]
    for begin in range(0, COUNT, 10):
        part = "\n".join(values[begin : begin + 10]) + "\n"
        words = ("produce", topic, "--acks", "all", "--compression", compression)
        cluster.run(*words, stdin=part.encode())
    [partition] = cluster.describe(topic)
    directory = cluster.partition_dir(partition["leader"], topic, 0)
    oldest = min(directory.glob("*.log"))
    whole = oldest.read_bytes()
    with oldest.open("r+b") as file:
        file.seek(ROTTEN_AT)
        file.write(bytes((whole[ROTTEN_AT] ^ 4,)))

    addresses = [cluster.address(node, "kafka") for node in range(3)]
    assert read(",".join(f"{host}:{port}" for host, port in addresses), topic) == values
    wait_until("it is repaired", lambda: min(directory.glob("*.log")).read_bytes() == whole)
    wait_until("all are in sync", lambda: len(cluster.describe(topic)[0]["isr"]) == 3)
