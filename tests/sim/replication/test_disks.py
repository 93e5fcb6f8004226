"""Disks that fail or fill up below running replicas: what is kept, what is refused, and what is
there afterwards (storage/DESIGN 2.2, 2.5)."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
import structlog
import trio
import trio.testing

from paceline.errors import CorruptMessage, StorageError, StorageFull
from paceline.types import Acks
from paceline.wire.native.admin import DeleteTopic
from paceline_node.storage import layout
from paceline_node.storage.memory_disk import MemoryDisk
from tests.integration.replication.cluster import TestNode, batch, produce
from tests.integration.replication.test_replication import values
from tests.sim.replication.memory_cluster import (
    QUIET,
    RECORDS,
    MemoryCluster,
    fill,
    memory_cluster,
    rot,
)

SMALL = "1024"
END = len(RECORDS)


async def comes_back(cluster: MemoryCluster, node: TestNode, expected: list[bytes]) -> None:
    """The node ended for its disk's sake, once; on a disk that works it has everything again."""
    await cluster.wait(lambda: bool(node.failures))
    assert len(node.failures) == 1
    assert node.manager.health.offline
    await cluster.kill(node.node_id)
    cluster.disks[node.node_id].heal()
    again = await cluster.start(node.node_id)
    await cluster.wait(lambda: len(cluster.registration("t").isr) == len(cluster.nodes))
    leader = cluster.leader("t")
    assert leader is not None
    await cluster.wait(lambda: cluster.all_at("t", leader.log_end_offset))
    assert values(again.partition("t"), from_follower=True) == expected


async def is_whole(cluster: MemoryCluster, node: TestNode, expected: list[bytes] = RECORDS) -> None:
    """The node's replica was repaired, once; it is in sync and has everything."""
    repairs = node.manager.repairs
    await cluster.wait(lambda: repairs.repaired_count == 1)
    await cluster.wait(lambda: node.node_id in cluster.registration("t").isr)
    assert not repairs.damaged
    assert not node.partition("t").log.damaged
    assert values(node.partition("t"), from_follower=True) == expected
    assert not node.failures


# --- damage and its repair ------------------------------------------------------------------------


async def rotten(cluster: MemoryCluster, *offsets: int, **configs: str) -> TestNode:
    """A follower, records of which have rotted; nobody has noticed yet."""
    await cluster.written(RECORDS, min_insync_replicas="2", **configs)
    node = cluster.follower()
    for offset in offsets:
        rot(cluster, node, offset)
    return node


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
        node = await rotten(cluster, 5)
        cluster.disks[node.node_id].fail_next(operation, path=path)
        node.manager.repairs.suspect(node.partition("t"), 5)
        await comes_back(cluster, node, RECORDS)


@pytest.mark.parametrize("is_sealed", [True, False], ids=["sealed segment", "active segment"])
async def test_damage_on_a_full_disk_is_told_and_repaired_once_there_is_room(
    is_sealed: bool, autojump_clock: trio.testing.MockClock
) -> None:
    async with memory_cluster() as cluster:
        node = await rotten(cluster, 5)
        if is_sealed:
            node.partition("t").log.seal()
        disk = cluster.disks[node.node_id]
        fill(disk)
        node.manager.repairs.suspect(node.partition("t"), 5)
        await cluster.wait(lambda: node.node_id not in cluster.registration("t").isr)
        await trio.sleep(5)
        with pytest.raises(CorruptMessage):
            node.partition("t").read(5, 1, from_follower=True)
        assert node.manager.repairs.repaired_count == 0
        disk.capacity_bytes = None
        await is_whole(cluster, node)


