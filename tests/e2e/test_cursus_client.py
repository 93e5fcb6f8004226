"""The published Cursus client for Python (PyPI ``cursus-client``), unmodified, against real nodes.

It picks leaders once, when it starts, and goes on with those addresses: so every node has to take
writes for every partition. Each test names its acks and its idempotence.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from cursus import (
    Acks,
    Consumer,
    ConsumerConfig,
    ConsumerMode,
    Event,
    EventStore,
    Producer,
    ProducerConfig,
)
from cursus.errors import ConnectionError  # noqa: A004  the client's own name
from cursus.types import Message

from tests.e2e.cluster import Cluster, wait_until
from tests.e2e.cursus import ask, brokers, elect, fields, log_end

COUNT = 600


class Reading:
    """A consumer in a thread of its own; ``seen`` counts payloads as they come.

    A consumer of this client ends with an error when a commit finds its coordinator dead: as any
    program has to, this starts another.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self.seen: Counter[str] = Counter()
        self._config = config
        self._ends = threading.Event()
        self.consumer = Consumer(config)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                self.consumer.start(self._take)
            except ConnectionError:
                self.consumer.close()
                self.consumer = Consumer(self._config)

    def _take(self, message: Message) -> None:
        self.seen[message.payload] += 1

    def __enter__(self) -> Reading:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self.consumer.close()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the consumer hangs"


@contextmanager
def producing(config: ProducerConfig) -> Iterator[Producer]:
    producer = Producer(config)
    try:
        yield producer
    finally:
        producer.close()


def send_all(producer: Producer, payloads: list[str]) -> None:
    for payload in payloads:
        producer.send(payload, key=payload)
    producer.flush()


PRODUCERS: dict[str, dict[str, Any]] = {
    "acks-0": {"acks": Acks.NONE},
    "acks-1": {"acks": Acks.ONE},
    "acks-all": {"acks": Acks.ALL},
    "acks-1-idempotent": {"acks": Acks.ONE, "idempotent": True},
    "acks-all-idempotent-gzip": {"acks": Acks.ALL, "idempotent": True, "compression_type": "gzip"},
}


def test_producers_and_both_kinds_of_consumers(shared_cluster: Cluster) -> None:
    """Every mode of the producer into one topic each; a polling or a streaming consumer reads."""
    for number, (name, options) in enumerate(PRODUCERS.items()):
        topic = f"modes-{name}"
        mode = ConsumerMode.POLLING if number % 2 else ConsumerMode.STREAMING
        config = ProducerConfig(
            topic, brokers(shared_cluster), partitions=2, linger_ms=20, batch_size=100, **options
        )
        sent = [f"{name}-{each}" for each in range(COUNT)]
        reader = ConsumerConfig(topic, brokers(shared_cluster), group_id=f"g-{name}", mode=mode)
        with producing(config) as producer:
            send_all(producer, sent)
            assert producer.unique_ack_count == COUNT, name
        with Reading(reader) as reading:
            wait_until(f"{name}: all is read", partial(_holds, reading.seen, COUNT))
        assert set(reading.seen) == set(sent)
        if "idempotent" in name:
            assert set(reading.seen.values()) == {1}


def _holds(seen: Counter[str], count: int) -> bool:
    return len(seen) == count


def test_a_group_settles_and_its_members_share(shared_cluster: Cluster) -> None:
    """acks=1, not idempotent. Three members come and one goes; generations stop growing, and all is
    read by somebody."""
    topic, group = "shared", "team"
    addresses = brokers(shared_cluster)
    ask(addresses[0], f"CREATE topic={topic} partitions=6")

    def config() -> ConsumerConfig:
        return ConsumerConfig(
            topic, addresses, group_id=group, heartbeat_interval_ms=500, mode=ConsumerMode.STREAMING
        )

    def status() -> str:
        found = fields(ask(addresses[0], f"FIND_COORDINATOR group={group}"))
        return ask(f"{found['host']}:{found['port']}", f"GROUP_STATUS group={group}")

    def settled(members: int) -> bool:
        before = status()
        time.sleep(1.5)  # three heartbeats: who has to join again has done so
        after = status()
        word = f'"member_count":{members},'
        return word in after and word in before and _generation(before) == _generation(after)

    with Reading(config()) as first, Reading(config()) as second:
        with Reading(config()) as third:
            wait_until("three members settle", lambda: settled(3))
            assert _generation(status()) <= 6
        wait_until("two members settle", lambda: settled(2))
        produced = ProducerConfig(topic, addresses, partitions=6, linger_ms=20)
        sent = [f"m-{each}" for each in range(COUNT)]
        with producing(produced) as producer:
            send_all(producer, sent)
        wait_until("all is read", lambda: len({*first.seen, *second.seen}) >= COUNT)
    assert set(first.seen) | set(second.seen) == set(sent)
    assert first.seen
    assert second.seen
    assert not third.seen


