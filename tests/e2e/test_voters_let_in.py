"""A lone voter lets two others vote; then its disk goes back to before (controller/RAFT 2.10)."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, CommandFailed, wait_until
from tests.e2e.foreground import Runner, config_of_another, listeners_of

SPARE = ("--nodes", "3", "--any-port")
"""Its ports are taken."""
VALUES = [f"value {number}" for number in range(50)]


def _quorum(cluster: Cluster, bootstrap: str) -> dict[str, Any]:
    with suppress(CommandFailed):
        found: dict[str, Any] = cluster.json("quorum", "describe", "--bootstrap", bootstrap)
        return found
    return {"voters": [], "leader": None}


def _kill_all(runner: Runner) -> None:
    for process in runner.processes:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_the_voters_since_go_on_without_it(runner: Runner, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    made = cluster.json("cluster", "init", "--dir", str(cluster.dir), "--nodes", "1", "--any-port")
    first = made["nodes"][0]
    directory, bootstrap = Path(first["dir"]), first["listeners"]["native"]
    runner.run(directory / "node.toml")
    cluster.run("health", "--bootstrap", bootstrap, "--exit-when-healthy")
    _kill_all(runner)
    shutil.copytree(directory, tmp_path / "copy")

    runner.run(directory / "node.toml")
    configs = [directory / "node.toml"]
    spare = cluster.json("cluster", "init", "--dir", str(tmp_path / "spare"), *SPARE)
    for node in (1, 2):
        ports = listeners_of(spare["nodes"][node])
        folder = tmp_path / f"joiner-{node}"
        config = config_of_another(first, node, folder, listeners=ports)
        cluster.run("node", "format", "--config", str(config), "--cluster-id", made["cluster_id"])
        runner.run(config)
        configs.append(config)
    wait_until("three vote", lambda: _quorum(cluster, bootstrap)["voters"] == [0, 1, 2])
    words = ("--replication-factor", "3", "--config", "min.insync.replicas=2")
    cluster.run("topic", "create", "t", "--bootstrap", bootstrap, *words)
    cluster.run("produce", "t", "--bootstrap", bootstrap, stdin="\n".join(VALUES).encode())
    nodes = cluster.json("status", "--bootstrap", bootstrap)["nodes"]
    others = {each["id"]: each["listeners"]["native"] for each in nodes}
    _kill_all(runner)
    shutil.rmtree(directory)
    (tmp_path / "copy").rename(directory)

    runner.run(configs[0])
    wait_until("it leads alone", lambda: _quorum(cluster, bootstrap)["leader"] == 0)
    for config in configs[1:]:
        runner.run(config)
    wait_until("the others lead", lambda: _quorum(cluster, others[1])["leader"] in (1, 2))
    read = cluster.run("consume", "t", "--bootstrap", others[1], "--from", "start", "--exit-at-end")
    assert read.stdout.decode().split("\n")[:-1] == VALUES

    def told() -> str:
        found = cluster.run("health", "--bootstrap", others[1], "--output", "json", exit_code=None)
        return " ".join(json.loads(found.stdout)["reasons"])

    wait_until("health names it", lambda: "older copy" in told())
