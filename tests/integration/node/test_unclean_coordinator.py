"""``__transactions`` is led on by a stale replica, by an operator's word: what applications that
start again are told is true."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import trio

from tests.integration.client.test_transactional import seen
from tests.integration.node.cursus_client import CursusClient
from tests.integration.node.machines import connect, data_dir
from tests.integration.node.nodes import Cluster, cluster
from tests.integration.node.test_cursus_transactions import Unreachable
from tests.integration.node.test_unclean_election import paceline
from tests.integration.node.test_unclean_election import told as said_by_health

THREE = {"topics.replication_factor": "3", "topics.min_insync_replicas": "2"}
TOPIC = "__transactions"


async def run_native(nodes: Cluster, up: int, *values: bytes) -> None:
    """An application that starts, commits each of these by itself, and ends."""
    async with (
        connect(nodes.up[up].native) as client,
        client.transactional_producer("app") as producer,
    ):
        for value in values:
            async with producer.transaction():
                await producer.send("native", value, partition=0)


async def run_cursus(nodes: Cluster, leader: int, value: str) -> int:
    """The same of the other protocol; the epoch that it had."""
    async with CursusClient(nodes.up[leader].addresses["cursus"]) as client:
        who = await client.ok("INIT_PRODUCER_ID transactional_id=copier")
        fence = f"transactional_id=copier producerId={who['producerId']} epoch={who['epoch']}"
        await client.ok(f"BEGIN_TXN {fence}")
        publish = f"TXN_PUBLISH {fence} topic=cursus partition=0 seqNum=1 message={value}"
        await client.ok(publish)
        told = await client.say(f"END_TXN {fence} result=commit")
        with trio.fail_after(60):
            while "ask again" in told:
                told = await client.say(f"END_TXN {fence} result=commit")
        assert told == "OK transactional_id=copier state=committed messages=1 offsets=0"
        return int(who["epoch"])


async def leader_of(nodes: Cluster) -> tuple[int, tuple[int, ...]]:
    """Who coordinates, once somebody does, and all replicas."""
    with trio.fail_after(60):
        while True:
            done = await paceline(nodes, "topic", "describe", TOPIC)
            [found] = json.loads(done.stdout)["partitions"]
            if found["leader"] >= 0:
                return found["leader"], tuple(found["replicas"])
            await trio.sleep(0.1)


@pytest.mark.slow
async def test_what_is_told_after_the_coordinator_was_set_back_is_there(tmp_path: Path) -> None:
    """The coordinator gave out identities that the logs knew with their sequences: batches were
    taken for old ones, and the commit was answered OK. A staged one was in prepare_commit for
    ever."""
    async with cluster(tmp_path, 3, THREE) as nodes:
        async with connect(nodes.up[0].native) as client:
            for topic in ("native", "cursus"):
                await client.admin.create_topic(topic, partitions=1)
            await run_native(nodes, 0, b"before")
            leader, replicas = await leader_of(nodes)
            await run_cursus(nodes, leader, "before")
        stale = next(node for node in replicas if node != leader)
        others = [node for node in replicas if node != stale]
        await nodes.crash(stale)
        await run_native(nodes, leader, b"forgotten")
        for number in range(3):
            epoch = await run_cursus(nodes, leader, f"forgotten {number}")
        await nodes.crash(*others)
        for number in others:
            [log] = data_dir(tmp_path, number).glob(f"topics/{TOPIC}-0.*")
            shutil.rmtree(log)
        await nodes.start_all(replicas)
        await said_by_health(nodes, lambda said: len(said["ranges"]) == 3)
        elect = ("role", "elect", TOPIC, "0", "--node", str(stale), "--unclean", "--yes")
        await paceline(nodes, *elect)
        await said_by_health(nodes, lambda said: said["healthy"])
        await run_native(nodes, stale, b"after 0", b"after 1")
        async with connect(nodes.up[stale].native) as client:
            values = await seen(client, "native")
            assert values == [b"after 0", b"after 1", b"before", b"forgotten"]
            leader, _ = await leader_of(nodes)
            assert await run_cursus(nodes, leader, "after") > epoch
            forgotten = [b"forgotten %d" % number for number in range(3)]
            assert await seen(client, "cursus") == [b"after", b"before", *forgotten]


async def commit_staged(client: CursusClient, name: str, *, waits: bool = True) -> str:
    """Commit a record for each of two partitions; how to ask what became of it."""
    who = await client.ok(f"INIT_PRODUCER_ID transactional_id={name}")
    fence = f"transactional_id={name} producerId={who['producerId']} epoch={who['epoch']}"
    await client.ok(f"BEGIN_TXN {fence}")
    for number in range(2):
        words = f"topic=cursus partition={number} seqNum={number + 1} message={name}"
        await client.ok(f"TXN_PUBLISH {fence} {words}")
    commit = f"END_TXN {fence} result=commit"
    if waits:
        await committed(client, commit)
    else:
        await client.send(commit.encode())
    return commit


async def committed(client: CursusClient, commit: str) -> None:
    with trio.fail_after(60):
        while "state=committed" not in await client.say(commit):  # noqa: ASYNC110
            await trio.sleep(0.1)


async def producers_forgotten(nodes: Cluster) -> None:
    """Wait until no replica knows any producer."""
    with trio.fail_after(60):
        for up in nodes.up.values():
            for number in range(2):
                partition = up.node.broker.replicas.table.get("cursus", number)
                assert partition is not None
                while len(partition.log.producers):  # noqa: ASYNC110  no event tells
                    await trio.sleep(0.05)


@pytest.mark.slow
async def test_what_was_stored_before_it_was_set_back_is_not_stored_again(tmp_path: Path) -> None:
    """The new coordinator knew a transaction as decided that was complete, and of whose producer
    the partitions knew nothing any more."""
    flags = {**THREE, "log.producer_ttl_ms": "1000", "log.producer_check_ms": "100"}
    async with cluster(tmp_path, 3, flags) as nodes:
        async with connect(nodes.up[0].native) as client:
            await client.admin.create_topic("cursus", partitions=2)
        for number in range(2):
            await nodes.in_sync("cursus", number, 0, 1, 2)
        leader, replicas = await leader_of(nodes)
        stale = next(node for node in replicas if node != leader)
        others = [node for node in replicas if node != stale]
        dead = Unreachable(nodes.up[leader].node.broker.transactions.rpc, 1)
        address = nodes.up[leader].addresses["cursus"]
        async with CursusClient(address) as waiting, CursusClient(address) as asking:
            commit = await commit_staged(waiting, "first", waits=False)
            with trio.fail_after(60):
                await dead.refused.wait()
            await nodes.crash(stale)
            dead.missing.clear()
            await committed(asking, commit)
            await producers_forgotten(nodes)
        await nodes.crash(*others)
        for number in others:
            [log] = data_dir(tmp_path, number).glob(f"topics/{TOPIC}-0.*")
            shutil.rmtree(log)
        await nodes.start_all(replicas)
        await said_by_health(nodes, lambda said: len(said["ranges"]) == 3)
        elect = ("role", "elect", TOPIC, "0", "--node", str(stale), "--unclean", "--yes")
        await paceline(nodes, *elect)
        await said_by_health(nodes, lambda said: said["healthy"])
        leader, _ = await leader_of(nodes)
        async with CursusClient(nodes.up[leader].addresses["cursus"]) as client:
            # Stored behind whatever was decided before.
            await commit_staged(client, "second")
        async with connect(nodes.up[leader].native) as client:
            assert await seen(client, "cursus") == [b"first", b"first", b"second", b"second"]
