"""A launcher that dies at a bad moment leaves a directory that the next one can use."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline_cluster.processes import find_node
from tests.e2e.cluster import PACELINE, Cluster, wait_until


@pytest.fixture
def stray(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster directory that tests bring up in their own way."""
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.purge()


def _begin(cluster: Cluster) -> subprocess.Popen[bytes]:
    words = ("up", "--any-port", "--nodes", "3", "--dir", str(cluster.dir))
    return subprocess.Popen(
        [*PACELINE, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=cluster.env,
    )


def _killed_at(cluster: Cluster, sign: Path) -> bool:
    """Kill a launcher when this file is there; False if it has come and gone."""
    launcher = _begin(cluster)
    past = cluster.dir / ("cluster.json" if sign.name == ".creating" else "node-2/node.log")
    # A directory is made in some milliseconds.
    wait_until(
        str(sign),
        lambda: sign.exists() or past.exists() or launcher.poll() is not None,
        every_s=0.0005,
    )
    launcher.kill()
    launcher.wait()
    return sign.exists()


@pytest.mark.parametrize("moment", ["half made", "made", "one node started", "all nodes started"])
def test_up_goes_on_where_a_killed_launcher_stopped(stray: Cluster, moment: str) -> None:
    signs = {
        "half made": stray.dir / ".creating",
        "made": stray.dir / "cluster.json",
        "one node started": stray.dir / "node-0" / "node.log",
        "all nodes started": stray.dir / "node-2" / "node.log",
    }
    while not _killed_at(stray, signs[moment]):
        stray.purge()  # the moment was over before it was seen
    stray.run("up", "--detach", "--any-port", "--nodes", "3", "--dir", str(stray.dir))
    state = stray.state()
    for node in state["nodes"]:
        assert find_node(Path(node["dir"]) / "node.toml") == node["pid"]
    stray.run("health", "--exit-when-healthy")
    assert not (stray.dir / ".creating").exists()


def test_recorded_pid_of_another_process_is_left_alone(stray: Cluster) -> None:
    """After a reboot a recorded number may belong to anybody: nobody is signalled."""
    stray.up("--nodes", "1")
    stray.run("down")
    path = stray.dir / "cluster.json"
    state = json.loads(path.read_text())
    state["nodes"][0].update({"pid": os.getpid(), "pid_started": 1})
    path.write_text(json.dumps(state))
    assert stray.json("status")["nodes"][0]["state"] == "stopped"
    stray.run("node", "kill", "0", exit_code=69)
    stray.run("down")
    stray.run("up", "--detach", "--dir", str(stray.dir))


def test_all_that_were_killed_are_started_at_once_and_up_ends_in_sync(stray: Cluster) -> None:
    """Nodes that need each other to serve must not be waited for one by one."""
    words = ("--any-port", "--nodes", "3", "--dir", str(stray.dir))
    stray.run("up", "--detach", *words)
    stray.run("topic", "create", "orders", "--partitions", "2")
    for node in ("0", "1", "2"):
        stray.run("node", "kill", node)
    started = stray.json("node", "restart", "--stopped")["nodes"]
    assert [(each["node"], each["state"]) for each in started] == [
        (node, "running") for node in range(3)
    ]
    assert stray.json("node", "restart", "--stopped") == {"nodes": []}
    for node in ("0", "1", "2"):
        stray.run("node", "kill", node)
    status = stray.json("up", "--detach", *words)
    assert (status["under_replicated_partitions"], status["healthy"]) == (0, True)


def test_a_node_that_does_not_run_says_why_and_what_starts_it(stray: Cluster) -> None:
    """It was "stopped", and why it had ended stood in its log alone."""
    stray.up("--nodes", "3")
    stray.run("node", "kill", "1")
    what_to_do = "start it with 'paceline node restart 1'"
    assert f"node 1 is stopped: {what_to_do}" in stray.json("status")["reasons"]
    lock = stray.dir / "node-1" / "LOCK"
    lock.unlink()
    lock.mkdir()
    stray.run("node", "restart", "1", exit_code=69)
    [said] = [each for each in stray.json("status")["reasons"] if each.startswith("node 1 is st")]
    assert said.startswith(
        "node 1 is stopped (nobody stopped it; its log said last: the data directory failed: "
    )
    assert said.endswith(f"): {what_to_do}")
    assert said in stray.run("status").stdout.decode()
    lock.rmdir()
    stray.run("node", "restart", "1")
    stray.run("health", "--exit-when-healthy")


@pytest.mark.slow
def test_a_stopped_cluster_says_what_starts_it(stray: Cluster) -> None:
    """'node restart' was advised, thrice; a client tried for 5 s, and spoke of refused
    connections."""
    assert stray.up("--nodes", "3")["internal_topics"] == 2
    stray.run("down")
    said = "the cluster is stopped: start it with 'paceline up'"
    assert stray.json("status")["reasons"] == [said]
    health = json.loads(stray.run("health", "--output", "json", exit_code=69).stdout)
    assert [each["what_to_do"] for each in health["checks"]] == ["start it with 'paceline up'"]
    for words in (
        ("topic", "list"),
        ("produce", "orders"),
        ("quorum", "describe"),
        ("node", "kill", "controller"),
        ("segment", "info", "a/b"),
    ):
        told = stray.run(*words, exit_code=69).stderr.decode()
        assert told == f"paceline: the cluster in {stray.dir} is stopped\n'paceline up' starts it\n"
    stray.run("up", "--detach")
    stray.run("topic", "list")


@pytest.mark.slow
def test_a_closed_cluster_is_started_by_who_has_not_logged_in(
    stray: Cluster, tmp_path: Path
) -> None:
    stray.up("--nodes", "1", "--set", "security.super_users=ops")
    password = tmp_path / "password"
    password.write_text("something-long-1\n")
    stray.run("user", "create", "ops", "--password-file", str(password))
    stray.run("down", "--dir", str(stray.dir))
    started = stray.run("up", "--detach", "--dir", str(stray.dir), "--output", "json")
    assert json.loads(started.stdout)["nodes"][0]["state"] == "no-access"
    stray.run("node", "stop", "0")
    stray.run("node", "restart", "0")
    refused = stray.run("health", exit_code=77).stdout.decode()
    assert "PACELINE_CLIENT_USERNAME" in refused
    login = {
        "PACELINE_CLIENT_USERNAME": "ops",
        "PACELINE_CLIENT_PASSWORD_FILE": str(password),
    }
    stray.env.update(login)
    stray.run("health", "--exit-when-healthy")
