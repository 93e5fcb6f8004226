"""All nodes out of file descriptors for clients (row 37 of tests/sim/README.md)."""

from __future__ import annotations

import json
import resource
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.v1 import V1Client

DESCRIPTORS = 400
RESERVED = 200
CROWD = 250
"""Connections to each node: more than the descriptors that clients may have."""


def test_clients_that_take_every_descriptor_change_no_role(
    make_cluster: Callable[..., Cluster],
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))  # the nodes inherit it
    try:
        cluster = make_cluster(
            *("--set", f"limits.reserved_descriptors={RESERVED}"),
            *("--set", f"limits.descriptors={DESCRIPTORS}"),
            *("--set", "limits.idle_ms=600000"),  # nobody gives up a place for being silent
            *("--set", "raft.election_ms=4000"),  # a busy machine moves no role either
            *("--set", "broker.session_ms=20000"),
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3 * CROWD + 200), hard))
    try:
        cluster.run("topic", "create", "orders", "--partitions", "3", "--replication-factor", "3")
        before = cluster.describe("orders")
        controller = cluster.json("status")["controller"]
        with ExitStack() as crowd:
            clients = [
                crowd.enter_context(V1Client(cluster.address(node, "v1"))) for node in range(3)
            ]
            for node in range(3):
                for _ in range(CROWD):
                    address = cluster.address(node, "v1")
                    crowd.enter_context(socket.create_connection(address, timeout=30))
            late = crowd.enter_context(socket.create_connection(cluster.address(0, "v1")))
            late.settimeout(1)
            late.sendall(b"9|ADMIN_GET_METADATA|\n")
            for number in range(300):
                for client in clients:
                    assert client.produce("orders", b"k%d" % number, b"v")[1] >= 0
            try:
                served = late.recv(1)
            except TimeoutError:
                served = b""
            assert not served, "there were descriptors left for clients"
        after = cluster.describe("orders")
        changed = [p["partition"] for p, q in zip(before, after, strict=True) if p != q]
        for was, now in zip(before, after, strict=True):
            assert (was["leader"], was["leader_epoch"]) == (now["leader"], now["leader_epoch"])
        assert cluster.json("status")["controller"] == controller, changed
        cluster.run("health", "--exit-when-healthy")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


FEW = 256
PARTITIONS = 400
STRANGERS = 960


@pytest.mark.slow
def test_more_logs_than_descriptors_and_strangers_that_say_nothing(
    make_cluster: Callable[..., Cluster],
) -> None:
    """A topic with more partitions than a node may have files open, while connections to the peer
    ports say nothing; and all nodes start again."""
    cluster = make_cluster(
        *("--set", f"limits.descriptors={FEW}"),
        *("--set", "limits.reserved_descriptors=100"),
    )
    lines = b"".join(b"%d\n" % number for number in range(2000))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3 * STRANGERS + 200), hard))
    try:
        with ExitStack() as strangers:
            for _ in range(STRANGERS):
                for node in range(3):
                    address = cluster.address(node, "peer")
                    strangers.enter_context(socket.create_connection(address, timeout=30))
            words = ("--partitions", str(PARTITIONS), "--replication-factor", "3")
            cluster.run("topic", "create", "wide", *words)
            cluster.run("produce", "wide", "--acks", "all", stdin=lines)
            cluster.run("health", "--exit-when-healthy")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not [node for node in range(3) if _descriptors(cluster, node) > FEW]
    for node in range(3):
        cluster.run("node", "kill", str(node))
    cluster.json("up", "--detach", "--dir", str(cluster.dir))
    cluster.run("health", "--exit-when-healthy")
    seen = cluster.run("consume", "wide", "--exit-at-end", "--output", "json").stdout
    values = [json.loads(line)["value"] for line in seen.splitlines()]
    assert sorted(map(int, values)) == list(range(2000))


def _descriptors(cluster: Cluster, node: int) -> int:
    return len(list(Path(f"/proc/{cluster.node(node)['pid']}/fd").iterdir()))