def _generation(status: str) -> int:
    return int(status.partition('"generation":')[2].partition(",")[0])


def test_the_event_store(shared_cluster: Cluster) -> None:
    """Through a node that leads some of the partitions only: appends are sent on, reads follow the
    leader."""
    with EventStore(brokers(shared_cluster), "ledger", "shop") as store:
        store.create_topic(6)
        for key in ("a", "b", "c", "d"):
            assert store.stream_version(key) == 0
            for version in (1, 2, 3):
                event = Event("Paid", f"{key}-{version}", schema_version=2, metadata='{"by": "me"}')
                assert store.append(key, version, event).version == version
            with pytest.raises(ConnectionError, match="version_conflict current=3 expected=3"):
                store.append(key, 3, Event("Paid", "late"))
            assert store.read_snapshot(key) is None
            store.save_snapshot(key, 2, f"{key} up to 2")
            snapshot = store.read_snapshot(key)
            assert snapshot is not None
            assert (snapshot.version, snapshot.payload) == (2, f"{key} up to 2")
            stream = store.read_stream(key)
            assert stream.snapshot == snapshot
            [last] = stream.events
            assert (last.version, last.type, last.payload) == (3, "Paid", f"{key}-3")
            assert (last.schema_version, last.metadata) == (2, '{"by": "me"}')
            assert [each.version for each in store.read_stream(key, 3).events] == [3]


def _at(addresses: list[str], group: str, node: int) -> bool:
    """Whether a node coordinates a group."""
    found = fields(ask(addresses[0], f"FIND_COORDINATOR group={group}"))
    return found["coordinator_id"] == str(node)


@pytest.mark.timeout(240)
def test_a_leader_is_killed(cluster: Cluster) -> None:
    """acks=-1, idempotent. The leader of both partitions, which coordinates the readers' group too,
    dies by SIGKILL while the producer writes and the consumer streams: what was acknowledged is
    read, and nothing lies in the log twice."""
    topic, addresses = "orders", brokers(cluster)
    ask(addresses[0], f"CREATE topic={topic} partitions=2")
    metadata = f"METADATA topic={topic}"
    wait_until("leaders", lambda: "," in fields(ask(addresses[0], metadata))["leaders"])
    config = ProducerConfig(
        topic, addresses, partitions=2, acks=Acks.ALL, idempotent=True, linger_ms=5, batch_size=20
    )
    chosen = set(fields(ask(addresses[0], metadata))["leaders"].split(","))
    victim = next(node for node in range(3) if addresses[node] not in chosen)
    group = next(name for name in map("g-{}".format, range(200)) if _at(addresses, name, victim))
    reader = ConsumerConfig(topic, addresses, group_id=group, mode=ConsumerMode.STREAMING)
    total = 3000
    with producing(config) as producer, Reading(reader) as reading:
        for partition in range(2):
            elect(addresses[0], topic, partition, victim)
        for number in range(total):
            producer.send(f"o-{number}", key=f"k-{number}")
            if number == total // 3:
                wait_until("writing", lambda: producer.unique_ack_count > 0)
                acked_before = producer.unique_ack_count
                cluster.run("node", "kill", str(victim))
            if number % 50 == 0:
                time.sleep(0.02)
        wait_until("all is acknowledged", lambda: producer.unique_ack_count == total)
        assert 0 < acked_before < total
        wait_until("all is read", lambda: len(reading.seen) == total)
    left = [address for node, address in enumerate(addresses) if node != victim]
    assert log_end(left[0], topic) == total
    epochs = fields(ask(left[0], metadata))["epochs"].split(",")
    assert all(int(epoch) > 0 for epoch in epochs)
