"""Topics deleted and made anew while their groups' coordinator is frozen: the groups begin anew."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest

from paceline.client import blocking
from tests.e2e.cluster import Cluster, wait_until

PARTITIONS = 2
SESSION_MS = 10_000
"""Long enough for a deletion to come before the next election on a busy machine."""


def committed(cluster: Cluster, group: str) -> list[int]:
    result = cluster.run("group", "offsets", "export", group, "--output", "json", exit_code=None)
    if result.returncode:
        return []
    return [each["offset"] for each in json.loads(result.stdout)["offsets"]]


def write(cluster: Cluster, topic: str, count: int) -> None:
    lines = "".join(f"k{number}:{number}\n" for number in range(count)).encode()
    cluster.run("produce", topic, "--acks", "all", "--key-delimiter", ":", stdin=lines)


def read(cluster: Cluster, topic: str, group: str, count: int) -> list[bytes]:
    words = ("consume", topic, "--group", group, "--count", str(count))
    return cluster.run(*words).stdout.splitlines()


@pytest.mark.slow
def test_a_deletion_that_no_coordinator_saw(
    make_cluster: Callable[..., Cluster],
) -> None:
    """The group has read 100 records; its old positions would have it skip those of the topic that
    is made anew. Deleted at once after its coordinator fell silent, before another one is elected.
    """
    cluster = make_cluster("--set", f"broker.session_ms={SESSION_MS}")
    cluster.run("topic", "create", "orders", "--partitions", str(PARTITIONS))
    write(cluster, "orders", 100)
    controller = cluster.json("status")["controller"]
    others = [node for node in range(3) if node != controller]
    with blocking.connect([address(cluster, controller)]) as client:
        group, coordinator = next(
            (name, found)
            for name in map(str, range(100))
            if (found := client.admin.groups.coordinator(name)) in others
        )
        assert len(read(cluster, "orders", group, 100)) == 100
        assert sum(committed(cluster, group)) == 100
        os.kill(cluster.node(coordinator)["pid"], signal.SIGSTOP)
        client.admin.delete_topic("orders")
        assert client.admin.groups.coordinator(group) == coordinator, "nobody else saw it"
        client.admin.create_topic("orders", partitions=PARTITIONS)
        write(cluster, "orders", 300)
        assert len(read(cluster, "orders", group, 300)) == 300
    cluster.run("node", "resume", str(coordinator))
    wait_until("all in sync", lambda: cluster.json("status")["under_replicated_partitions"] == 0)
    assert sum(committed(cluster, group)) == 300


def address(cluster: Cluster, node: int) -> str:
    return ":".join(map(str, cluster.address(node, "native")))
