"""Nodes that something else starts: prepared directories, ``node run``, one more node joining."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.e2e.cluster import Cluster, wait_until
from tests.e2e.foreground import Runner, config_of_another


def test_prepared_nodes_run_and_another_joins(runner: Runner, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    made = cluster.json("cluster", "init", "--dir", str(cluster.dir), "--nodes", "3", "--any-port")
    for node in made["nodes"]:
        runner.run(Path(node["dir"]) / "node.toml")
    bootstrap = made["nodes"][0]["listeners"]["native"]
    cluster.run("health", "--bootstrap", bootstrap, "--exit-when-healthy")
    cluster.run("produce", "t", "--bootstrap", bootstrap, stdin=b"1\n2\n")

    config = config_of_another(made["nodes"][2], 3, tmp_path / "joiner")
    cluster.run("node", "format", "--config", str(config), exit_code=69)
    cluster.run("node", "format", "--config", str(config), "--cluster-id", made["cluster_id"])
    joiner = runner.run(config)

    def has_joined() -> bool:
        status = cluster.json("status", "--bootstrap", bootstrap)
        return [node["id"] for node in status["nodes"] if node["state"] == "running"] == [
            0,
            1,
            2,
            3,
        ]

    wait_until("the fourth node", has_joined)
    cluster.run("topic", "create", "wide", "--replication-factor", "4", "--bootstrap", bootstrap)

    cluster.run("node", "remove", "3", "--yes", "--bootstrap", bootstrap, exit_code=65)
    joiner.send_signal(signal.SIGTERM)
    assert joiner.wait(60) == 0
    removed = cluster.json("node", "remove", "3", "--yes", "--bootstrap", bootstrap)
    assert (removed["node"], removed["action"]) == (3, "remove")
    status = cluster.json("status", "--bootstrap", bootstrap)
    assert [node["id"] for node in status["nodes"]] == [0, 1, 2]
    assert joiner.stdout is not None
    assert joiner.stdout.read() == b""


def test_bad_configuration_ends_with_78_and_a_sentence(runner: Runner, tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text('[log]\nsegment_bytes = "many"\n')
    process = runner.run(config, "--set", "no.such=1")
    assert process.wait(60) == 78
    said = (tmp_path / "node.log").read_text()
    assert "log.segment_bytes" in said
    assert "no.such" in said
