"""Transactions with Kafka clients as they are published: librdkafka, kafka-python, aiokafka.

Each client copies numbers from one topic to another, in transactions that carry the offsets of what
was read: however often it begins anew, each number is in the output once for those who read what is
committed. The coordinator of transactions, and a leader, are killed meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import aiokafka
import confluent_kafka
import kafka
from aiokafka.structs import TopicPartition as AioPartition
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PythonPartition

from tests.e2e.cluster import HANG_S, Cluster
from tests.e2e.test_kafka_clients import bootstrap, make_topic, rdkafka_produce

COUNT = 600
BATCH = 100


def committed_values(cluster: Cluster, topic: str, count: int) -> list[int]:
    """What a read_committed consumer sees, until the end of the topic."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap(cluster),
            "group.id": f"{topic}-reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    read: list[int] = []
    ended: set[int] = set()
    deadline = time.monotonic() + HANG_S
    while not (len(read) >= count and ended):
        assert time.monotonic() < deadline, f"{len(read)} of {count}, {ended}"
        message = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is None:
            read.append(int(message.value()))
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            ended.add(message.partition())
        else:
            raise AssertionError(error)
    consumer.close()
    return read


# --- librdkafka -----------------------------------------------------------------------------------


class Copier:
    """Copies in transactions, and begins anew from what is committed when one fails."""

    def __init__(self, cluster: Cluster) -> None:
        self._servers = bootstrap(cluster)
        self._producer = self._fresh()

    def _fresh(self) -> confluent_kafka.Producer:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": "copier",
                "transaction.timeout.ms": 30_000,
                "message.timeout.ms": 30_000,
            }
        )
        producer.init_transactions(HANG_S)
        return producer

    def copy(self, *, until: int) -> None:
        """Go on until the input's offset ``until`` is committed."""
        while (start := self._committed()) < until:
            try:
                self._once(start, min(start + BATCH, until))
            except confluent_kafka.KafkaException as failure:
                error = failure.args[0]
                if error.txn_requires_abort():
                    self._producer.abort_transaction(HANG_S)
                elif not error.retriable():
                    self._producer = self._fresh()

    def _once(self, start: int, end: int) -> None:
        producer = self._producer
        consumer = self._consumer()
        consumer.assign([confluent_kafka.TopicPartition("tx-in", 0, start)])
        producer.begin_transaction()
        copied = 0
        deadline = time.monotonic() + HANG_S
        while copied < end - start:
            assert time.monotonic() < deadline
            for message in consumer.consume(end - start - copied, 0.5):
                assert message.error() is None, message.error()
                producer.produce("tx-out", message.value(), key=message.value())
                copied += 1
        producer.send_offsets_to_transaction(
            [confluent_kafka.TopicPartition("tx-in", 0, end)],
            consumer.consumer_group_metadata(),
            HANG_S,
        )
        producer.commit_transaction(HANG_S)
        consumer.close()

    def abort_one(self, value: int) -> None:
        self._producer.begin_transaction()
        self._producer.produce("tx-out", b"%d" % value)
        self._producer.flush(HANG_S)
        self._producer.abort_transaction(HANG_S)

    def _consumer(self) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "copier-group",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )

    def _committed(self) -> int:
        consumer = self._consumer()
        [found] = consumer.committed([confluent_kafka.TopicPartition("tx-in", 0)], HANG_S)
        consumer.close()
        return max(0, int(found.offset))


def test_exactly_once_though_coordinator_and_leader_die(cluster: Cluster) -> None:
    make_topic(cluster, "tx-in", 1)
    make_topic(cluster, "tx-out", 2)
    plain = confluent_kafka.Producer({"bootstrap.servers": bootstrap(cluster)})
    rdkafka_produce(plain, "tx-in", range(COUNT))
    copier = Copier(cluster)
    victims = ("leader-of:__transactions/0", "leader-of:tx-out/0")
    for index, victim in enumerate((*victims, None)):
        copier.copy(until=(index + 1) * COUNT // 3 - BATCH)
        copier.abort_one(COUNT + index)
        if victim is not None:
            node = cluster.json("node", "kill", victim)["node"]
        copier.copy(until=(index + 1) * COUNT // 3)
        if victim is not None:
            cluster.run("node", "restart", str(node))
            cluster.run("health", "--exit-when-healthy", "--timeout", str(HANG_S))
    assert sorted(committed_values(cluster, "tx-out", COUNT)) == list(range(COUNT))


# --- kafka-python, aiokafka -----------------------------------------------------------------------


def rounds(count: int) -> Iterator[tuple[int, bool]]:
    """Numbers to write, and whether their transaction commits."""
    return ((number, number % 3 != 0) for number in range(count))


COMMITTED = [number for number, commits in rounds(12) if commits]


def test_kafka_python_transactions(shared_cluster: Cluster) -> None:
    make_topic(shared_cluster, "tx-py", 1)
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap(shared_cluster), transactional_id="py-tx"
    )
    producer.init_transactions()
    for number, commits in rounds(12):
        producer.begin_transaction()
        producer.send("tx-py", b"%d" % number)
        offsets = {PythonPartition("tx-py", 0): OffsetAndMetadata(number, "", -1)}
        producer.send_offsets_to_transaction(offsets, "tx-py-group")
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap(shared_cluster),
        group_id="tx-py-group",
        isolation_level="read_committed",
    )
    assert consumer.committed(PythonPartition("tx-py", 0)) == COMMITTED[-1]
    consumer.assign([PythonPartition("tx-py", 0)])
    consumer.seek_to_beginning()
    read: list[int] = []
    deadline = time.monotonic() + HANG_S
    while len(read) < len(COMMITTED):
        assert time.monotonic() < deadline
        for records in consumer.poll(timeout_ms=200).values():
            read += [int(each.value) for each in records]
    consumer.close()
    assert read == COMMITTED


def test_aiokafka_transactions(shared_cluster: Cluster) -> None:
    make_topic(shared_cluster, "tx-aio", 1)
    servers = bootstrap(shared_cluster)

    async def write_and_read() -> tuple[list[int], int]:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers, transactional_id="aio-tx"
        ) as producer:
            for number, commits in rounds(12):
                await producer.begin_transaction()
                await producer.send_and_wait("tx-aio", b"%d" % number)
                offsets = {AioPartition("tx-aio", 0): number}
                await producer.send_offsets_to_transaction(offsets, "tx-aio-group")
                if commits:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
        read = []
        async with aiokafka.AIOKafkaConsumer(
            "tx-aio",
            bootstrap_servers=servers,
            group_id="other",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            while len(read) < len(COMMITTED):
                message = await asyncio.wait_for(consumer.getone(), HANG_S)
                read.append(int(message.value))
        async with aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers, group_id="tx-aio-group"
        ) as group:
            committed = await group.committed(AioPartition("tx-aio", 0))
        return read, committed

    assert asyncio.run(write_and_read()) == (COMMITTED, COMMITTED[-1])
