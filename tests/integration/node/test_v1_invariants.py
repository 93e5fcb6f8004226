"""Invariants I1 to I6 of listeners/DESIGN 4.5: nobody but the nodes themselves says what they
hold."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import trio

from paceline.wire.native.data import PartitionDescription
from tests.integration.node.nodes import Cluster, V1Client, cluster, lone_node
from tests.integration.node.test_v1_cluster import create, others

pytestmark = pytest.mark.virtual_time

FAR = 1_000_000
TIMEOUT = "ERR|REPLICATION_TIMEOUT|acks=all timeout"
CLAIMED = f"acked_offset={FAR}"


def progress(told: PartitionDescription) -> dict[int, tuple[bool, int]]:
    """Per node whether it is in sync, and the end of what it acknowledged."""
    return {each.node_id: (each.in_sync, each.acked_offset) for each in told.progress}


# --- I1 -------------------------------------------------------------------------------------------


def forgeries(topic: str, victim: int) -> list[tuple[str, str]]:
    """Every line with which a client could try to bring a dead replica back."""
    return [
        *((f"{name}", f"{topic} 0 {slot} {FAR}") for name in SLOT_LINES for slot in (1, 2)),
        ("BROKER_FETCH", f"{topic} 0 1 {FAR}"),
        ("ADMIN_BROKER_HEARTBEAT", str(victim)),
        ("ADMIN_REGISTER_BROKER", f"{victim} 127.0.0.1 9092 {FAR}"),
        ("ADMIN_UNFENCE_BROKER", str(victim)),
        ("ADMIN_RECONCILE_BROKER_HEALTH", str(FAR)),
        ("ADMIN_SET_PARTITION_LEADER", f"{topic} 0 {victim} {victim}"),
        ("ADMIN_ELECT_TOPIC_LEADERS", topic),
    ]


SLOT_LINES = ("REPLICA_FETCH", "BROKER_REPLICA_ACK")


async def test_i1_no_client_line_changes_a_hosted_slot(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        await create(nodes, "orders")
        leader, (alive, victim) = await others(nodes, "orders")
        async with nodes.v1(leader) as client:
            await client.ok("PRODUCE", "orders k:0 acks=all")
        await nodes.crash(victim)
        await nodes.in_sync("orders", 0, leader, alive)
        async with nodes.v1(leader) as client:
            await client.ok("PRODUCE", "orders k:1 acks=all")
        before = await nodes.describe("orders", 0)
        assert not progress(before)[victim][0]
        for number in (leader, alive):
            async with nodes.v1(number) as client:
                for command, args in forgeries("orders", victim):
                    told = await client.call(command, args)
                    assert CLAIMED not in told
        after = await nodes.describe("orders", 0)
        assert progress(after) == progress(before)
        assert (after.leader, after.isr, after.leader_epoch) == (
            before.leader,
            before.isr,
            before.leader_epoch,
        )
        brokers = {each.node_id: each.fenced for each in (await nodes.status(leader)).brokers}
        assert brokers == {leader: False, alive: False, victim: True}


# --- I2, I3 ---------------------------------------------------------------------------------------


@dataclass
class Writer:
    """Writes 0, 1, 2 ... with acks=all through whichever node serves; remembers what was OK."""

    nodes: Cluster
    acked: dict[int, str] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    holders: list[int] = field(default_factory=list)

    async def write(self, count: int) -> None:
        """Go on until ``count`` more are acknowledged."""
        wanted = len(self.acked) + count
        turn = 0
        while len(self.acked) < wanted:
            value = f"v{len(self.acked)}.{turn}"
            turn += 1
            numbers = sorted(self.nodes.up)
            async with self.nodes.v1(numbers[turn % len(numbers)]) as client:
                told = await client.call("PRODUCE", f"orders k:{value} acks=all")
            if told.startswith("OK|"):
                offset = int(told.split("offset=")[1].split()[0])
                assert offset not in self.acked, f"{value} and {self.acked[offset]} at {offset}"
                self.acked[offset] = value
                await self._count_holders(offset)
            else:
                assert told.split("|")[1] in ("REPLICATION_TIMEOUT", "NOT_LEADER"), told
                self.unknown.add(value)

    async def _count_holders(self, offset: int) -> None:
        told = await self.nodes.describe("orders", 0)
        held = [node for node, (_, acked) in progress(told).items() if acked > offset]
        self.holders.append(len(held))


async def test_i2_i3_acknowledged_records_are_held_twice_and_survive_every_leader(
    tmp_path,
) -> None:
    async with cluster(tmp_path) as nodes:
        await create(nodes, "orders")
        writer = Writer(nodes)
        epochs = set()
        watermarks: dict[tuple[int, int], int] = {}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, nodes, watermarks)
            for _ in range(3):
                await writer.write(4)
                leader = await nodes.leader("orders", 0)
                await nodes.crash(leader)
                await writer.write(4)
                epochs.add((await nodes.describe("orders", 0)).leader_epoch)
                await nodes.start(leader)
                await nodes.in_sync("orders", 0, 0, 1, 2)
            nursery.cancel_scope.cancel()
        assert len(epochs) == 3, "every crash fell on a leader"
        assert len(watermarks) >= 3, f"too few leaders were watched: {watermarks}"
        assert min(writer.holders) >= 2
        for number in range(3):
            async with nodes.v1(number) as client:
                shown = await client.ok("CONSUME", "orders 0 0")
            stored = dict(item.split(":", 1) for item in shown["messages"].split(","))
            assert {int(at): v for at, v in stored.items() if int(at) in writer.acked} == (
                writer.acked
            )
            assert set(stored.values()) <= {*writer.acked.values(), *writer.unknown}


async def _watch(nodes: Cluster, watermarks: dict[tuple[int, int], int]) -> None:
    """Look at the leader's high watermark all the time: it never goes back (I3)."""

    async def look() -> bool:
        told = await nodes.describe("orders", 0)
        key = (told.leader, told.leader_epoch)
        assert told.high_watermark >= watermarks.get(key, 0), (key, told.high_watermark)
        watermarks[key] = max(watermarks.get(key, 0), told.high_watermark)
        return False

    await nodes.wait_for("the end of the test", look)


