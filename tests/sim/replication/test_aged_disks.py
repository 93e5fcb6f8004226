"""All files of one node are as they were some time ago, after all nodes were killed: nobody gives
up what was acknowledged since, because that node says so."""

from __future__ import annotations

import trio.testing

from paceline_node.storage.memory_disk import MemoryDisk
from tests.integration.replication.cluster import batch, produce
from tests.integration.replication.test_replication import values
from tests.sim.replication.memory_cluster import RECORDS, MemoryCluster, memory_cluster

END = len(RECORDS)
BEFORE = 5
"""Records that the aged disk has."""


def kept(disk: MemoryDisk) -> dict[str, bytes]:
    """What a node keeps of its logs: them, and all that it wrote down about them."""
    return {path: disk.content(path) for path, _ in disk.files() if path != "meta.json"}


def age(disk: MemoryDisk, files: dict[str, bytes]) -> None:
    for path, _ in list(disk.files()):
        if path in files:
            disk.overwrite(path, files[path])
        elif path != "meta.json":
            disk.lose(path)


async def write_checkpoints(cluster: MemoryCluster) -> None:
    for node in cluster.nodes.values():
        watermarks = {p.log: p.high_watermark for p in node.manager.table.partitions}
        await node.manager.directory.write_checkpoints(watermarks)


async def test_an_aged_leader_is_followed_by_nobody_who_knows_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        leader = await cluster.written(RECORDS[:BEFORE], min_insync_replicas="2")
        await write_checkpoints(cluster)
        aged = leader.leader
        files = kept(cluster.disks[aged])
        for value in RECORDS[BEFORE:]:
            await produce(leader, batch(value))
        await cluster.wait(lambda: cluster.all_at("t", END))
        await write_checkpoints(cluster)
        first, second = (number for number in cluster.nodes if number != aged)
        for number in (first, second, aged):
            await cluster.kill(number)
        assert set(cluster.registration("t").elr) == {second, aged}
        age(cluster.disks[aged], files)
        await cluster.start(aged)
        await cluster.start(second)
        await cluster.wait(lambda: cluster.registration("t").leader == second, timeout_s=60)
        await cluster.start(first)
        await cluster.wait(lambda: len(cluster.registration("t").isr) == 3, timeout_s=60)
        new = cluster.leader("t")
        assert new is not None
        await produce(new, batch(b"more"))
        await cluster.wait(lambda: cluster.all_at("t", END + 1))
        for node in cluster.nodes.values():
            assert values(node.partition("t"), from_follower=True) == [*RECORDS, b"more"]
            assert not node.failures


async def aged_unnoticed(cluster: MemoryCluster) -> tuple[int, int, int]:
    """All are killed, and one disk has grown old, of which no checkpoint of others tells. Two count
    as complete: ``aged`` and ``second``; ``first`` has all, and the controller does not know."""
    leader = await cluster.written(RECORDS[:BEFORE], min_insync_replicas="2")
    await write_checkpoints(cluster)
    aged = leader.leader
    files = kept(cluster.disks[aged])
    for value in RECORDS[BEFORE:]:
        await produce(leader, batch(value))
    await cluster.wait(lambda: cluster.all_at("t", END))
    first, second = (number for number in cluster.nodes if number != aged)
    for number in (first, second, aged):
        await cluster.kill(number)
    assert set(cluster.registration("t").elr) == {second, aged}
    age(cluster.disks[aged], files)
    return aged, first, second


async def check_whole(cluster: MemoryCluster) -> None:
    await cluster.wait(lambda: len(cluster.registration("t").isr) == 3, timeout_s=60)
    new = cluster.leader("t")
    assert new is not None
    await produce(new, batch(b"more"))
    await cluster.wait(lambda: cluster.all_at("t", END + 1))
    for node in cluster.nodes.values():
        assert values(node.partition("t"), from_follower=True) == [*RECORDS, b"more"]
        assert not node.failures


async def test_the_other_complete_one_is_not_cut(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_cluster() as cluster:
        aged, first, second = await aged_unnoticed(cluster)
        await cluster.start(aged)
        await cluster.start(second)
        await cluster.wait(lambda: cluster.registration("t").leader == second, timeout_s=60)
        await cluster.start(first)
        await check_whole(cluster)


async def test_nor_is_one_that_does_not_count_as_complete(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        aged, first, second = await aged_unnoticed(cluster)
        await cluster.start(aged)
        await cluster.start(first)
        await cluster.wait(lambda: cluster.registration("t").leader == first, timeout_s=60)
        await cluster.start(second)
        await check_whole(cluster)


async def test_without_one_for_good_the_others_go_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        aged, first, _ = await aged_unnoticed(cluster)
        await cluster.start(first)
        await cluster.start(aged)
        await cluster.wait(lambda: len(cluster.registration("t").isr) == 2, timeout_s=60)
        new = cluster.leader("t")
        assert new is not None
        await produce(new, batch(b"more"))
        await cluster.wait(lambda: cluster.all_at("t", END + 1))
        assert values(new) == [*RECORDS, b"more"]
