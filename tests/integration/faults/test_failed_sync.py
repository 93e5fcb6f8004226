"""A sync that fails ends the node; nothing of its group is synced again (SETTLED B13, spec
replication 2.2 rule 3, failure table row 20)."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline_node.app.node import EXIT_DISK_FAILED
from paceline_node.storage import incarnation
from paceline_node.storage.disk import RealDisk
from tests.integration.faults.faulty import FaultyCluster, faulty_cluster, is_log
from tests.integration.faults.writing import Writer, assert_complete, create, lead, writing
from tests.integration.node.nodes import data_dir

pytestmark = pytest.mark.timeout(120)


async def lose_a_sync(nodes: FaultyCluster, victim: int) -> None:
    """Let one sync of records fail on ``victim``, and check how it ends."""
    disk = nodes.disks[victim]
    disk.fail_next_sync()
    await nodes.ended(victim)
    assert nodes.exits[victim] == EXIT_DISK_FAILED
    assert any(map(is_log, disk.lost_group)), disk.lost_group
    assert not set(disk.lost_group) & set(disk.synced_after_loss), "a lost group was synced again"
    left = RealDisk(str(data_dir(nodes.directory, victim)))
    previous = await incarnation.read(left)
    left.close()
    assert previous is not None
    assert not previous.clean


async def come_back(nodes: FaultyCluster, victim: int, writer: Writer) -> None:
    """Restart on the same directory: pages may be missing below what the page cache shows, so it
    counts for nothing until it has caught up."""
    await nodes.start(victim)
    await nodes.in_sync("t", 0, 0, 1, 2)
    await lead(nodes, "t", victim)
    await writer.more()


@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_a_failed_sync_ends_the_node_and_loses_nothing(tmp_path: Path, role: str) -> None:
    async with faulty_cluster(tmp_path) as nodes:
        leader = await create(nodes, "t")
        victim = leader if role == "leader" else (leader + 1) % 3
        via = (leader + 2) % 3
        async with writing(nodes, "t", via=via) as writer:
            await writer.more()
            await lose_a_sync(nodes, victim)
            await writer.more()
            assert await nodes.leader("t", 0) != victim
            assert victim not in (await nodes.partition("t", 0, via=via)).isr
            await come_back(nodes, victim, writer)
        await assert_complete(nodes, writer)


async def test_all_replicas_lose_a_sync_one_after_the_other(tmp_path: Path) -> None:
    """Whoever lost a sync must not be what keeps a record: at the end every copy was made anew."""
    async with faulty_cluster(tmp_path) as nodes:
        leader = await create(nodes, "t")
        for victim in (leader, (leader + 1) % 3, (leader + 2) % 3):
            async with writing(nodes, "t", via=(victim + 1) % 3) as writer:
                await writer.more()
                await lose_a_sync(nodes, victim)
                await writer.more()
                await come_back(nodes, victim, writer)
            await assert_complete(nodes, writer)
