"""Three nodes become five, and then four, while clients write with ``acks=all``."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.kafka_load import KafkaLoad
from tests.e2e.load import Load


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
