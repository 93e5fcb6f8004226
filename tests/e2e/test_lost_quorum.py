"""Voters moved by hand, then most of them lost for good: one cluster goes through it all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.e2e.cluster import Cluster, wait_until


def _voters(cluster: Cluster) -> list[int]:
    found: list[int] = cluster.json("quorum", "describe")["voters"]
    return found


def _takes_nothing(cluster: Cluster) -> bool:
    said = cluster.run("health", exit_code=69).stdout
    return b"there is no controller: writes to all 9 partitions are refused" in said


def test_voters_are_moved_and_a_lost_majority_is_replaced(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster("--nodes", "4")
    cluster.run("topic", "create", "orders", "--partitions", "4", "--replication-factor", "3")
    lines = b"".join(b"%d\n" % number for number in range(1000))
    cluster.run("produce", "orders", "--acks", "all", stdin=lines)

    refused = cluster.run("quorum", "remove-voter", "0", exit_code=None)
    assert b"keeps 3 voters" in refused.stderr
    cluster.run("quorum", "add-voter", "3")
    wait_until("node 3 votes", lambda: _voters(cluster) == [0, 1, 2, 3])
    cluster.run("quorum", "remove-voter", "0")
    wait_until("node 0 votes no more", lambda: _voters(cluster) == [1, 2, 3])
    cluster.run("health", "--exit-when-healthy")

    refused = cluster.run("metadata", "force-quorum", exit_code=69)
    assert b"in use by a running node" in refused.stderr
    directories = [Path(cluster.node(number)["dir"]) for number in range(4)]
    cluster.run("node", "kill", "1")
    cluster.run("node", "kill", "2")
    wait_until("health says that nothing is taken", lambda: _takes_nothing(cluster))
    described = cluster.json("topic", "describe", "orders")
    assert described["stale"].startswith("there is no controller")
    dead = [each["error"] for each in described["partitions"] if each["leader"] in (1, 2)]
    assert set(dead) <= {"the leader did not answer"}
    for number in (1, 2):
        for name in ("metadata", "metadata.copy", "topics"):
            shutil.rmtree(directories[number] / name)
    cluster.run("down")

    plan = cluster.json("metadata", "force-quorum")
    assert (plan["executed"], plan["lost"]) == (False, [1, 2])
    assert len(plan["unreadable"]) == 2
    unnamed = cluster.run("metadata", "force-quorum", "--execute", "--lost", "1", exit_code=None)
    assert unnamed.returncode != 0
    assert b"--lost 1 --lost 2" in unnamed.stderr
    words = ("metadata", "force-quorum", "--execute", "--lost", "1", "--lost", "2")
    done = cluster.json(*words)
    assert done["executed"]
    for number in (1, 2):
        config = directories[number] / "node.toml"
        cluster.run("node", "format", "--config", str(config), "--replace", "--yes")
    cluster.json("up", "--detach", "--dir", str(cluster.dir))
    cluster.run("health", "--exit-when-healthy")
    wait_until("three voters again", lambda: len(_voters(cluster)) == 3)
    seen = cluster.run("consume", "orders", "--exit-at-end", "--output", "json").stdout
    values = [json.loads(line)["value"] for line in seen.splitlines()]
    assert sorted(map(int, values)) == list(range(1000))