# --- I4 -------------------------------------------------------------------------------------------


async def test_i4_forged_acknowledgements_do_not_satisfy_acks_all(tmp_path) -> None:
    # Its session outlasts the wait, so that it is the wait that ends.
    flags = {"v1.ack_timeout_ms": "2000", "broker.session_ms": "20000"}
    async with cluster(tmp_path, flags=flags) as nodes:
        await create(nodes, "orders")
        leader, followers = await others(nodes, "orders")
        async with nodes.v1(leader) as client:
            await client.ok("PRODUCE", "orders k:0 acks=all")
        old = (await client_fetch(nodes, leader, 1, 0))["acked_offset"]
        assert old == "0"
        await nodes.crash(*followers)
        replies: list[dict[str, str]] = []
        outcome: list[str] = []

        async def produce() -> None:
            async with nodes.v1(leader) as client:
                outcome.append(await client.call("PRODUCE", "orders k:1 acks=all"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            while not outcome:
                for slot in (1, 2):
                    replies.append(await client_fetch(nodes, leader, slot, FAR))
        assert outcome == [TIMEOUT]
        assert len(replies) >= 2
        for told in replies:
            assert (told["acked_offset"], told["hw"]) == ("0", "0"), told


async def client_fetch(nodes: Cluster, number: int, slot: int, offset: int) -> dict[str, str]:
    async with nodes.v1(number) as client:
        return await client.ok("REPLICA_FETCH", f"orders 0 {slot} {offset}")


# --- I5, I6 ---------------------------------------------------------------------------------------


async def test_i5_a_lone_node_takes_simulated_acknowledgements(tmp_path) -> None:
    async with lone_node(tmp_path, {"v1.ack_timeout_ms": "100"}) as node:
        async with V1Client(node.v1) as client:
            assert await client.call("PRODUCE", "orders user1:a acks=all") == TIMEOUT
            assert await client.call("PRODUCE", "orders user1:b") == "OK|partition=2 offset=1 hw=1"
            told = await client.call("REPLICA_FETCH", "orders 2 1 1")
            assert told == ("OK|replica=1 acked_offset=1 hw=1 isr=[0 1] under_replicated=false")
            # A busy machine may take longer than the ack timeout to carry the acknowledgement
            # over; what counts is that it satisfies the wait when it comes in time.
            for offset in range(2, 52):
                told = await acked_meanwhile(node.v1, client, offset)
                if told.startswith("OK|"):
                    break
                assert told == TIMEOUT
        assert told == f"OK|partition=2 offset={offset} hw={offset}"


async def acked_meanwhile(address: tuple[str, int], client: V1Client, offset: int) -> str:
    """The answer to acks=all while another connection acknowledges slot 1 after 20 ms."""

    async def acknowledge() -> None:
        async with V1Client(address) as other:
            await trio.sleep(0.02)  # the step of the original's own test
            told = await other.call("REPLICA_FETCH", f"orders 2 1 {offset}")
            assert told.startswith(f"OK|replica=1 acked_offset={offset} "), told

    async with trio.open_nursery() as nursery:
        nursery.start_soon(acknowledge)
        return await client.call("PRODUCE", "orders user1:c acks=all")


async def test_the_simulation_can_be_off_or_lenient(tmp_path) -> None:
    off = {"v1.simulated_replicas": "off", "v1.ack_timeout_ms": "100"}
    (tmp_path / "off").mkdir()
    async with lone_node(tmp_path / "off", off) as node, V1Client(node.v1) as client:
        await client.ok("PRODUCE", "orders user1:a")
        told = await client.call("REPLICA_FETCH", "orders 2 1 0")
        assert told == "ERR|BAD_REQUEST|replica id not configured"
        assert await client.call("PRODUCE", "orders user1:b acks=all") == TIMEOUT
    # Long enough for a busy disk to take what the slot stands for already.
    lenient = {"v1.simulated_max_lag": "2", "v1.ack_timeout_ms": "2000"}
    (tmp_path / "lenient").mkdir()
    async with lone_node(tmp_path / "lenient", lenient) as node, V1Client(node.v1) as client:
        await client.ok("PRODUCE", "orders user1:a")
        await client.ok("REPLICA_FETCH", "orders 2 1 0")
        for offset in (1, 2):
            told = await client.call("PRODUCE", "orders user1:b acks=all")
            assert told == f"OK|partition=2 offset={offset} hw={offset}"
        assert await client.call("PRODUCE", "orders user1:c acks=all") == TIMEOUT


async def test_i6_a_second_node_ends_the_simulation_under_a_waiting_producer(tmp_path) -> None:
    flags = {"v1.ack_timeout_ms": "3500", "topics.min_insync_replicas": "3"}
    async with cluster(tmp_path, 1, flags) as nodes, nodes.v1(0) as client:
        told = await client.call("REPLICA_FETCH", "orders 2 1 0")
        assert told.startswith("OK|"), told
        joined = trio.Event()
        refused: list[str] = []
        waited_through = False
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_join, nodes, joined)
            nursery.start_soon(_forge, nodes, joined, refused)
            # One of these waits is under way when the second node registers.
            while not waited_through:
                assert not joined.is_set(), "no wait spanned the join"
                assert await client.call("PRODUCE", "orders user1:x acks=all") == TIMEOUT
                waited_through = joined.is_set()
            assert await client.call("PRODUCE", "orders user1:x acks=all") == TIMEOUT
            nursery.cancel_scope.cancel()
        assert set(refused) == {"ERR|BAD_REQUEST|replica id not configured"}


async def _join(nodes: Cluster, joined: trio.Event) -> None:
    await nodes.start(1)

    async def registered() -> bool:
        return len((await nodes.status(0)).brokers) == 2

    await nodes.wait_for("node 1 is registered", registered)
    joined.set()


async def _forge(nodes: Cluster, joined: trio.Event, refused: list[str]) -> None:
    """Acknowledge slot 1 always, and slot 2 once the simulation must be off."""
    async with nodes.v1(0) as client:
        while True:
            told = await client.call("REPLICA_FETCH", f"orders 2 1 {FAR}")
            if joined.is_set():
                refused += [told, await client.call("REPLICA_FETCH", f"orders 2 2 {FAR}")]
            await trio.sleep(0.01)
