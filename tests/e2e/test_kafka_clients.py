"""Kafka clients as they are published, against three nodes: kafka-python, librdkafka, aiokafka.

Each producer writes counters by key; what it was told is stored must be read once and in order by
another client, also when the leader and the coordinator are killed meanwhile
(wire/kafka/DESIGN 2).
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from tests.e2e.cluster import HANG_S, Cluster, wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = 7
Read = Iterable[tuple[bytes, bytes]]


def bootstrap(cluster: Cluster) -> str:
    addresses = [cluster.address(node, "kafka") for node in range(3)]
    return ",".join(f"{host}:{port}" for host, port in addresses)


def make_topic(cluster: Cluster, name: str, partitions: int = 3) -> None:
    cluster.run("topic", "create", name, "--partitions", str(partitions))


def counters(read: Read) -> dict[bytes, list[int]]:
    """Values by key, in the order read."""
    found: dict[bytes, list[int]] = defaultdict(list)
    for key, value in read:
        found[key].append(int(value.split(b"-")[0]))
    return dict(found)


def expected(count: int) -> dict[bytes, list[int]]:
    return {b"k%d" % key: list(range(key, count, KEYS)) for key in range(KEYS)}


# --- librdkafka -----------------------------------------------------------------------------------


def rdkafka_produce(producer: confluent_kafka.Producer, topic: str, numbers: Iterable[int]) -> None:
    """Produce counters; every one must be acknowledged."""
    refused: list[object] = []

    def told(error: object, _message: object) -> None:
        if error is not None:
            refused.append(error)

    for number in numbers:
        producer.produce(
            topic, key=b"k%d" % (number % KEYS), value=b"%d" % number, on_delivery=told
        )
        producer.poll(0)
    assert producer.flush(HANG_S) == 0
    assert refused == []


def rdkafka_read(consumer: confluent_kafka.Consumer, count: int) -> Iterator[tuple[bytes, bytes]]:
    deadline = time.monotonic() + HANG_S
    while count:
        assert time.monotonic() < deadline, f"{count} records are missing"
        for message in consumer.consume(count, 0.5):
            assert message.error() is None, message.error()
            yield message.key(), message.value()
            count -= 1


def rdkafka_consumer(cluster: Cluster, group: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap(cluster),
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def test_librdkafka(shared_cluster: Cluster) -> None:
    make_topic(shared_cluster, "rd")
    per_codec = 500
    for index, codec in enumerate(CODECS):
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap(shared_cluster),
                "enable.idempotence": True,
                "compression.type": codec,
            }
        )
        start = index * per_codec
        rdkafka_produce(producer, "rd", range(start, start + per_codec))
    count = per_codec * len(CODECS)
    consumer = rdkafka_consumer(shared_cluster, "rd-group")
    consumer.subscribe(["rd"])
    assert counters(rdkafka_read(consumer, count)) == expected(count)
    committed = consumer.commit(asynchronous=False)
    assert sum(each.offset for each in committed) == count
    consumer.close()
    again = rdkafka_consumer(shared_cluster, "rd-group")
    again.subscribe(["rd"])
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap(shared_cluster)})
    rdkafka_produce(producer, "rd", [count])
    assert list(rdkafka_read(again, 1)) == [(b"k%d" % (count % KEYS), b"%d" % count)]
    ends = [again.get_watermark_offsets(confluent_kafka.TopicPartition("rd", n)) for n in range(3)]
    assert sum(high for _, high in ends) == count + 1
    again.close()


def test_administration_with_librdkafka(shared_cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap(shared_cluster)})
    admin.create_topics([NewTopic("adm", 2, 3, config={"retention.ms": "60000"})])["adm"].result()
    [found] = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "adm")]).values()
    assert found.result()["retention.ms"].value == "60000"
    wait_until(
        "the topic has leaders",
        lambda: all(
            part.leader >= 0 for part in admin.list_topics("adm").topics["adm"].partitions.values()
        ),
    )
    admin.create_partitions([NewPartitions("adm", 4)])["adm"].result()
    wait_until(
        "every node that is asked knows them",
        lambda: len(admin.list_topics("adm").topics["adm"].partitions) == 4,
    )
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap(shared_cluster)})
    for time_ms in (2000, 5000, 3000, 4000):
        producer.produce("adm", b"v", partition=0, timestamp=time_ms)
        producer.flush(HANG_S)
    at = confluent_kafka.TopicPartition("adm", 0)
    for spec, offset in (
        (OffsetSpec.latest(), 4),
        (OffsetSpec.max_timestamp(), 1),
        (OffsetSpec.for_timestamp(2500), 1),
    ):
        assert admin.list_offsets({at: spec})[at].result().offset == offset
    before = confluent_kafka.TopicPartition("adm", 0, 2)
    assert admin.delete_records([before])[before].result().low_watermark == 2
    assert admin.list_offsets({at: OffsetSpec.earliest()})[at].result().offset == 2
    with pytest.raises(confluent_kafka.KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic("adm", 2, 3)])["adm"].result()
    admin.delete_topics(["adm"])["adm"].result()
    wait_until("it is gone everywhere", lambda: "adm" not in admin.list_topics().topics)


# --- kafka-python, aiokafka -----------------------------------------------------------------------


def test_kafka_python_writes_and_a_group_of_two_reads(shared_cluster: Cluster) -> None:
    make_topic(shared_cluster, "py")
    servers = bootstrap(shared_cluster)
    count, per_codec = 2000, 2000 // len(CODECS)
    for index, codec in enumerate(CODECS):
        producer = kafka.KafkaProducer(
            bootstrap_servers=servers,
            acks="all",
            compression_type=None if codec == "none" else codec,
        )
        sent = [
            producer.send("py", key=b"k%d" % (number % KEYS), value=b"%d" % number)
            for number in range(index * per_codec, (index + 1) * per_codec)
        ]
        producer.flush()
        assert sum(1 for each in sent if each.get().offset >= 0) == per_codec
        producer.close()
    members = [
        kafka.KafkaConsumer(
            "py", bootstrap_servers=servers, group_id="py-group", auto_offset_reset="earliest"
        )
        for _ in range(2)
    ]
    read: list[tuple[bytes, bytes]] = []
    deadline = time.monotonic() + HANG_S
    owned: list[set[object]] = []
    # A member goes by its former share until it has heard of the new one.
    with ThreadPoolExecutor(len(members)) as pool:
        while not (len(set(read)) == count and all(owned) and owned[0].isdisjoint(owned[1])):
            assert time.monotonic() < deadline, f"{len(set(read))} of {count} records, {owned}"
            # At once: on a busy machine one that has to wait for the other's turn joins for ever.
            for found in pool.map(lambda member: member.poll(timeout_ms=1000), members):
                for records in found.values():
                    read += [(each.key, each.value) for each in records]
            owned = [member.assignment() for member in members]
    assert len(owned[0] | owned[1]) == 3
    for member in members:
        member.close()


def test_aiokafka(shared_cluster: Cluster) -> None:
    make_topic(shared_cluster, "aio")
    servers = bootstrap(shared_cluster)
    count = 1000

    async def write_and_read() -> list[tuple[bytes, bytes]]:
        per_codec = count // len(CODECS)
        for index, codec in enumerate(CODECS):
            async with aiokafka.AIOKafkaProducer(
                bootstrap_servers=servers,
                enable_idempotence=True,
                compression_type=None if codec == "none" else codec,
            ) as producer:
                for number in range(index * per_codec, (index + 1) * per_codec):
                    await producer.send("aio", b"%d" % number, key=b"k%d" % (number % KEYS))
        read: list[tuple[bytes, bytes]] = []
        async with aiokafka.AIOKafkaConsumer(
            "aio", bootstrap_servers=servers, group_id="aio-group", auto_offset_reset="earliest"
        ) as consumer:
            while len(read) < count:
                message = await asyncio.wait_for(consumer.getone(), HANG_S)
                read.append((message.key, message.value))
            await consumer.commit()
        return read

    assert counters(asyncio.run(write_and_read())) == expected(count)


# --- kills ----------------------------------------------------------------------------------------


class PythonReader:
    """A kafka-python consumer of a group, in a process of its own."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._output = cluster.base / f"{topic}-python.out"
        script = Path(__file__).with_name("kafka_python_reader.py")
        with self._output.open("wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, str(script), bootstrap(cluster), topic, f"{topic}-python"],
                stdin=subprocess.PIPE,
                stdout=out,
                env=cluster.env,
            )

    @property
    def read(self) -> list[tuple[bytes, bytes]]:
        """Keys and values in the order read, whole lines only."""
        assert self._process.poll() is None, f"the reader ended with {self._process.returncode}"
        lines = self._output.read_bytes().rpartition(b"\n")[0].splitlines()
        return [(key, value) for key, _, value in (line.partition(b" ") for line in lines)]

    def stop(self) -> None:
        self._process.communicate(timeout=HANG_S)
        assert self._process.returncode == 0


