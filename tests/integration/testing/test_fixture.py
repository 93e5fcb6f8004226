"""The ``paceline`` fixture, used as its users do, in this process."""

from __future__ import annotations

import contextlib
import errno
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio
from confluent_kafka.admin import AdminClient

from paceline.client import ProducerSettings
from paceline.client.single_error_nursery import open_scope
from paceline.errors import ConfigurationError, NotEnoughReplicas, StorageFull
from paceline.types import TopicPartition
from paceline_cluster.testing import BlockingPaceline, Paceline, Unsupported, running_cluster
from paceline_node.app.node import Node

if TYPE_CHECKING:
    from paceline.client import Client


def _values(paceline: BlockingPaceline, topic: str, count: int) -> list[bytes | None]:
    with paceline.connect() as client, client.consumer(topic) as consumer:
        return [next(consumer).value for _ in range(count)]


def test_plain_test_kills_and_restarts(paceline: BlockingPaceline) -> None:
    paceline.create_topic("orders")
    with paceline.connect() as client, client.producer() as producer:
        producer.send("orders", b"a")
        dead = paceline.kill("leader of orders/0")
        producer.send("orders", b"b")
    assert paceline.wait_for_leader("orders", other_than=dead) != dead
    assert "was killed" in paceline.dump()
    assert paceline.restart(dead) == dead
    assert paceline.wait_for_isr("orders") == [0, 1, 2]
    assert _values(paceline, "orders", 2) == [b"a", b"b"]


def test_clients_of_every_protocol_find_their_nodes(paceline: BlockingPaceline) -> None:
    found = {
        kind: paceline.addresses(kind) for kind in ("kafka", "cursus", "segment", "v1", "http")
    }
    for address in (address for addresses in found.values() for address in addresses):
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=10).close()
    assert len({address for addresses in found.values() for address in addresses}) == 15
    assert paceline.addresses("coordinator") == found["kafka"]
    with pytest.raises(ConfigurationError, match="'kafak' is no listener of this cluster; it has "):
        paceline.addresses("kafak")


async def test_trio_test_stops_isolates_and_heals(paceline: Paceline) -> None:
    await paceline.create_topic("orders")
    patience = ProducerSettings(ack_timeout_s=1.0)
    async with paceline.connect() as client, client.producer(patience) as producer:
        await producer.send("orders", b"a")
        stopped = await paceline.stop("leader of orders/0")
        await producer.send("orders", b"b")
        assert "stopped in order" in await paceline.dump()
        await paceline.restart(stopped)
        await paceline.wait_until_healthy()
        cut_off = await paceline.isolate("leader of orders/0")
        await producer.send("orders", b"c")
        assert await paceline.wait_for_leader("orders", other_than=cut_off) != cut_off
        await paceline.heal()
    assert await paceline.wait_for_high_watermark("orders", offset=3) == 3
    await paceline.wait_for_isr("orders", count=3)


def test_wiped_node_is_filled_again(paceline: BlockingPaceline) -> None:
    paceline.create_topic("orders")
    with paceline.connect() as client, client.producer() as producer:
        producer.send("orders", b"a")
        wiped = paceline.wipe("leader of orders/0")
        producer.send("orders", b"b")
    paceline.restart(wiped)
    paceline.wait_until_healthy()
    for node in paceline.nodes:
        if node != wiped:
            paceline.kill(node)
            break
    paceline.wait_for_leader("orders")
    assert _values(paceline, "orders", 2) == [b"a", b"b"]


@pytest.mark.paceline(nodes=1)
def test_scripted_errors_fail_the_next_requests_only(paceline: BlockingPaceline) -> None:
    assert paceline.nodes == (0,)
    paceline.create_topic("orders")
    paceline.create_topic("other")
    paceline.fail_next("produce", StorageFull("scripted"), topic="orders", count=2)
    paceline.fail_next("produce", NotEnoughReplicas("never asked for"), topic="nowhere")
    with paceline.connect() as client, client.producer() as producer:
        assert producer.send("other", b"x").offset == 0
        assert producer.send("orders", b"y").offset == 0
    with pytest.raises(ValueError, match="unknown operation 'dance'"):
        paceline.fail_next("dance", StorageFull("x"))


def test_a_failing_disk_ends_its_node_alone(paceline: BlockingPaceline) -> None:
    paceline.create_topic("orders")
    with paceline.connect() as client, client.producer() as producer:
        producer.send("orders", b"a")
        broken = paceline.fail_disk("leader of orders/0", write_errno=errno.EIO)
        producer.send("orders", b"b")
    assert paceline.wait_for_leader("orders", other_than=broken) != broken
    assert f"node {broken} ended with exit code 69" in paceline.dump()
    paceline.heal()
    paceline.restart(broken)
    paceline.wait_until_healthy()
    assert _values(paceline, "orders", 2) == [b"a", b"b"]


