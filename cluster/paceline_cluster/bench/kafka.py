"""The Kafka path: one librdkafka client for all brokers, topics of three replicas, acks=all.

Needs ``confluent-kafka``, which the development set-up installs. The client works in threads of its
own, so nothing here runs on a trio loop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from paceline_cluster.bench import cpu
from paceline_cluster.bench.figures import Figure, latency, rate
from paceline_cluster.bench.rig import Rig

PARTITIONS = 12
_HANG_S = 120.0
_PAUSE_S = 0.005
_AT_ONCE = 10_000
_ROUND = 1000
"""Records between two looks at the clock."""


class BenchmarkFailed(Exception):
    """A record was refused, or none came for two minutes."""


def measure(
    rig: Rig, *, sizes: tuple[int, ...], seconds: float, latency_per_s: int
) -> Iterator[Figure]:
    """Produce and consume records of each size; then the latency from end to end of
    ``latency_per_s`` records each second."""
    servers = ",".join(rig.state.addresses("kafka"))
    for size in sizes:
        topic = f"kafka-{size}"
        rig.paceline("topic", "create", topic, "--partitions", str(PARTITIONS))
        before = cpu.sample(rig)
        figure, count = _produce(servers, topic, size, seconds)
        figure.details.update(cpu.a_record(before, rig, count))
        yield figure
        before = cpu.sample(rig)
        figure = _consume(servers, topic, size, count)
        figure.details.update(cpu.a_record(before, rig, count))
        yield figure
    yield _latency(rig, servers, latency_per_s, seconds)


def producer(servers: str, **settings: object) -> tuple[Producer, Callable[[object, object], None]]:
    """An idempotent producer, and what to give each record as ``on_delivery``: it raises
    BenchmarkFailed for a record that was not stored."""

    def told(error: object, _message: object) -> None:
        if error is not None:
            raise BenchmarkFailed(str(error))

    made = Producer({"bootstrap.servers": servers, "enable.idempotence": True, **settings})
    return made, told


@contextmanager
def reader(servers: str, topic: str, partitions: int, **settings: object) -> Iterator[Consumer]:
    """A consumer of all of a topic, from its start, without a group's work."""
    made = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 10,
            **settings,
        }
    )
    made.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    try:
        yield made
    finally:
        made.close()


def received(consumer: Consumer, count: int, *, at_once: int = _AT_ONCE) -> Iterator[list[Message]]:
    """The next ``count`` messages, ``at_once`` together: librdkafka waits until it has so many, or
    half a second. Raises BenchmarkFailed."""
    last = time.monotonic()
    while count > 0:
        found = consumer.consume(min(count, at_once), 0.5)
        errors = [error for each in found if (error := each.error()) is not None]
        fatal = [each for each in errors if each.code() != KafkaError._PARTITION_EOF]
        if fatal or time.monotonic() - last > _HANG_S:
            raise BenchmarkFailed(str(fatal or f"{count} records do not come"))
        if found:
            last = time.monotonic()
            count -= len(found)
            yield found


def _produce(servers: str, topic: str, size: int, seconds: float) -> tuple[Figure, int]:
    client, told = producer(
        servers,
        **{"linger.ms": 5, "batch.size": 1_000_000, "queue.buffering.max.kbytes": 65536},
    )
    value = bytes(size)
    count = 0
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        for _ in range(_ROUND):
            while True:
                try:
                    client.produce(topic, value, on_delivery=told)
                    break
                except BufferError:
                    client.poll(_PAUSE_S)
        client.poll(0)
        count += _ROUND
    if client.flush(_HANG_S):
        raise BenchmarkFailed(f"{topic}: records are not acknowledged")
    wall_s = time.monotonic() - begin
    name = f"kafka produce, {size} B records, {PARTITIONS} partitions, acks=all"
    return rate(name, count * size, count, wall_s), count


def _consume(servers: str, topic: str, size: int, count: int) -> Figure:
    begin = time.monotonic()
    with reader(servers, topic, PARTITIONS) as consumer:
        for _ in received(consumer, count):
            pass
        wall_s = time.monotonic() - begin
    return rate(f"kafka consume, {size} B records", count * size, count, wall_s)


def _latency(rig: Rig, servers: str, per_s: int, seconds: float) -> Figure:
    """From before the producer is called until the consumer has the record."""
    topic = "kafka-latency"
    rig.paceline("topic", "create", topic, "--partitions", str(PARTITIONS))
    count = int(per_s * seconds)
    took: list[float] = []
    failures: list[BenchmarkFailed] = []
    ready = threading.Event()

    def read() -> None:
        with reader(servers, topic, PARTITIONS, **{"fetch.wait.max.ms": 100}) as consumer:
            consumer.poll(0.5)
            ready.set()
            try:
                for found in received(consumer, count, at_once=1):
                    now = time.monotonic_ns()
                    took.extend((now - int(each.value() or 0)) / 1e9 for each in found)
            except BenchmarkFailed as failure:
                failures.append(failure)

    thread = threading.Thread(target=read)
    thread.start()
    ready.wait(_HANG_S)
    client, told = producer(servers, **{"linger.ms": 0})
    begin = time.monotonic()
    for number in range(count):
        due = begin + number / per_s
        while (left_s := due - time.monotonic()) > 0:
            client.poll(left_s)
        client.produce(topic, b"%d" % time.monotonic_ns(), on_delivery=told)
    client.flush(_HANG_S)
    thread.join(_HANG_S)
    if failures or len(took) < count:
        raise BenchmarkFailed(str(failures or f"{count - len(took)} records did not come"))
    name = f"kafka end to end at {per_s} records/s, acks=all"
    return latency(name, took, time.monotonic() - begin)