def without_repeats(read: Read) -> list[tuple[bytes, bytes]]:
    """What was read for the first time. A group may read again what it had not committed; what it
    left out meanwhile would show as a gap."""
    newest: dict[bytes, int] = {}
    fresh = []
    for key, value in read:
        number = int(value)
        if number > newest.get(key, -1):
            newest[key] = number
            fresh.append((key, value))
    return fresh


def test_idempotent_writes_are_stored_once_though_leader_and_coordinator_die(
    cluster: Cluster,
) -> None:
    make_topic(cluster, "kill")
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap(cluster),
            "enable.idempotence": True,
            "linger.ms": 1,
            "message.timeout.ms": 60_000,
        }
    )
    epochs = [part["leader_epoch"] for part in cluster.describe("kill")]
    consumer = rdkafka_consumer(cluster, "kill-group")
    consumer.subscribe(["kill"])
    python = PythonReader(cluster, "kill")
    read = []
    step = 1500
    kills = ("leader-of:kill/0", coordinator_of(cluster, "kill-python"))
    for index, victim in enumerate((*kills, None)):
        numbers = range(index * step, (index + 1) * step)
        rdkafka_produce(producer, "kill", numbers[: step // 2])
        if victim is not None:
            node = cluster.json("node", "kill", victim)["node"]
        rdkafka_produce(producer, "kill", numbers[step // 2 :])
        read += list(rdkafka_read(consumer, step))
        if victim is not None:
            cluster.run("node", "restart", str(node))
            cluster.run("health", "--exit-when-healthy", "--timeout", str(HANG_S))
    count = (len(kills) + 1) * step
    assert counters(read) == expected(count)
    wait_until("kafka-python has read all", lambda: len(set(python.read)) >= count)
    assert counters(without_repeats(python.read)) == expected(count)
    python.stop()
    assert [part["leader_epoch"] for part in cluster.describe("kill")] != epochs
    consumer.close()


def coordinator_of(cluster: Cluster, group: str) -> str:
    """Whom to kill: the node that coordinates a group."""
    admin = AdminClient({"bootstrap.servers": bootstrap(cluster)})
    found = admin.describe_consumer_groups([group])[group].result()
    return str(found.coordinator.id)