def test_a_crash_of_a_node_leaves_the_others_and_is_told_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No failure that a node knows of: a bug. It must not look like a cluster that was closed."""
    run = Node.run
    tokens: list[trio.lowlevel.TrioToken] = []
    crash = trio.Event()

    async def run_until_told_to_crash(self: Node) -> None:
        is_first = not tokens
        tokens.append(trio.lowlevel.current_trio_token())
        async with open_scope() as nursery:
            nursery.start_soon(run, self)
            if not is_first:
                await trio.sleep_forever()
            await crash.wait()
            raise RuntimeError("out of tea")

    monkeypatch.setattr(Node, "run", run_until_told_to_crash)
    (tmp_path / "cluster").mkdir()
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(running_cluster(tmp_path / "cluster"))
        cluster.create_topic("orders")
        tokens[0].run_sync_soon(crash.set)
        [crashed] = {0, 1, 2} - set(cluster.wait_for_isr("orders", count=2))
        with cluster.connect() as client, client.producer() as producer:
            producer.send("orders", b"x")
        assert f"node {crashed} crashed" in cluster.dump()
        assert "out of tea" in cluster.dump()
        with pytest.raises(ExceptionGroup, match="nodes of this cluster crashed") as told:
            stack.close()
    assert told.group_contains(RuntimeError, match="out of tea")


def test_what_cannot_be_in_one_process_is_said(paceline: BlockingPaceline) -> None:
    with pytest.raises(Unsupported, match="--paceline-processes"):
        paceline.suspend("controller")
    with pytest.raises(ValueError, match="there is no node 7"):
        paceline.kill(7)
    with pytest.raises(ValueError, match="is no target"):
        paceline.kill("somebody")


def test_waiting_ends_with_the_state_of_everything(paceline: BlockingPaceline) -> None:
    paceline.create_topic("orders")
    with pytest.raises(TimeoutError) as late:
        paceline.wait_for_high_watermark("orders", offset=5, timeout_s=0.2)
    text = str(late.value)
    assert "the high watermark of orders/0 reaches 5: not within 0.2 s" in text
    assert "orders/0: leader" in text


def test_the_clock_of_a_node_jumps(paceline: BlockingPaceline) -> None:
    paceline.create_topic("orders")
    for node in paceline.nodes:
        paceline.set_clock(node, 3_600_000)
    with paceline.connect() as client, client.producer() as producer:
        assert producer.send("orders", b"a").offset == 0


async def test_one_way_cut_of_a_follower(paceline: Paceline) -> None:
    """The leader does not hear the follower, which leaves the ISR; healed, it comes back."""
    await paceline.create_topic("orders")
    leader = await paceline.node("leader of orders/0")
    # The controller must reach the leader, which else never learns of the smaller ISR.
    controller = await paceline.node("controller")
    follower = next(node for node in paceline.nodes if node not in (leader, controller))
    assert await paceline.cut(follower, leader) == (follower, leader)
    async with paceline.connect() as client:
        await _write_until_shrunk(client, paceline)
    await paceline.heal()
    await paceline.wait_for_isr("orders", count=3)


async def _write_until_shrunk(client: Client, paceline: Paceline) -> None:
    async with client.producer() as producer, trio.open_nursery() as nursery:

        async def write() -> None:
            while True:
                await producer.send("orders", b"x")
                await trio.sleep(0.01)

        nursery.start_soon(write)
        await paceline.wait_for_isr("orders", count=2)
        nursery.cancel_scope.cancel()


def test_any_client_can_use_its_addresses(paceline: BlockingPaceline) -> None:
    for listener in ("v1", "native", "http", "peer"):
        addresses = paceline.addresses(listener)
        assert len(set(addresses)) == 3
    admin = AdminClient({"bootstrap.servers": paceline.kafka_bootstrap})
    assert len(admin.list_topics(timeout=30).brokers) == 3
    paceline.create_topic("orders", partitions=2, replication_factor=2)
    info = paceline.partition("orders", 1)
    assert len(info.replicas) == 2
    assert TopicPartition("orders", info.partition) == TopicPartition("orders", 1)


@pytest.mark.paceline(nodes=1)
async def test_group_becomes_stable(paceline: Paceline) -> None:
    await paceline.create_topic("orders", partitions=2)
    async with (
        paceline.connect() as client,
        client.consumer("orders", group="readers") as first,
        client.consumer("orders", group="readers") as second,
    ):
        members = await paceline.wait_for_group_stable("readers", members=2)
        assert members == sorted([first.member_id, second.member_id])
    with pytest.raises(TimeoutError, match="group readers is stable"):
        await paceline.wait_for_group_stable("readers", members=2, timeout_s=0.1)
