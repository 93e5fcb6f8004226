"""Disks that fail or fill up below running replicas: what is kept, what is refused, and what is
there afterwards (spec replication 2.2, 2.5)."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from tests.integration.replication.test_replication import values
from tests.sim.replication.memory_cluster import RECORDS, memory_cluster, rot


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        ("create", "12.log"),  # the next segment, so that the damaged one is sealed
        ("write", ".replacement"),
        ("sync", ".replacement"),
        ("rename", ".log"),
        ("sync", "damaged.ckpt"),
    ],
)
async def test_a_repair_on_a_failing_disk_ends_the_node(
    operation: str, path: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with memory_cluster() as cluster:
        leader = await cluster.written(RECORDS, min_insync_replicas="2")
        node = cluster.follower()
        rot(cluster, node, 5)
        cluster.disks[node.node_id].fail_next(operation, path=path)
        node.manager.repairs.suspect(node.partition("t"), 5)
        await cluster.wait(lambda: bool(node.failures))
        assert len(node.failures) == 1
        assert node.manager.health.offline
        await cluster.kill(node.node_id)
        again = await cluster.start(node.node_id)
        await cluster.wait(lambda: again.node_id in leader.isr)
        await cluster.wait(lambda: cluster.all_at("t", len(RECORDS)))
        assert values(again.partition("t"), from_follower=True) == RECORDS
