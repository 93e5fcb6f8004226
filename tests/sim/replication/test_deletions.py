"""Topics that are deleted at a bad moment: whatever is being done to a log then ends quietly, its
files go, and the node goes on (replication/DESIGN 5.9)."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from paceline.wire.native.admin import DeleteTopic
from tests.integration.replication.cluster import TestNode, batch, produce
from tests.integration.replication.test_replication import values
from tests.sim.replication.memory_cluster import RECORDS, MemoryCluster, memory_cluster, rot


async def unharmed(cluster: MemoryCluster, node: TestNode) -> None:
    """Nothing is left of the topic, and the node stores records as before."""
    await trio.sleep(2.0)  # whatever was under way has ended
    assert not node.disk.list("topics")
    await cluster.create_topic("next", replicas=len(cluster.nodes), min_insync_replicas="1")
    leader = cluster.leader("next")
    assert leader is not None
    await produce(leader, batch(b"after"))
    end = leader.log_end_offset
    await cluster.wait(lambda: cluster.all_at("next", end))
    assert values(node.partition("next"), from_follower=True) == [b"after"]
    assert not node.failures


async def test_while_a_new_segment_is_flushed(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_cluster(1) as cluster:
        leader = await cluster.written(RECORDS[:1], replicas=1, segment_bytes="1024")
        node, disk = cluster.nodes[0], cluster.disks[0]
        disk.hang()
        leader.log.seal()
        node.manager.flusher.request(leader.log)
        await trio.sleep(0.1)
        cluster.authority.decide(None, DeleteTopic("t"))
        await trio.sleep(0.2)
        disk.heal()
        await unharmed(cluster, node)


@pytest.mark.parametrize("sync", range(1, 8))
async def test_while_its_offsets_are_checkpointed(
    sync: int, autojump_clock: trio.testing.MockClock
) -> None:
    """At each of the disk's syncs in turn."""
    async with memory_cluster(1) as cluster:
        await cluster.written(RECORDS, replicas=1)
        node, disk = cluster.nodes[0], cluster.disks[0]
        disk.sync_delay_s = lambda: 0.1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.manager.maintenance.checkpoint)
            await trio.sleep(0.1 * sync - 0.05)
            cluster.authority.decide(None, DeleteTopic("t"))
            disk.sync_delay_s = None
        await unharmed(cluster, node)


@pytest.mark.parametrize("step", range(1, 8))
async def test_while_it_is_scrubbed_and_repaired(
    step: int, autojump_clock: trio.testing.MockClock
) -> None:
    """At each of the disk's reads and syncs in turn."""
    async with memory_cluster() as cluster:
        await cluster.written(RECORDS, min_insync_replicas="2")
        node = cluster.follower()
        disk = cluster.disks[node.node_id]
        rot(cluster, node, 5)
        disk.read_delay_s = disk.sync_delay_s = lambda: 0.1
        node.manager.repairs.suspect(node.partition("t"), 5)
        await trio.sleep(0.1 * step - 0.05)
        cluster.authority.decide(None, DeleteTopic("t"))
        disk.read_delay_s = disk.sync_delay_s = None
        await unharmed(cluster, node)
        assert not node.manager.repairs.damaged
