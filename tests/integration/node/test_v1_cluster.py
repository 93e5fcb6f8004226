"""Three nodes, V1: every node serves every command; what follower marks and roles change."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from paceline.types import NodeId
from paceline.wire.native import admin
from paceline.wire.native.api import NativeApi
from paceline.wire.v1.partitioner import partition_for
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import Cluster, V1Client, cluster
from tests.integration.node.test_metrics import shown_as_committed

pytestmark = pytest.mark.virtual_time

NODES = (0, 1, 2)
NO_LEADER = "ERR|NOT_LEADER|partition leader unavailable on this broker"


def key_of(partition: int, count: int = 3) -> str:
    """A key that falls on a partition."""
    return next(k for k in map(str, range(100)) if partition_for(k.encode(), count) == partition)


async def create(nodes: Cluster, topic: str, partitions: int = 1, factor: int = 3) -> None:
    """A topic that every node knows and every replica has in sync."""
    async with nodes.v1(min(nodes.up)) as client:
        await client.ok("ADMIN_CREATE_TOPIC", f"{topic} {partitions} {factor}")
    for partition in range(partitions):
        info = await nodes.partition(topic, partition)
        await nodes.in_sync(topic, partition, *info.replicas)


async def others(nodes: Cluster, topic: str, partition: int = 0) -> tuple[int, Sequence[int]]:
    """The leader, and the nodes that are not."""
    leader = await nodes.leader(topic, partition)
    return leader, [number for number in sorted(nodes.up) if number != leader]


# --- forwarding -----------------------------------------------------------------------------------


async def test_every_node_stores_and_shows_every_partition(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        written: dict[int, list[str]] = {0: [], 1: [], 2: []}
        for number in NODES:
            async with nodes.v1(number) as client:
                for partition in range(3):
                    for acks in (" acks=0", " acks=1", " acks=all", ""):
                        value = f"{number}{acks.strip()}"
                        args = f"orders {key_of(partition)}:{value}{acks}"
                        stored = await client.ok("PRODUCE", args)
                        assert stored["partition"] == str(partition)
                        assert stored["offset"] == str(len(written[partition]))
                        written[partition].append(value)
                        # Own writes are read at once, also those that no follower has yet (7).
                        offset = stored["offset"]
                        read = await client.ok("CONSUME", f"orders {partition} {offset}")
                        assert read == {"messages": f"{offset}:{value}", "hw": offset}
        for number in NODES:
            async with nodes.v1(number) as client:
                for partition, values in written.items():
                    read = await client.ok("CONSUME", f"orders {partition} 0")
                    shown = ",".join(f"{at}:{value}" for at, value in enumerate(values))
                    assert read == {"messages": shown, "hw": str(len(values) - 1)}
        led = {await nodes.leader("orders", partition) for partition in range(3)}
        assert led == set(NODES), "otherwise not every forwarding path was used"


async def test_replica_commands_on_every_node(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        await create(nodes, "orders")
        async with nodes.v1(0) as client:
            await client.ok("PRODUCE", "orders k:v acks=all")
        for number in NODES:
            async with nodes.v1(number) as client:
                for slot in (1, 2):
                    told = await client.call("REPLICA_FETCH", f"orders 0 {slot} 0")
                    facts = "acked_offset=0 hw=0 isr=[0 1 2] under_replicated=false"
                    assert told == f"OK|replica={slot} {facts}"
                    told = await client.call("BROKER_REPLICA_ACK", f"orders 0 {slot} 0")
                    assert told == f"OK|topic=orders partition=0 follower={slot} {facts}"
                    told = await client.call("BROKER_FETCH", f"orders 0 {slot} 0")
                    refusal = "reserved for the inter-broker listener"
                    assert told == f"ERR|NOT_AUTHORIZED|{refusal}"
                for command in ("REPLICA_FETCH", "BROKER_FETCH", "BROKER_REPLICA_ACK"):
                    for slot in (0, 3, -1):
                        told = await client.call(command, f"orders 0 {slot} 0")
                        assert told == "ERR|BAD_REQUEST|invalid replica id"
                    told = await client.call(command, "orders 1 1 0")
                    assert told == "ERR|BAD_REQUEST|invalid partition"


async def test_admin_commands_on_every_node(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        await create(nodes, "orders", 3)
        for number in NODES:
            async with nodes.v1(number) as client:
                await _admin_commands(nodes, client, number)


async def _admin_commands(nodes: Cluster, client: V1Client, number: int) -> None:
    name = f"t{number}"
    made = await client.ok("ADMIN_CREATE_TOPIC", f"{name} 2 3")
    assert (made["partitions"], made["replication_factor"]) == ("2", "3")
    await client.ok("PRODUCE", f"{name} k:v acks=all")
    await client.ok("ADMIN_CREATE_TOPIC", f"{name} 2 3")
    for counts in ("3 3", "2 2"):
        told = await client.call("ADMIN_CREATE_TOPIC", f"{name} {counts}")
        assert told == "ERR|BAD_REQUEST|topic already exists"
    told = await client.call("ADMIN_CREATE_TOPIC", f"wide{number} 1 4")
    assert told.startswith("ERR|BAD_REQUEST|"), told
    assert "4" in told, told
    assert "3" in told, told
    topics = " ".join(["orders", *(f"t{each}" for each in range(number + 1))])
    told = await client.call("ADMIN_GET_METADATA")
    assert told == f"OK|topics=[{topics}] brokers=[0 1 2] fenced=[]"
    host, port = nodes.up[1].v1
    told = await client.ok("ADMIN_REGISTER_BROKER", "1 elsewhere.example 1")
    assert (told["host"], told["port"]) == (host, str(port)), "a real node's address is its own"
    await client.ok("ADMIN_BROKER_HEARTBEAT", "1")
    assert await client.call("ADMIN_BROKER_HEARTBEAT", "8") == (
        "ERR|BAD_REQUEST|broker not found: 8"
    )
    assert await client.call("ADMIN_RECONCILE_BROKER_HEALTH", "1") == "OK|reconciled=0"
    assert await client.call("ADMIN_ELECT_TOPIC_LEADERS", "orders") == (
        "OK|topic=orders elected_changes=0"
    )
    _, rest = await others(nodes, "orders")
    moved = await client.ok("ADMIN_SET_PARTITION_LEADER", f"orders 0 {rest[0]} {rest[0]}")
    assert moved["leader"] == str(rest[0])
    assert sorted(moved["isr"].strip("[]").split()) == ["0", "1", "2"], "the real ISR"
    for wrong, text in (
        ("orders 0 7 0", "not a replica"),
        ("orders 9 0 0", "partition not found: topic=orders partition=9"),
        ("orders -1 0 0", "partition must be >= 0"),
        ("nosuch 0 0 0", "topic not found: nosuch"),
        ("orders 0 0 x", "invalid integer list"),
        ("orders 0 -2 0", "leader id must be >= -1"),
    ):
        told = await client.call("ADMIN_SET_PARTITION_LEADER", wrong)
        assert told == f"ERR|BAD_REQUEST|{text}"


async def test_fencing_a_real_node_moves_its_leaderships_away(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        await create(nodes, "orders", 3)
        async with nodes.v1(1) as client:
            await client.ok("ADMIN_FENCE_BROKER", "1")
            assert (await client.ok("ADMIN_GET_METADATA"))["fenced"] == "[1]"
            for partition in range(3):
                info = await nodes.partition("orders", partition, via=1)
                assert info.leader in (0, 2)
                assert 1 in info.isr, "it goes on following"
                await client.ok("PRODUCE", f"orders {key_of(partition)}:v acks=all")
            told = await client.call("ADMIN_SET_PARTITION_LEADER", "orders 0 1 1")
            assert told.startswith("ERR|BAD_REQUEST|"), told
            await client.ok("ADMIN_UNFENCE_BROKER", "1")
            await client.ok("ADMIN_SET_PARTITION_LEADER", "orders 0 1 1")
            assert await nodes.leader("orders", 0) == 1


async def test_a_strict_node_does_not_forward(tmp_path) -> None:
    async with cluster(tmp_path, flags={"v1.forward_produce": "false"}) as nodes:
        await create(nodes, "orders")
        leader, rest = await others(nodes, "orders")
        for number in rest:
            async with nodes.v1(number) as client:
                for acks in ("0", "1", "all"):
                    told = await client.call("PRODUCE", f"orders k:v acks={acks}")
                    assert told == NO_LEADER
        async with nodes.v1(leader) as client:
            assert (await client.ok("PRODUCE", "orders k:v acks=all"))["offset"] == "0"


# --- roles ----------------------------------------------------------------------------------------


async def test_a_follower_mark_counts_on_its_node_only(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        await create(nodes, "orders")
        leader, (marked, free) = await others(nodes, "orders")
        async with nodes.v1(leader) as client:
            await client.ok("PRODUCE", "orders k:0 acks=all")
        async with nodes.v1(marked) as client:
            told = await client.call("SET_PARTITION_ROLE", "orders 0 follower")
            assert told.startswith("OK|topic=orders partition=0 role=follower hw="), told
            for acks in ("0", "1", "all"):
                assert await client.call("PRODUCE", f"orders k:v acks={acks}") == NO_LEADER
            for command in ("REPLICA_FETCH", "BROKER_REPLICA_ACK"):
                told = await client.call(command, "orders 0 1 0")
                assert told == "ERR|BAD_REQUEST|partition is not leader"
            assert await client.call("BROKER_FETCH", "orders 0 1 0") == NO_LEADER
            assert await client.call("CONSUME", "orders 0 0") == "OK|messages=0:0 hw=0"
        assert await nodes.leader("orders", 0) == leader, "a follower's mark moves nothing"
        for number in (leader, free):
            async with nodes.v1(number) as client:
                await client.ok("PRODUCE", f"orders k:{number} acks=all")
        await nodes.in_sync("orders", 0, 0, 1, 2)
        await nodes.restart(marked)
        await nodes.in_sync("orders", 0, 0, 1, 2)
        await shown_as_committed(nodes, marked, "orders", 0, 3)
        async with nodes.v1(marked) as client:
            assert await client.call("PRODUCE", "orders k:v") == NO_LEADER, "a mark outlives it"
            told = await client.call("SET_PARTITION_ROLE", "orders 0 leader")
            assert told == "OK|topic=orders partition=0 role=leader hw=2"
            assert (await client.ok("PRODUCE", "orders k:v"))["offset"] == "3"
        assert await nodes.leader("orders", 0) == marked


async def test_marking_the_leader_moves_leadership_and_marking_all_ends_it(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        await create(nodes, "orders")
        marked: list[int] = []
        for _ in NODES:
            leader = await nodes.leader("orders", 0)
            assert leader not in marked
            async with nodes.v1(leader) as client:
                await client.ok("SET_PARTITION_ROLE", "orders 0 follower")
                assert await client.call("PRODUCE", "orders k:v") == NO_LEADER
            marked.append(leader)
            free = [number for number in NODES if number not in marked]
            for number in free:
                async with nodes.v1(number) as client:
                    await client.ok("PRODUCE", f"orders k:{number} acks=all")
        info = await nodes.partition("orders", 0, via=marked[-1])
        assert (info.leader, sorted(info.isr)) == (-1, [0, 1, 2]), "marked nodes stay in sync"
        async with nodes.v1(0) as client:
            # Without a leader a replica still shows what it knows to be committed
            # (listeners/DESIGN 4.4).
            shown = await client.ok("CONSUME", "orders 0 0")
            assert shown["messages"].startswith("0:")
            await client.ok("SET_PARTITION_ROLE", "orders 0 leader")
            assert (await client.ok("PRODUCE", "orders k:v acks=all"))["offset"] == "3"
        assert await nodes.leader("orders", 0) == 0


async def test_a_refused_leader_changes_nothing(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        await create(nodes, "single", factor=1)
        await create(nodes, "orders")
        _, rest = await others(nodes, "single")
        for number in rest:
            async with nodes.v1(number) as client:
                for role in ("leader", "follower"):
                    told = await client.call("SET_PARTITION_ROLE", f"single 0 {role}")
                    assert told == "ERR|BAD_REQUEST|not a replica"
        _, (marked, _) = await others(nodes, "orders")
        async with nodes.v1(marked) as client:
            await client.ok("SET_PARTITION_ROLE", "orders 0 follower")
            await client.ok("ADMIN_FENCE_BROKER", str(marked))
            before = await nodes.partition("orders", 0, via=marked)
            told = await client.call("SET_PARTITION_ROLE", "orders 0 leader")
            assert told.startswith("ERR|BAD_REQUEST|"), told
            assert await nodes.partition("orders", 0, via=marked) == before
            assert await client.call("PRODUCE", "orders k:v") == NO_LEADER, "the mark stays"
            await client.ok("ADMIN_UNFENCE_BROKER", str(marked))
            await client.ok("SET_PARTITION_ROLE", "orders 0 leader")
        assert await nodes.leader("orders", 0) == marked


async def test_auto_ends_what_leader_and_follower_wished(tmp_path) -> None:
    async with cluster(tmp_path, flags={"controller.balance_interval_ms": "200"}) as nodes:
        await create(nodes, "orders")
        preferred, (chosen, marked) = await others(nodes, "orders")
        async with nodes.v1(chosen) as client:
            await client.ok("SET_PARTITION_ROLE", "orders 0 leader")
        async with nodes.v1(marked) as client:
            await client.ok("SET_PARTITION_ROLE", "orders 0 follower")
        for _ in range(10):
            await trio.sleep(0.1)  # time in which the balancer would move it back
            assert await nodes.leader("orders", 0) == chosen, "a wish holds against the balancer"
        async with NativeConnection(nodes.up[preferred].addresses["native"]) as connection:
            for number in (chosen, marked):
                wish = admin.SetRole("orders", 0, NodeId(number), "auto")
                await connection.call(NativeApi.SET_ROLE, wish, admin.RoleSet)

        async def moved_back() -> bool:
            return await nodes.leader("orders", 0) == preferred

        await nodes.wait_for("the balancer moves leadership to the preferred replica", moved_back)
        async with nodes.v1(marked) as client:
            await client.ok("PRODUCE", "orders k:v acks=all")


WRONG_ROLES = {
    "orders 0 auto": "invalid role",
    "orders 0 king": "invalid role",
    "orders x leader": "invalid partition",
    "orders -1 leader": "partition must be >= 0",
    "orders 7 leader": "partition not found: topic=orders partition=7",
    "orders 0": "SET_PARTITION_ROLE requires: <topic> <partition> <leader|follower>",
}


async def test_wrong_role_requests(tmp_path) -> None:
    async with cluster(tmp_path, 1) as nodes, nodes.v1(0) as client:
        for args, text in WRONG_ROLES.items():
            told = await client.call("SET_PARTITION_ROLE", args)
            assert told == f"ERR|BAD_REQUEST|{text}"
