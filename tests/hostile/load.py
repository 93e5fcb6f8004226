"""The well-behaved load beside an attack: single records with acks=all, read back at once, by the
native client and by a Kafka client. All that was acknowledged must be read, in order."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

import paceline
from paceline.client import ProducerSettings
from paceline.errors import PacelineError

NATIVE_TOPIC, KAFKA_TOPIC = "calm-native", "calm-kafka"
GIVE_UP_S = 30.0
"""A request that is not answered within this has failed."""
_PAUSE_S = 0.05
_LOOK_AGAIN_S = 0.05


class Customer:
    """What one client has met with: seconds of each request, writes and reads, and failures."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seconds: list[float] = []
        self.failures: list[str] = []
        self.written = 0
        self.read = 0

    def take(self) -> tuple[list[float], list[str]]:
        """What has come since the last call."""
        seconds, self.seconds = self.seconds, []
        failures, self.failures = self.failures, []
        return seconds, failures

    def check(self, number: int) -> None:
        """The next record that was read."""
        if number != self.read:
            self.failures.append(f"{self.name}: record {number} read, expected {self.read}")
        self.read = number + 1


async def _native_writer(client: paceline.Client, customer: Customer, stop: trio.Event) -> None:
    settings = ProducerSettings(delivery_timeout_s=GIVE_UP_S)
    async with client.producer(settings) as producer:
        while not stop.is_set():
            begun = time.monotonic()
            try:
                await producer.send(NATIVE_TOPIC, b"%d" % customer.written, partition=0)
            except PacelineError as error:
                customer.failures.append(f"native produce: {error!r}")
                return
            customer.written += 1
            customer.seconds.append(time.monotonic() - begun)
            await trio.sleep(_PAUSE_S)


async def _native_reader(
    client: paceline.Client, customer: Customer, scope: trio.CancelScope
) -> None:
    """In ``scope``, which ends it."""
    try:
        with scope:
            async with client.consumer(NATIVE_TOPIC) as consumer:
                async for record in consumer:
                    customer.check(int(record.value or b"-1"))
    except PacelineError as error:
        customer.failures.append(f"native fetch: {error!r}")


def _kafka_writer(servers: str, customer: Customer, stop: threading.Event) -> None:
    """In a thread of its own."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": int(1000 * GIVE_UP_S),
        }
    )
    told: list[KafkaError | None] = []
    while not stop.is_set():
        begun = time.monotonic()
        producer.produce(
            KAFKA_TOPIC,
            b"%d" % customer.written,
            partition=0,
            on_delivery=lambda error, _: told.append(error),
        )
        while not told:
            producer.poll(0.1)
        error = told.pop()
        if error is not None:
            customer.failures.append(f"kafka produce: {error}")
            return
        customer.written += 1
        customer.seconds.append(time.monotonic() - begun)
        time.sleep(_PAUSE_S)


def _kafka_reader(servers: str, customer: Customer, stop: threading.Event) -> None:
    """In a thread of its own."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "calm", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(KAFKA_TOPIC, 0, 0)])
    while not stop.is_set():
        message = consumer.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is None:
            customer.check(int(message.value() or b"-1"))
        elif error.fatal():
            customer.failures.append(f"kafka fetch: {error}")
            break
    consumer.close()


async def _all_read(customer: Customer) -> None:
    with trio.move_on_after(GIVE_UP_S):
        while customer.read < customer.written and not customer.failures:  # noqa: ASYNC110  threads count, too
            await trio.sleep(_LOOK_AGAIN_S)
        return
    lost = customer.written - customer.read
    customer.failures.append(f"{customer.name}: {lost} acknowledged records were not read")


@asynccontextmanager
async def running(client: paceline.Client, servers: str) -> AsyncIterator[Sequence[Customer]]:
    """Load on the cluster while the block runs; at its end all that was written has been read, or
    that is a failure."""
    native, kafka = Customer("native"), Customer("kafka")
    stop_writing, writes, reads = trio.Event(), threading.Event(), threading.Event()
    async with trio.open_nursery() as nursery:
        reading = trio.CancelScope()
        nursery.start_soon(_native_reader, client, native, reading)
        nursery.start_soon(trio.to_thread.run_sync, _kafka_reader, servers, kafka, reads)
        try:
            async with trio.open_nursery() as writers:
                writers.start_soon(_native_writer, client, native, stop_writing)
                writers.start_soon(trio.to_thread.run_sync, _kafka_writer, servers, kafka, writes)
                try:
                    yield native, kafka
                finally:
                    stop_writing.set()
                    writes.set()
            for customer in (native, kafka):
                await _all_read(customer)
        finally:
            reads.set()
            reading.cancel("the load is over")
