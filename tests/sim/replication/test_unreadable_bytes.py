"""Bytes that the disk cannot give (EIO on a read, or a file that was cut) are damage of a range:
told, repaired from another replica, and led by somebody else meanwhile. The node goes on; only
failed writes and syncs end it."""

from __future__ import annotations

import pytest
import structlog.testing
import trio
import trio.testing

from paceline.errors import CorruptMessage
from paceline.types import Acks
from paceline_node.services.admin import damage_view
from tests.integration.replication.cluster import TestNode, batch, produce
from tests.integration.replication.test_replication import values
from tests.sim.replication.memory_cluster import MemoryCluster, memory_cluster

RECORDS = [b"%d" % number * 5000 for number in range(10, 22)]
"""Each some pages long: pages are what disks lose."""
END = len(RECORDS)
SMALL = "16384"


def lose_bytes(cluster: MemoryCluster, node: TestNode, offset: int) -> None:
    """The disk of a node cannot read the batch at ``offset`` any more."""
    partition = node.partition("t")
    found = partition.log.locate(offset, 1, partition.log_end_offset)
    assert found is not None
    end = found.position + found.size
    cluster.disks[node.node_id].make_unreadable(found.file.path, found.position, end)


async def written(cluster: MemoryCluster, **configs: str) -> TestNode:
    """The leader's node."""
    leader = await cluster.written(RECORDS, min_insync_replicas="2", **configs)
    return cluster.nodes[leader.leader]


async def is_whole(cluster: MemoryCluster, *, repaired: int = 1) -> None:
    """Every replica is in sync and has every record; no node saw its disk fail."""
    nodes = cluster.nodes.values()
    await cluster.wait(lambda: sum(n.manager.repairs.repaired_count for n in nodes) >= repaired)
    await cluster.wait(lambda: len(cluster.registration("t").isr) == 3)
    await cluster.wait(lambda: not cluster.registration("t").damaged)
    await cluster.wait(lambda: cluster.all_at("t", END))
    for node in nodes:
        assert not node.failures
        assert values(node.partition("t"), from_follower=True) == RECORDS


