"""What replicas out of sync are sent may be bounded, and the bound may change while they fetch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import trio

from paceline_node.settings import Settings
from tests.integration.node.machines import connect
from tests.integration.node.nodes import Cluster, cluster

pytestmark = pytest.mark.virtual_time

SIZE = 50_000
RECORDS = 60
RATE = 200_000


async def write(nodes: Cluster) -> None:
    async with connect(nodes.bootstrap_native) as client, client.producer() as producer:
        for _ in range(RECORDS):
            await producer.send("orders", b"x" * SIZE, partition=0)


def bound(nodes: Cluster, number: int, rate: int) -> None:
    """As SIGHUP does with another file."""
    process = nodes.process(number)
    now: Settings = process.settings
    changed = replace(now.replication, catchup_bytes_per_s=rate)
    process.reload(replace(now, replication=changed))


async def test_a_replica_comes_back_no_faster_than_it_is_told(tmp_path: Path) -> None:
    flags = {"replication.catchup_bytes_per_s": str(RATE)}
    async with cluster(tmp_path, flags=flags) as nodes:
        async with connect(nodes.bootstrap_native) as client:
            await client.admin.create_topic("orders", assignment=[(0, 1, 2)])
        await nodes.in_sync("orders", 0, 0, 1, 2)
        await nodes.stop(2)
        began = trio.current_time()
        await write(nodes)
        in_sync_s = trio.current_time() - began
        began = trio.current_time()
        await nodes.start(2)
        await nodes.in_sync("orders", 0, 0, 1, 2)
        took_s = trio.current_time() - began
        least_s = (RECORDS * SIZE - RATE) / RATE * 0.8
        assert in_sync_s < least_s < took_s, "who is in sync is not held up, who is not is"


async def test_the_bound_may_change_while_a_replica_fetches(tmp_path: Path) -> None:
    async with cluster(tmp_path, flags={"replication.catchup_bytes_per_s": "0"}) as nodes:
        async with connect(nodes.bootstrap_native) as client:
            await client.admin.create_topic("orders", assignment=[(0, 1, 2)])
        await nodes.in_sync("orders", 0, 0, 1, 2)
        await nodes.stop(2)
        await write(nodes)
        await nodes.start(2)
        await trio.sleep(20)
        assert sorted((await nodes.partition("orders", 0)).isr) == [0, 1]
        for number in range(2):
            bound(nodes, number, -1)
        await nodes.in_sync("orders", 0, 0, 1, 2)


async def test_who_writes_with_acks_all_is_not_kept_waiting(tmp_path: Path) -> None:
    """Two of three are gone: nobody holds up the one that comes back first."""
    async with cluster(tmp_path, flags={"replication.catchup_bytes_per_s": "0"}) as nodes:
        async with connect(nodes.bootstrap_native) as client:
            await client.admin.create_topic("orders", assignment=[(0, 1, 2)])
        await nodes.in_sync("orders", 0, 0, 1, 2)
        await nodes.stop(2)
        await write(nodes)
        await nodes.stop(1)
        await nodes.start(1)
        await nodes.in_sync("orders", 0, 0, 1)
