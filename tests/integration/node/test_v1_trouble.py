"""V1 on a node whose leader hangs or that has no quorum: all is answered, nothing untruly."""

from __future__ import annotations

import pytest
import trio

from tests.integration.node.nodes import Cluster, cluster
from tests.integration.node.test_v1_cluster import create, others

pytestmark = pytest.mark.virtual_time

UNKNOWN = "ERR|REPLICATION_TIMEOUT|outcome unknown"
FORBIDDEN = ("connection closed", "timed out", "socket hang up", "connection refused")
"""SDKs take an error with one of these phrases for a broken connection (4)."""


async def answers(nodes: Cluster, number: int, *requests: tuple[str, str]) -> list[str]:
    """The answers of a node to requests made at the same time, each on its own connection."""
    found = [""] * len(requests)

    async def ask(at: int, command: str, args: str) -> None:
        async with nodes.v1(number) as client:
            found[at] = await client.call(command, args)

    async with trio.open_nursery() as nursery:
        for at, (command, args) in enumerate(requests):
            nursery.start_soon(ask, at, command, args)
    for told in found:
        assert not any(phrase in told.lower() for phrase in FORBIDDEN), told
    return found


async def test_a_leader_that_hangs(tmp_path) -> None:
    async with cluster(tmp_path, flags={"broker.session_ms": "10000"}) as nodes:
        await create(nodes, "orders")
        leader, (asked, _) = await others(nodes, "orders")
        network = await nodes.restart_on_stalling_network(asked)
        await nodes.in_sync("orders", 0, 0, 1, 2)
        async with nodes.v1(asked) as client:
            await client.ok("PRODUCE", "orders k:0 acks=all")
            await client.ok("PRODUCE", "orders k:1 acks=all")
        assert await nodes.leader("orders", 0) == leader
        network.stall(nodes.ports(leader)["peer"])
        told = await answers(
            nodes,
            asked,
            ("CONSUME", "orders 0 0"),
            ("PRODUCE", "orders k:x acks=0"),
            ("PRODUCE", "orders k:x acks=1"),
            ("PRODUCE", "orders k:x acks=all"),
            ("REPLICA_FETCH", "orders 0 1 0"),
            ("BROKER_FETCH", "orders 0 1 0"),
        )
        # A replica of its own is here; it knows at least the first record to be committed.
        assert told[0].startswith("OK|messages=0:0"), told[0]
        assert told[1] == told[2] == UNKNOWN
        assert told[3] == "ERR|REPLICATION_TIMEOUT|acks=all timeout"
        assert told[4].startswith("ERR|UNAVAILABLE|"), told[4]
        assert told[5].startswith("ERR|UNAVAILABLE|"), told[5]
        network.stall()
        await nodes.in_sync("orders", 0, 0, 1, 2)
        async with nodes.v1(asked) as client:
            await client.ok("PRODUCE", "orders k:2 acks=all")


async def test_without_a_quorum(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        await create(nodes, "orders")
        leader = await nodes.leader("orders", 0)
        await nodes.crash(*(number for number in range(3) if number != leader))

        async def without_controller() -> bool:
            return (await nodes.status(leader)).controller == -1

        await nodes.wait_for("no controller is known", without_controller)
        told = await answers(
            nodes,
            leader,
            ("ADMIN_CREATE_TOPIC", "new 1 1"),
            ("ADMIN_REGISTER_BROKER", "7 h 1"),
            ("ADMIN_BROKER_HEARTBEAT", "7"),
            ("ADMIN_FENCE_BROKER", "1"),
            ("ADMIN_SET_PARTITION_LEADER", "orders 0 1 1"),
            ("ADMIN_RECONCILE_BROKER_HEALTH", "1000"),
            ("SET_PARTITION_ROLE", "orders 0 follower"),
            ("CONSUME", "unheard 0 0"),
            ("REPLICA_FETCH", "unheard 0 1 0"),
        )
        for answer in told:
            assert answer.startswith("ERR|UNAVAILABLE|"), told
        told = await answers(
            nodes, leader, ("PRODUCE", "unheard k:v"), ("PRODUCE", "unheard k:v acks=all")
        )
        assert told[0] == "ERR|NOT_LEADER|partition leader unavailable on this broker"
        assert told[1].startswith(("ERR|NOT_LEADER|", "ERR|REPLICATION_TIMEOUT|")), told
        [told_of] = await answers(nodes, leader, ("ADMIN_GET_METADATA", ""))
        assert told_of.startswith("OK|topics=[orders] brokers=[0 1 2]"), "this node knows it itself"