async def test_a_reader_makes_the_leader_give_way(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        node = await written(cluster)
        lose_bytes(cluster, node, 5)
        found = node.partition("t").read(5, 1).slice
        assert found is not None
        refused = pytest.raises(CorruptMessage, match="cannot be read")
        with structlog.testing.capture_logs() as logs, refused:
            found.read()
        assert any(each["event"] == "unreadable bytes" for each in logs)
        await cluster.wait(lambda: cluster.registration("t").leader not in (-1, node.node_id))
        await is_whole(cluster)


async def test_a_follower_that_needs_them_makes_the_leader_give_way(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        node = await written(cluster)
        empty = cluster.follower()
        await cluster.stop(empty.node_id)
        cluster.disks[empty.node_id].wipe()
        lose_bytes(cluster, node, 5)
        await cluster.start(empty.node_id)
        await cluster.wait(lambda: cluster.registration("t").leader not in (-1, node.node_id))
        await is_whole(cluster)


@pytest.mark.parametrize("offset", [0, 5, END - 1])
async def test_a_scrub_finds_them_and_the_node_goes_on(
    offset: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with memory_cluster() as cluster:
        await written(cluster)
        node = cluster.follower()
        lose_bytes(cluster, node, offset)
        with structlog.testing.capture_logs() as logs:
            node.manager.repairs.suspect(node.partition("t"), offset)
            await is_whole(cluster)
        (told,) = (each for each in logs if each["event"] == "replica is damaged")
        assert "cannot be read (Input/output error)" in str(told["ranges"])


def cut_file(cluster: MemoryCluster, node: TestNode, offset: int) -> None:
    """Somebody cuts a file of the node inside the batch at ``offset``."""
    log = node.partition("t").log
    log.seal()
    found = log.locate(offset, 1, log.log_end_offset)
    assert found is not None
    disk, path = cluster.disks[node.node_id], found.file.path
    disk.overwrite(path, disk.content(path)[: found.position + 100])


@pytest.mark.parametrize("offset", [pytest.param(0, marks=pytest.mark.slow), 5, END - 1])
async def test_a_scrub_finds_a_file_cut_short_and_the_node_goes_on(
    offset: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with memory_cluster() as cluster:
        await written(cluster)
        node = cluster.follower()
        cut_file(cluster, node, offset)
        with structlog.testing.capture_logs() as logs:
            await node.manager.repairs.scrub_round()
            await is_whole(cluster)
        (told,) = (each for each in logs if each["event"] == "replica is damaged")
        assert f"..{END - 1}: cannot be read (the file ends at byte" in str(told["ranges"])


async def test_a_reader_of_a_file_cut_short_makes_the_leader_give_way(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        node = await written(cluster)
        cut_file(cluster, node, 5)
        found = node.partition("t").read(5, 1).slice
        assert found is not None
        with pytest.raises(CorruptMessage, match="the file ends at byte"):
            found.read()
        await cluster.wait(lambda: cluster.registration("t").leader not in (-1, node.node_id))
        await is_whole(cluster)


async def test_the_round_finds_them_in_the_segment_that_is_written_to(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """An idle log has no other segment, and nobody may read that replica for years."""
    async with memory_cluster() as cluster:
        await written(cluster)
        node = cluster.follower()
        assert len(node.partition("t").log.segments) == 1
        lose_bytes(cluster, node, 5)
        repairs = node.manager.repairs
        await repairs.scrub_round()
        await is_whole(cluster)


async def test_more_of_them_in_what_a_repair_keeps(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        await written(cluster)
        node = cluster.follower()
        node.controller.cut = True
        lose_bytes(cluster, node, 5)
        node.manager.repairs.suspect(node.partition("t"), 5)
        await cluster.wait(lambda: bool(node.manager.repairs.damaged))
        lose_bytes(cluster, node, 1)
        lose_bytes(cluster, node, 9)
        node.controller.cut = False
        await is_whole(cluster)


@pytest.mark.parametrize("offset", [0, 5, END - 1])
@pytest.mark.parametrize("stop", ["stop", "kill"])
async def test_a_start_finds_them(
    stop: str, offset: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with memory_cluster() as cluster:
        await written(cluster)
        node = cluster.follower()
        node.partition("t").log.seal()
        lose_bytes(cluster, node, offset)
        await (cluster.stop if stop == "stop" else cluster.kill)(node.node_id)
        again = await cluster.start(node.node_id, clean=stop == "stop")
        await cluster.wait(lambda: len(cluster.registration("t").isr) == 3)
        again.manager.repairs.suspect(again.partition("t"), offset)  # a trusted start reads little
        await is_whole(cluster)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snap", "epochs.ckpt"])
@pytest.mark.parametrize("place", ["first", "middle"])
async def test_what_is_derived_from_the_log_is_made_anew(
    place: str, suffix: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with memory_cluster() as cluster:
        await written(cluster, segment_bytes=SMALL)
        node = cluster.follower()
        disk, path = cluster.disks[node.node_id], node.partition("t").log.path
        await cluster.stop(node.node_id)
        names = [name for name in disk.list(path) if name.endswith(suffix)]
        assert names
        for name in names:
            at = len(disk.content(f"{path}/{name}")) // 2 if place == "middle" else 0
            disk.make_unreadable(f"{path}/{name}", at, at + 1)
        await cluster.start(node.node_id, clean=True)
        await is_whole(cluster, repaired=0)


async def test_compaction_comes_upon_them(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_cluster() as cluster:
        await written(
            cluster,
            cleanup_policy="compact",
            segment_bytes=SMALL,
            min_cleanable_dirty_ratio="0.01",
        )
        node = cluster.follower()
        lose_bytes(cluster, node, 3)
        await node.manager.compactions.compact_due()
        await is_whole(cluster)


async def test_a_sole_replica_says_what_is_lost_and_goes_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Nobody else has anything: readers are told which offset, and all else goes on."""
    async with memory_cluster(1) as cluster:
        leader = await cluster.written(RECORDS, replicas=1)
        node = cluster.nodes[leader.leader]
        lose_bytes(cluster, node, 5)
        found = leader.read(5, 1).slice
        assert found is not None
        with pytest.raises(CorruptMessage):
            found.read()
        await cluster.wait(lambda: cluster.registration("t").damaged == (node.node_id,))
        with pytest.raises(CorruptMessage, match="offset 5 is damaged"):
            leader.read(5, 1)
        await produce(leader, batch(b"more"), acks=Acks.ALL)
        for offset, value in ((3, RECORDS[3]), (7, RECORDS[7]), (END, b"more")):
            sound = leader.read(offset, 1).slice
            assert sound is not None
            assert value in bytes(sound.read())
        assert not node.failures
        (told,) = damage_view.describe(leader.leader, [leader], {})
        said = told.sentence
        assert said.startswith("t/0 offsets 4..6: cannot be read (Input/output error); no other")
        assert said.endswith("paceline topic trim t --partition 0 --before 7")
        assert not told.is_repaired
        (lost,) = damage_view.ranges(leader.leader, [leader], {})
        assert (lost.start, lost.end, lost.state) == (4, 7, "damaged")
        leader.trim(7)
        assert not damage_view.describe(leader.leader, [leader], {})
        (lost,) = damage_view.ranges(leader.leader, [leader], {})
        assert (lost.start, lost.end, lost.state) == (4, 7, "given-up")
        await cluster.wait(lambda: not cluster.registration("t").damaged)
