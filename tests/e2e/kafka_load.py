"""A writer from librdkafka that runs beside what an operator does."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from pathlib import Path

import confluent_kafka

from tests.e2e.cluster import HANG_S, Cluster

KEYS = 8
PAUSE_S = 0.002


class KafkaLoad:
    """Counters by key from librdkafka, idempotent; each must be acknowledged in the end."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._bootstrap = ",".join(node["listeners"]["kafka"] for node in cluster.state()["nodes"])
        self._topic = topic
        self._stop = threading.Event()
        self._count = 0
        self._refused: list[str] = []
        self._acked: dict[tuple[int, int], bytes] = {}
        self._thread = threading.Thread(target=self._produce)

    def __enter__(self) -> KafkaLoad:
        self._thread.start()
        return self

    def __exit__(self, *_details: object) -> None:
        self._stop.set()
        self._thread.join(HANG_S)

    def _produce(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": int(HANG_S * 1000),
            }
        )

        def told(error: object, message: confluent_kafka.Message) -> None:
            if error is not None:
                self._refused.append(str(error))
                return
            self._acked[message.partition(), message.offset()] = message.value()

        while not self._stop.wait(PAUSE_S):
            value = b"%d" % self._count
            producer.produce(
                self._topic, key=b"k%d" % (self._count % KEYS), value=value, on_delivery=told
            )
            self._count += 1
            producer.poll(0)
        producer.flush(HANG_S)

    def require_complete(self, cluster: Cluster, read: Path) -> int:
        """Every record was acknowledged, and is read where it was, once, in order by key."""
        assert self._refused == []
        assert len(self._acked) == self._count > 0
        consumed = cluster.run("consume", self._topic, "--exit-at-end", "--output", "json")
        read.write_bytes(consumed.stdout)
        found = {}
        by_key: dict[str, list[int]] = defaultdict(list)
        for line in consumed.stdout.splitlines():
            record = json.loads(line)
            found[record["partition"], record["offset"]] = record["value"].encode()
            by_key[record["key"]].append(int(record["value"]))
        assert found == self._acked
        assert by_key == {f"k{key}": list(range(key, self._count, KEYS)) for key in range(KEYS)}
        return self._count
