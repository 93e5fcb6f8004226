"""Nodes that something else starts: prepared directories, ``node run``, one more node joining."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import PACELINE, Cluster, wait_until


class Runner:
    """Starts ``paceline node run`` in the foreground, as a service manager does."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.processes: list[subprocess.Popen[bytes]] = []

    def run(self, config: Path, *options: str) -> subprocess.Popen[bytes]:
        with (config.parent / "node.log").open("ab") as log:
            process = subprocess.Popen(
                [*PACELINE, "node", "run", "--config", str(config), *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._cluster.env,
            )
        self.processes.append(process)
        return process


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    made = Runner(Cluster(tmp_path))
    yield made
    for process in made.processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_prepared_nodes_run_and_another_joins(runner: Runner, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    made = cluster.json("cluster", "init", "--dir", str(cluster.dir), "--nodes", "3", "--any-port")
    for node in made["nodes"]:
        runner.run(Path(node["dir"]) / "node.toml")
    bootstrap = made["nodes"][0]["listeners"]["native"]
    cluster.run("health", "--bootstrap", bootstrap, "--exit-when-healthy")
    cluster.run("produce", "t", "--bootstrap", bootstrap, stdin=b"1\n2\n")

    config = _config_of_a_fourth(made["nodes"][2], tmp_path / "joiner")
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


def _config_of_a_fourth(third: dict[str, object], folder: Path) -> Path:
    """The third node's configuration with another id, directory and free ports."""
    text = (Path(str(third["dir"])) / "node.toml").read_text()
    secret = Path(str(third["dir"])).parent / "cluster.secret"
    folder.mkdir()
    lines = []
    for line in text.splitlines():
        if line.startswith("listeners"):
            line = 'listeners = ["native://127.0.0.1:0", "peer://127.0.0.1:0"]'
        elif line.startswith("id ="):
            line = "id = 3"
        elif line.startswith("data_dir"):
            line = f"data_dir = {json.dumps(str(folder))}"
        elif line.startswith("[cluster]"):
            line = f"[cluster]\nsecret_file = {json.dumps(str(secret))}"
        lines.append(line)
    config = folder / "node.toml"
    config.write_text("\n".join(lines) + "\n")
    return config


def test_bad_configuration_ends_with_78_and_a_sentence(runner: Runner, tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text('[log]\nsegment_bytes = "many"\n')
    process = runner.run(config, "--set", "no.such=1")
    assert process.wait(60) == 78
    said = (tmp_path / "node.log").read_text()
    assert "log.segment_bytes" in said
    assert "no.such" in said
