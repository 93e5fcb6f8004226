"""All nodes are restarted one at a time, while clients write with ``acks=all``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.kafka_load import KafkaLoad
from tests.e2e.load import Load


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_rolling_restart_loses_nothing_and_refuses_nobody(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = make_cluster("--nodes", "3", "--timeout", "300")
    there = ("--dir", str(cluster.dir))
    before = {node["id"]: node["pid"] for node in cluster.state()["nodes"]}
    for topic in ("native", "kafka"):
        cluster.run("topic", "create", topic, "--partitions", "4", *there)
    with (
        Load(cluster, "native", tmp_path, *there) as native,
        KafkaLoad(cluster, "kafka") as foreign,
    ):
        native.more()
        words = ("rolling-restart", "--timeout", "300", *there, "--output", "json")
        done = cluster.run(*words, timeout_s=600)
        native.more()
    nodes = json.loads(done.stdout)["nodes"]
    assert [(each["node"], each["state"]) for each in nodes] == [(n, "running") for n in range(3)]
    assert all(each["pid"] != before[each["node"]] for each in nodes)
    assert done.stderr.decode().count("back in sync") == 3
    assert native.require_complete() > 0
    assert foreign.require_complete(cluster, tmp_path / "read") > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_rolling_restart_says_what_keeps_it_and_how_to_go_on(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster("--nodes", "3", "--timeout", "300")

    def run(*words: str, exit_code: int = 0) -> Any:
        told = ["rolling-restart", *words, "--dir", str(cluster.dir), "--output", "json"]
        done = cluster.run(*told, exit_code=exit_code, timeout_s=300)
        text = done.stdout or done.stderr.splitlines()[-1]
        return json.loads(text)

    assert [each["breaks"] for each in run("--dry-run")["nodes"]] == [[], [], []]
    there = ("--dir", str(cluster.dir))
    cluster.run(
        "topic", "create", "alone", "--partitions", "1", "--replication-factor", "1", *there
    )
    [holder] = cluster.json("topic", "describe", "alone", *there)["partitions"][0]["replicas"]
    dry = {each["node"]: each["breaks"] for each in run("--dry-run", exit_code=69)["nodes"]}
    assert [node for node in dry if dry[node]] == [holder]
    assert "alone/0" in dry[holder][0]

    refused = run(str(holder), exit_code=69)["error"]
    assert refused["message"].startswith(f"stopped at node {holder}: 1 partition cannot be written")
    assert refused["message"].endswith(f"restarted: none; left: {holder}")
    assert f"'paceline rolling-restart {holder} --dir {cluster.dir}'" in refused["hint"]
    assert run(str(holder), "--force")["nodes"][0]["state"] == "running"

    other, third = (node for node in range(3) if node != holder)
    cluster.run("node", "stop", str(other), *there)
    late = run(str(third), "--timeout", "1", exit_code=75)["error"]
    assert f"stopped at node {third}: it still may not stop" in late["message"]
    # What is down is started first, and then the one that waited for it may stop.
    assert [each["state"] for each in run(str(third), str(other))["nodes"]] == ["running"] * 2

    unknown = run("9", exit_code=65)["error"]
    assert "there is no node 9" in unknown["message"]
