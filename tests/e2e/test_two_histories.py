"""One node's directory as it was, and a voter that was away, lead without what was committed.

Two of three cannot know what the third has committed with one of them. They go on, and the third
keeps what it has and says why it follows nobody (controller/RAFT 2.6, 2.7).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from paceline_cluster.errors import Exit
from tests.e2e.cluster import Cluster, CommandFailed, wait_until

AGED, WHOLE, AWAY = 0, 1, 2


def _topics(cluster: Cluster) -> set[str]:
    with suppress(CommandFailed):
        return {topic["name"] for topic in cluster.json("topic", "list")["topics"]}
    return set()


def _make(cluster: Cluster, topic: str) -> None:
    words = ("topic", "create", topic, "--partitions", "1", "--replication-factor", "2")
    wait_until(f"{topic} made", lambda: cluster.run(*words, exit_code=None).returncode == 0)


def _start_both(cluster: Cluster, tmp_path: Path, first: int, second: int) -> None:
    """Neither of them serves before the other is there."""
    told = tmp_path / "first.err"
    with cluster.start("node", "restart", str(first), stderr=told) as waiting:
        cluster.run("node", "restart", str(second))
        cluster.wait(waiting, stderr=told)


@pytest.mark.slow
def test_health_says_why_a_node_follows_nobody(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = make_cluster()
    directory = Path(cluster.node(AGED)["dir"])
    copy = tmp_path / "copy"
    cluster.run("node", "kill", str(AWAY))
    cluster.run("node", "kill", str(AGED))
    shutil.copytree(directory, copy)
    cluster.run("node", "restart", str(AGED))
    _make(cluster, "late")
    for node in (AGED, WHOLE):
        cluster.run("node", "kill", str(node))
    shutil.rmtree(directory)
    copy.rename(directory)

    _start_both(cluster, tmp_path, AGED, AWAY)
    _make(cluster, "other")
    assert "late" not in _topics(cluster)

    def told() -> str:
        found = cluster.run("health", "--output", "json", exit_code=Exit.UNAVAILABLE).stdout
        reasons = json.loads(found)["reasons"]
        return " ".join(each for each in reasons if each.startswith(f"node {WHOLE} "))

    with cluster.start("node", "restart", str(WHOLE), stderr=tmp_path / "whole.err") as refuses:
        try:
            wait_until("health says why", lambda: "does not follow" in told())
            said = told()
        finally:
            refuses.terminate()
    assert "force-quorum" in said
    assert "node format --replace" in said


NOTED = 5
"""Entries of the metadata within which one must be the note of what each node holds: they come once
a second, and little else does."""


@pytest.mark.slow
def test_a_copy_that_the_metadata_tell_of_elects_nobody(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """However late the node comes that knows more: what only it has was lost, or all stood."""
    cluster = make_cluster()
    directory = Path(cluster.node(AGED)["dir"])
    copy = tmp_path / "copy"
    cluster.run("node", "suspend", str(AGED))
    shutil.copytree(directory, copy)  # of the process that is registered: no earlier start tells
    cluster.run("node", "resume", str(AGED))

    def end() -> int:
        nodes = cluster.json("quorum", "describe")["nodes"]
        return max(each["commit_offset"] or 0 for each in nodes)

    before = end()
    wait_until("the metadata tell of it", lambda: end() >= before + NOTED)
    cluster.run("node", "kill", str(AWAY))
    _make(cluster, "late")
    cluster.run("produce", "late", "--acks", "all", stdin=b"one\n")
    for node in (AGED, WHOLE):
        cluster.run("node", "kill", str(node))
    shutil.rmtree(directory)
    copy.rename(directory)

    logs = Path(cluster.node(AWAY)["dir"]) / "node.log"
    told = [tmp_path / f"{node}.err" for node in (AGED, AWAY)]
    with (
        cluster.start("node", "restart", str(AGED), stderr=told[0]) as aged,
        cluster.start("node", "restart", str(AWAY), stderr=told[1]) as away,
    ):
        wait_until("it is told", lambda: " held=" in logs.read_text())
        cluster.run("node", "restart", str(WHOLE))
        cluster.wait(away, stderr=told[1])
        cluster.wait(aged, stderr=told[0])
    read = cluster.run("consume", "late", "--from", "start", "--exit-at-end").stdout
    assert read == b"one\n"
