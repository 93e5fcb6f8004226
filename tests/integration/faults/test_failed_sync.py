"""A sync that fails ends the node; nothing of its group is synced again (storage/DESIGN
2.2; row 20 of tests/sim/README.md)."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.types import NodeId
from paceline_node.app.boot import open_directory
from paceline_node.app.node import EXIT_DISK_FAILED
from paceline_node.env import Env
from paceline_node.net.network import RealNetwork
from paceline_node.storage.disk import RealDisk
from paceline_node.storage.incarnation import Verdict
from tests.integration.faults.faulty import (
    FaultyCluster,
    FaultyHost,
    faulty_cluster,
    is_log,
    is_metadata,
)
from tests.integration.faults.writing import Writer, assert_complete, create, lead, writing
from tests.integration.node.machines import data_dir

pytestmark = pytest.mark.timeout(120)


async def lose_a_sync(
    nodes: FaultyCluster, victim: int, of: Callable[[str], bool] = is_log
) -> None:
    """Let one sync fail on ``victim``, and check how it ends and what it leaves."""
    disk = nodes.disks[victim]
    disk.fail_next_sync(of)
    await nodes.ended(victim)
    assert nodes.exits[victim] == EXIT_DISK_FAILED
    assert any(map(of, disk.lost_group)), disk.lost_group
    assert not set(disk.lost_group) & set(disk.synced_after_loss), "a lost group was synced again"
    left = RealDisk(str(data_dir(nodes.directory, victim)))
    env = Env(FaultyHost(), left, RealNetwork(), random.Random(1))
    found = await open_directory(env, NodeId(victim))
    left.close()
    assert found is not None
    assert found.previous is not None
    assert not found.previous.clean
    assert found.verdict is Verdict.UNTRUSTED, "it would be trusted with what the disk may lack"


async def come_back(nodes: FaultyCluster, victim: int, writer: Writer) -> None:
    """Restart on the same directory: it counts for nothing until it has caught up."""
    await nodes.start(victim)
    await nodes.in_sync("t", 0, 0, 1, 2)
    await lead(nodes, "t", victim)
    await writer.more()


async def test_a_failed_sync_of_metadata_ends_the_node_too(tmp_path: Path) -> None:
    async with faulty_cluster(tmp_path) as nodes:
        await create(nodes, "t")
        victim = (await nodes.status(0)).controller
        async with writing(nodes, "t", via=(victim + 1) % 3) as writer:
            await lose_a_sync(nodes, victim, is_metadata)
            await writer.more()
            await come_back(nodes, victim, writer)
        await assert_complete(nodes, writer)


async def test_a_failed_sync_ends_a_leader_and_a_follower_and_loses_nothing(
    tmp_path: Path,
) -> None:
    async with faulty_cluster(tmp_path) as nodes:
        leader = await create(nodes, "t")
        follower, via = (leader + 1) % 3, (leader + 2) % 3
        async with writing(nodes, "t", via=via) as writer:
            for victim in (leader, follower):
                await writer.more()
                await lose_a_sync(nodes, victim)
                await writer.more()
                assert await nodes.leader("t", 0) != victim
                assert victim not in (await nodes.partition("t", 0, via=via)).isr
                await come_back(nodes, victim, writer)
                await lead(nodes, "t", leader)
        await assert_complete(nodes, writer)
