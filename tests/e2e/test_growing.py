"""Three nodes become five, and then four, while clients write with ``acks=all``."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from tests.e2e.cluster import HANG_S, Cluster
from tests.e2e.load import Load

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


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_cluster_grows_and_shrinks_under_load(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = make_cluster("--nodes", "3", "--timeout", "300")
    there = ("--dir", str(cluster.dir))

    def run(*words: str) -> Any:
        done = cluster.run(*words, *there, "--output", "json", timeout_s=600)
        return json.loads(done.stdout)

    def replicas() -> dict[int, int]:
        """How many replicas of the two topics each node has."""
        count: dict[int, int] = defaultdict(int)
        for topic in ("native", "kafka"):
            for each in run("topic", "describe", topic)["partitions"]:
                assert len(each["replicas"]) == 3
                for node in each["replicas"]:
                    count[node] += 1
        return count

    for topic in ("native", "kafka"):
        run("topic", "create", topic, "--partitions", "5", "--replication-factor", "3")
    with (
        Load(cluster, "native", tmp_path, *there) as native,
        KafkaLoad(cluster, "kafka") as foreign,
    ):
        native.more()
        status = run("up", "--nodes", "5", "--detach", "--timeout", "300")
        assert [node["id"] for node in status["nodes"] if node["state"] == "running"] == [*range(5)]
        assert run("quorum", "describe")["voters"] == [0, 1, 2]
        assert set(replicas()) == {0, 1, 2}, "nothing moves by itself"
        native.more()

        plan = tmp_path / "plan.json"
        run("partition", "move", "plan", "--file", str(plan))
        run("partition", "move", "execute", str(plan))
        assert set(replicas()) == set(range(5))
        native.more()

        done = run("node", "decommission", "0", "--yes")
        assert (done["removed"], done["new_voter"]) == (True, 3)
        assert set(replicas()) == {1, 2, 3, 4}
        native.more()
    run("health", "--exit-when-healthy")
    assert [node["id"] for node in run("status")["nodes"]] == [1, 2, 3, 4]
    assert run("quorum", "describe")["voters"] == [1, 2, 3]
    assert native.require_complete() > 0
    assert foreign.require_complete(cluster, tmp_path / "read") > 0

    cluster.run("down", *there)
    verdict = run("log", "verify")
    logs = [each for each in verdict["logs"] if each["topic"] in ("native", "kafka")]
    assert (verdict["ok"], verdict["findings"], len(logs)) == (True, [], 30)