async def test_damage_is_told_again_until_a_controller_answers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Until then nothing is repaired: whoever counts this replica must stop to do so first. It
    follows nobody, so that it is not counted for anything new."""
    async with memory_cluster() as cluster:
        node = await rotten(cluster, 5)
        leader = cluster.leader("t")
        assert leader is not None
        node.controller.cut = True
        node.manager.repairs.suspect(node.partition("t"), 5)
        await cluster.wait(lambda: bool(node.manager.repairs.damaged))
        await produce(leader, batch(b"more"), acks=Acks.LEADER)
        await trio.sleep(5)
        assert node.partition("t").log_end_offset == END
        assert len(node.manager.repairs.damaged) == 1
        assert node.manager.repairs.repaired_count == 0
        node.controller.cut = False
        await is_whole(cluster, node, [*RECORDS, b"more"])


async def test_a_repair_waits_for_its_leader(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_cluster() as cluster:
        node = await rotten(cluster, 5)
        here, there = cluster.host_of(node.node_id), cluster.host_of(node.partition("t").leader)
        cluster.fabric.cut(here, there)
        node.manager.repairs.suspect(node.partition("t"), 5)
        await trio.sleep(15)
        assert node.manager.repairs.repaired_count == 0
        cluster.fabric.heal(here, there)
        await is_whole(cluster, node)


async def test_damage_that_a_repair_comes_upon_is_repaired_too(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """What is kept of a segment may have rotted as well, and nobody has read it since."""
    async with memory_cluster() as cluster:
        node = await rotten(cluster, 5)
        node.controller.cut = True
        node.manager.repairs.suspect(node.partition("t"), 5)
        await cluster.wait(lambda: bool(node.manager.repairs.damaged))
        rot(cluster, node, 1)
        rot(cluster, node, 9)
        node.controller.cut = False
        await is_whole(cluster, node)


async def test_a_damaged_segment_is_filled_in_several_pieces(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Two holes in one segment, each longer than what one answer carries."""
    pieces = replace(QUIET, repairs=replace(QUIET.repairs, range_max_bytes=100))
    async with memory_cluster(settings=pieces) as cluster:
        node = await rotten(cluster, 2, 3, 4, 8, 9)
        node.manager.repairs.suspect(node.partition("t"), 5)
        await is_whole(cluster, node)


async def test_several_damaged_segments_are_repaired_one_after_the_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    sizable = [b"%d" % each * 400 for each in range(9)]
    async with memory_cluster() as cluster:
        await cluster.written(sizable, min_insync_replicas="2", segment_bytes=SMALL)
        node = cluster.follower()
        assert len(node.partition("t").log.segments) > 3
        for offset in (1, 4, 8):
            rot(cluster, node, offset)
            node.manager.repairs.suspect(node.partition("t"), offset)
        await is_whole(cluster, node, sizable)


