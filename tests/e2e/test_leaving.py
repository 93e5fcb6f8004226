"""A node that leads nothing for a while, and one that leaves for good."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.cluster import Cluster

RECORDS = 400
HANG_S = 600.0
"""Bounds a hang: four nodes and all their moves share the machine with others."""


@pytest.mark.timeout(1800)
def test_a_node_is_drained_revived_and_taken_out(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster("--nodes", "4", "--timeout", "300")

    def run(*words: str, exit_code: int = 0, stdin: bytes | None = None) -> Any:
        told = [*words, "--dir", str(cluster.dir), "--output", "json"]
        done = cluster.run(*told, exit_code=exit_code, stdin=stdin, timeout_s=HANG_S)
        text = done.stderr.splitlines()[-1] if exit_code else done.stdout
        return json.loads(text)

    def partitions() -> list[Any]:
        found: list[Any] = run("topic", "describe", "orders")["partitions"]
        return found

    run("topic", "create", "orders", "--partitions", "4", "--replication-factor", "3")
    values = b"".join(b"%d\n" % number for number in range(RECORDS))
    run("produce", "orders", stdin=values)

    busy = partitions()[0]["replicas"][0]
    done = run("node", "drain", str(busy))
    assert done["node"] == busy
    assert all(each["leader"] not in (busy, -1) for each in partitions())
    assert all(len(each["isr"]) == 3 for each in partitions()), "it goes on following"
    done = run("node", "revive", str(busy))
    assert done["leaderships"] > 0
    assert partitions()[0]["leader"] == busy

    refused = run("node", "decommission", "9", "--yes", exit_code=65)["error"]
    assert "there is no node 9" in refused["message"]
    assert 0 in run("quorum", "describe")["voters"]
    held = sum(0 in each["replicas"] for each in partitions())
    done = run("node", "decommission", "0", "--yes")
    assert (done["new_voter"], done["removed"]) == (3, True)
    assert done["moved"] >= held > 0
    assert [node["id"] for node in cluster.state()["nodes"]] == [1, 2, 3]
    assert run("quorum", "describe")["voters"] == [1, 2, 3]
    assert all(sorted(each["replicas"]) == [1, 2, 3] for each in partitions())
    run("health", "--exit-when-healthy")
    read = cluster.run(
        *("consume", "orders", "--exit-at-end", "--dir", str(cluster.dir)), timeout_s=HANG_S
    )
    assert sorted(read.stdout.splitlines()) == sorted(values.splitlines())

    refused = run("node", "decommission", "1", "--yes", exit_code=69)["error"]
    assert "no node without one of them can take that of node 1" in refused["message"]
    assert [node["id"] for node in cluster.state()["nodes"]] == [1, 2, 3]