async def test_damage_of_a_topic_that_goes_is_forgotten(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        node = await rotten(cluster, 5)
        node.controller.cut = True
        repairs = node.manager.repairs
        repairs.suspect(node.partition("t"), 5)
        await cluster.wait(lambda: bool(repairs.damaged))
        repairs.suspect(node.partition("t"), 5)
        cluster.authority.decide(None, DeleteTopic("t"))
        await cluster.wait(lambda: not repairs.damaged)
        assert not node.failures
        node.controller.cut = False


async def test_what_was_given_up_is_not_looked_at_for_damage(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        leader = await cluster.written(RECORDS, segment_bytes=SMALL)
        node = cluster.nodes[leader.leader]
        rot(cluster, node, 0)
        leader.trim(5)
        leader.suspect(0)
        await trio.sleep(1)
        assert not node.manager.repairs.damaged
        assert leader.is_leader
        assert values(leader) == RECORDS[5:]


async def test_a_leader_sends_no_damaged_records_to_followers(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """One that begins anew meets them first: leadership moves, and both are made whole."""
    async with memory_cluster() as cluster:
        leader = await cluster.written(RECORDS, min_insync_replicas="2")
        node, empty = cluster.nodes[leader.leader], cluster.follower()
        await cluster.stop(empty.node_id)
        cluster.disks[empty.node_id].wipe()
        rot(cluster, node, 5)
        await cluster.start(empty.node_id)
        await cluster.wait(lambda: cluster.registration("t").leader not in (-1, node.node_id))
        await cluster.wait(lambda: len(cluster.registration("t").isr) == 3)
        await cluster.wait(lambda: cluster.all_at("t", END))
        for each in cluster.nodes.values():
            assert values(each.partition("t"), from_follower=True) == RECORDS


async def test_a_leader_known_to_be_damaged_sends_what_is_whole_and_no_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It leads on, because it cannot tell the controller."""
    async with memory_cluster() as cluster:
        leader = await cluster.written(RECORDS, min_insync_replicas="2")
        node, empty = cluster.nodes[leader.leader], cluster.follower()
        await cluster.stop(empty.node_id)
        cluster.disks[empty.node_id].wipe()
        rot(cluster, node, 5)
        node.controller.cut = True
        leader.suspect(5)
        await cluster.wait(lambda: bool(node.manager.repairs.damaged))
        again = await cluster.start(empty.node_id)
        await trio.sleep(5)
        assert leader.is_leader
        assert again.partition("t").log_end_offset == 5
        with pytest.raises(CorruptMessage):
            leader.read(5, 1)
        node.controller.cut = False
        await cluster.wait(lambda: len(cluster.registration("t").isr) == 3)
        await cluster.wait(lambda: cluster.all_at("t", END))
        for each in cluster.nodes.values():
            assert values(each.partition("t"), from_follower=True) == RECORDS


# --- checkpoints ----------------------------------------------------------------------------------


async def marks(node: TestNode) -> list[int]:
    return list((await layout.read_offsets(node.disk, layout.Offsets.HIGH_WATERMARK)).values())


async def test_old_checkpoints_hold_while_there_is_no_room_for_new_ones(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster(1) as cluster:
        leader = await cluster.written(RECORDS, replicas=1)
        node, disk = cluster.nodes[0], cluster.disks[0]
        await node.manager.maintenance.checkpoint()
        await produce(leader, batch(b"more"))
        fill(disk)
        await node.manager.maintenance.checkpoint()
        assert await marks(node) == [END]
        disk.capacity_bytes = None
        await node.manager.maintenance.checkpoint()
        assert await marks(node) == [END + 1]
        assert not node.failures


@pytest.mark.parametrize("path", ["logstart", "hw", "recovery", "epochs"])
async def test_a_checkpoint_that_fails_ends_the_node(
    path: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with memory_cluster(1) as cluster:
        await cluster.written(RECORDS, replicas=1)
        cluster.disks[0].fail_next("sync", path=path)
        await cluster.nodes[0].manager.maintenance.checkpoint()
        await comes_back(cluster, cluster.nodes[0], RECORDS)


async def test_a_trim_is_told_once_every_replica_has_room_to_write_it_down(
    autojump_clock: trio.testing.MockClock,
) -> None:
    brief = replace(QUIET, maintenance=replace(QUIET.maintenance, checkpoint_s=0.5))
    async with memory_cluster(settings=brief) as cluster:
        leader = await cluster.written(RECORDS)
        disk = cluster.disks[cluster.follower().node_id]
        fill(disk)
        told: list[int] = []
        leader.trim(4)
        leader.trims.when_reached(4, lambda: told.append(leader.trims.low_watermark))
        with structlog.testing.capture_logs() as logs:
            await trio.sleep(1)
        assert told == []
        warnings = [each for each in logs if each["event"] == "no room for checkpoints"]
        assert 0 < len(warnings) < 10, "said now and then, not with every fetch"
        assert values(leader) == RECORDS[4:]
        disk.capacity_bytes = None
        await cluster.wait(lambda: bool(told))
        assert told == [4]


@pytest.mark.slow
async def test_a_follower_that_cannot_write_down_a_trim_leaves_and_comes_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """One follower's full disk stopped all trims, and nobody was told that it was full."""
    brief = replace(QUIET, maintenance=replace(QUIET.maintenance, checkpoint_s=10.0))
    async with memory_cluster(settings=brief) as cluster:
        leader = await cluster.written(RECORDS, min_insync_replicas="2")
        node = cluster.follower()
        fill(cluster.disks[node.node_id])
        told: list[int] = []
        leader.trim(4)
        leader.trims.when_reached(4, lambda: told.append(leader.trims.low_watermark))
        await cluster.wait(lambda: bool(told))
        assert told == [4]
        assert node.node_id not in cluster.registration("t").isr
        for _ in range(30):
            assert node.manager.health.degraded, "for as long as it is full"
            assert node.manager.health.shortage == ("the disk is full: no room for checkpoints",)
            assert node.node_id not in cluster.registration("t").isr
            await trio.sleep(1)
        cluster.disks[node.node_id].capacity_bytes = None
        await cluster.wait(lambda: node.node_id in cluster.registration("t").isr)
        assert node.partition("t").replica.durable_start == 4
        await cluster.wait(lambda: not node.manager.health.degraded)
        assert not node.failures


async def test_a_trim_that_cannot_be_written_down_ends_the_node(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster(1) as cluster:
        leader = await cluster.written(RECORDS, replicas=1)
        cluster.disks[0].fail_next("sync", path="logstart")
        told: list[int] = []
        leader.trim(4)
        leader.trims.when_reached(4, lambda: told.append(4))
        await cluster.wait(lambda: bool(cluster.nodes[0].failures))
        assert told == []
        await comes_back(cluster, cluster.nodes[0], RECORDS)


# --- retention ------------------------------------------------------------------------------------


async def test_what_expires_is_deleted_on_each_replica_by_itself(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        leader = await cluster.written(
            [b"x" * 400] * 9, segment_bytes=SMALL, retention_bytes="1500"
        )
        node = cluster.nodes[leader.leader]
        assert len(leader.log.segments) > 3
        await node.manager.maintenance.enforce_retention()
        start = leader.log_start_offset
        assert 0 < start < 9
        assert values(leader) == [b"x" * 400] * (9 - start)
        await node.manager.maintenance.checkpoint()
        # Followers learn where the log begins, and what they gave up is told back.
        await cluster.wait(lambda: leader.trims.low_watermark == start)
        assert all(n.partition("t").log_start_offset == start for n in cluster.nodes.values())


async def test_retention_on_a_failing_disk_ends_the_node(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The active segment has expired, too, so it is sealed first."""
    async with memory_cluster(1) as cluster:
        leader = await cluster.written(RECORDS, replicas=1, segment_ms="60000")
        await trio.sleep(61)
        cluster.disks[0].fail_next("create", path=".log")
        await cluster.nodes[0].manager.maintenance.enforce_retention()
        assert cluster.nodes[0].failures, "known before anybody writes"
        with pytest.raises(StorageError):
            await produce(leader, batch(b"refused"))
        await comes_back(cluster, cluster.nodes[0], RECORDS)


async def test_retention_on_a_full_disk_deletes_all_the_same(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster(1) as cluster:
        leader = await cluster.written(
            [b"x" * 400] * 9, replicas=1, segment_bytes=SMALL, segment_ms="60000"
        )
        await trio.sleep(61)
        fill(cluster.disks[0])
        cluster.alter_topic("t", retention_ms="1000")
        await cluster.nodes[0].manager.maintenance.enforce_retention()
        assert leader.log_start_offset == leader.log.segments[-1].base_offset > 0
        await cluster.wait(lambda: len(leader.log.segments) == 1)
        assert not cluster.nodes[0].failures
        await produce(leader, batch(b"there is room again"))


async def test_what_expired_before_a_restart_is_read_before_it_is_deleted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster(1) as cluster:
        await cluster.written([b"x" * 400] * 9, replicas=1, segment_bytes=SMALL, segment_ms="60000")
        await cluster.nodes[0].manager.maintenance.checkpoint()
        await cluster.kill(0)
        node = await cluster.start(0)
        await cluster.wait(lambda: cluster.leader("t") is not None)
        log = node.partition("t").log
        assert not log.segments[0].is_newest_proven
        await trio.sleep(61)
        cluster.alter_topic("t", retention_ms="1000")
        await node.manager.maintenance.enforce_retention()
        assert log.log_start_offset == 0
        await trio.sleep(3600)  # maintenance's round, which reads and then deletes
        await cluster.wait(lambda: log.log_start_offset == log.log_end_offset)
        assert not node.failures


# --- room for writes ------------------------------------------------------------------------------


class BlindDisk:
    """A disk that cannot say how much room there is, once told to."""

    def __init__(self, disk: MemoryDisk) -> None:
        self._disk = disk
        self.is_blind = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._disk, name)

    def free_bytes(self) -> int:
        if self.is_blind:
            raise OSError(errno.EIO, "Input/output error")
        return self._disk.free_bytes()


async def test_writes_are_refused_below_the_floor_of_free_space(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """By default a gibibyte of a disk of this size."""
    floor = replace(QUIET, maintenance=replace(QUIET.maintenance, min_free_bytes=None))
    async with memory_cluster(1, settings=floor) as cluster:
        leader = await cluster.written(RECORDS, replicas=1)
        health, disk = cluster.nodes[0].manager.health, cluster.disks[0]
        disk.capacity_bytes = 1 << 30
        await cluster.wait(lambda: health.storage_full)
        assert health.degraded
        with pytest.raises(StorageFull, match=r"disk\.min_free"):
            await produce(leader, batch(b"refused"))
        assert values(leader) == RECORDS
        disk.capacity_bytes = None
        await cluster.wait(lambda: not health.degraded)
        await produce(leader, batch(b"taken"))


async def test_a_node_with_a_refused_append_wants_another_to_lead_for_a_while(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster(1) as cluster:
        leader = await cluster.written(RECORDS, replicas=1)
        node, disk = cluster.nodes[0], cluster.disks[0]
        fill(disk)
        for _ in range(2):
            with pytest.raises(StorageFull):
                await produce(leader, batch(b"refused"))
        assert node.manager.health.degraded
        assert leader.log_end_offset == END
        disk.capacity_bytes = None
        await produce(leader, batch(b"taken"))
        await cluster.wait(lambda: not node.manager.health.degraded)
        assert values(leader) == [*RECORDS, b"taken"]


async def test_a_disk_that_cannot_tell_its_room_ends_the_node(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster(1) as cluster:
        await cluster.written(RECORDS, replicas=1)
        await cluster.stop(0)
        blind: list[BlindDisk] = []

        def wrap(disk: MemoryDisk) -> BlindDisk:
            blind.append(BlindDisk(disk))
            return blind[0]

        node = await cluster.start(0, wrap=wrap)  # type: ignore[arg-type]
        blind[0].is_blind = True
        await cluster.wait(lambda: bool(node.failures))
        blind[0].is_blind = False
        await comes_back(cluster, node, RECORDS)


# --- followers ------------------------------------------------------------------------------------


async def test_a_follower_without_room_leaves_and_comes_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        leader = await cluster.written(RECORDS, min_insync_replicas="2")
        node = cluster.follower()
        disk = cluster.disks[node.node_id]
        fill(disk)
        await produce(leader, batch(b"more"))
        assert node.node_id not in cluster.registration("t").isr
        assert node.manager.health.no_room
        assert node.partition("t").log_end_offset == END
        disk.capacity_bytes = None
        await cluster.wait(lambda: node.node_id in cluster.registration("t").isr)
        assert values(node.partition("t"), from_follower=True) == [*RECORDS, b"more"]
        assert not node.failures


async def test_a_follower_whose_append_fails_ends(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_cluster() as cluster:
        leader = await cluster.written(RECORDS, min_insync_replicas="2")
        node = cluster.follower()
        cluster.disks[node.node_id].fail_next("write", path=".log")
        await produce(leader, batch(b"more"))
        await comes_back(cluster, node, [*RECORDS, b"more"])


@pytest.mark.parametrize("acks", [Acks.ALL, Acks.LEADER, Acks.NONE])
async def test_a_leader_whose_append_fails_ends_and_nothing_acknowledged_is_lost(
    acks: Acks, autojump_clock: trio.testing.MockClock
) -> None:
    async with memory_cluster() as cluster:
        leader = await cluster.written(RECORDS, min_insync_replicas="2")
        node = cluster.nodes[leader.leader]
        cluster.disks[node.node_id].fail_next("write", path=".log")
        with pytest.raises(StorageError):
            await produce(leader, batch(b"failed"), acks=acks)
        await comes_back(cluster, node, RECORDS)
