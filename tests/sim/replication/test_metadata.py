"""Metadata that change at a bad moment: topics and replicas that go while their logs are being
made, while a node is down, or come while there is no room (replication/DESIGN 3.1, 5.9)."""

from __future__ import annotations

import errno

import pytest
import trio
import trio.testing

from paceline.types import NodeId
from paceline.wire.native.admin import (
    AddPartitions,
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    ReassignPartition,
)
from paceline.wire.peer.control import CreateSegmentRequest, DeleteSegmentRequest
from paceline_node.replication.log_directory import STRAY_KEPT_MS
from paceline_node.settings.flush_mode import FlushMode
from paceline_node.storage import layout
from tests.integration.replication.cluster import TestNode, batch, produce
from tests.integration.replication.test_replication import values
from tests.sim.replication.memory_cluster import (
    RECORDS,
    MemoryCluster,
    fill,
    memory_cluster,
)


def logs(node: TestNode) -> list[str]:
    """Names of the topics whose logs lie on a node's disk, strays among them with ``stray``."""
    found = []
    for name in node.disk.list("topics"):
        word, _, rest = name.partition("-")
        found.append("stray" if word == "stray" else f"{word}-{rest.partition('.')[0]}")
    return found


def reassign(cluster: MemoryCluster, *replicas: int) -> None:
    nodes = tuple(NodeId(number) for number in replicas)
    cluster.authority.decide(None, ReassignPartition("t", 0, nodes))


# --- while a log is being made --------------------------------------------------------------------


async def test_what_is_deleted_before_its_log_is_made_leaves_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Made, waiting for a turn, and not begun at all."""
    async with memory_cluster(1) as cluster:
        node, disk = cluster.nodes[0], cluster.disks[0]
        disk.hang()
        cluster.authority.decide(None, CreateTopic("t", 20, 1, {}))
        await trio.sleep(0.1)
        cluster.authority.decide(None, CreateTopic("queued", 1, 1, {}))
        cluster.authority.decide(None, CreateTopic("kept", 1, 1, {}))
        cluster.authority.decide(None, DeleteTopic("t"))
        cluster.authority.decide(None, DeleteTopic("queued"))
        disk.heal()
        await cluster.wait(lambda: node.manager.table.get("kept", 0) is not None)
        await trio.sleep(1)
        assert logs(node) == ["kept-0"]
        assert [str(each) for each in node.manager.table.partitions] == ["kept/0"]
        assert not node.failures


async def test_a_segment_deleted_while_its_log_is_made_leaves_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster(1) as cluster:
        node, disk = cluster.nodes[0], cluster.disks[0]
        cluster.authority.decide(None, CreateSegmentRequest("s", 0))
        cluster.authority.decide(None, CreateSegmentRequest("s", 1))
        await cluster.wait(lambda: len(node.manager.table.partitions) == 2)
        disk.hang()
        cluster.authority.decide(None, CreateSegmentRequest("s", 2))
        await trio.sleep(0.1)
        cluster.authority.decide(None, CreateSegmentRequest("s", 3))
        for number in (0, 2, 3):
            cluster.authority.decide(None, DeleteSegmentRequest("s", number))
        disk.heal()
        await cluster.wait(lambda: logs(node) == ["s-1"])
        assert [each.partition for each in node.manager.table.partitions] == [1]


async def test_a_replica_not_wanted_any_more_while_it_is_made_is_set_aside(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Nothing is deleted because somebody else has it now."""
    async with memory_cluster() as cluster:
        leader = await cluster.written(RECORDS, replicas=2)
        third = cluster.outsider()
        cluster.disks[third.node_id].hang()
        reassign(cluster, leader.leader, third.node_id)
        await trio.sleep(0.1)
        reassign(cluster)
        cluster.disks[third.node_id].heal()
        await cluster.wait(lambda: logs(third) == ["stray"])
        assert third.manager.table.get("t", 0) is None
        assert values(leader) == RECORDS


async def test_configuration_changed_while_a_log_is_made_is_the_logs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster(1) as cluster:
        node, disk = cluster.nodes[0], cluster.disks[0]
        disk.hang()
        cluster.authority.decide(None, CreateTopic("t", 1, 1, {"segment.bytes": "2048"}))
        await trio.sleep(0.1)
        cluster.authority.decide(None, AlterTopic("t", {"segment.bytes": "4096"}))
        disk.heal()
        await cluster.wait(lambda: cluster.leader("t") is not None)
        assert node.partition("t").log.settings.segment_bytes == 4096


# --- no room for a log ----------------------------------------------------------------------------


async def test_a_log_without_room_is_made_once_there_is_some(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster(1) as cluster:
        leader = await cluster.written(RECORDS, replicas=1)
        node, disk = cluster.nodes[0], cluster.disks[0]
        fill(disk)
        cluster.authority.decide(None, CreateTopic("late", 1, 1, {}))
        await trio.sleep(3)
        assert node.manager.table.get("late", 0) is None
        assert logs(node) == ["t-0"], "nothing half made is left"
        assert values(leader) == RECORDS
        disk.capacity_bytes = None
        await cluster.wait(lambda: cluster.leader("late") is not None)
        await produce(node.partition("late"), batch(b"first"))
        assert not node.failures


async def test_deleting_a_topic_makes_room_for_the_log_that_waits(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster(1) as cluster:
        await cluster.written(RECORDS, replicas=1)
        node, disk = cluster.nodes[0], cluster.disks[0]
        fill(disk)
        cluster.authority.decide(None, CreateTopic("late", 1, 1, {}))
        await trio.sleep(0.5)
        assert node.manager.table.get("late", 0) is None
        cluster.authority.decide(None, DeleteTopic("t"))
        # Sooner than the next look for room, which is a second after the last.
        await cluster.wait(lambda: cluster.leader("late") is not None, timeout_s=0.3)
        assert logs(node) == ["late-0"]


async def test_a_disk_that_fails_as_a_log_is_made_ends_the_node(
    autojump_clock: trio.testing.MockClock,
) -> None:
    eio = pytest.RaisesExc(OSError, check=lambda error: error.errno == errno.EIO)
    with pytest.RaisesGroup(eio, flatten_subgroups=True):
        async with memory_cluster(1) as cluster:
            cluster.disks[0].fail_next("create", path="partition.metadata")
            cluster.authority.decide(None, CreateTopic("t", 1, 1, {}))
            await trio.sleep(1)


# --- replicas that moved --------------------------------------------------------------------------


async def test_a_replica_that_moved_is_kept_for_a_while_and_then_deleted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        leader = await cluster.written(RECORDS, replicas=2)
        old = cluster.follower()
        third = cluster.outsider()
        reassign(cluster, leader.leader, third.node_id)
        await cluster.wait(lambda: third.node_id in cluster.registration("t").isr)
        await cluster.wait(lambda: logs(old) == ["stray"])
        assert old.manager.table.get("t", 0) is None
        await old.manager.maintenance.checkpoint()
        assert logs(old) == ["stray"]
        cluster.hosts[old.node_id].wall += STRAY_KEPT_MS + 1
        await old.manager.maintenance.checkpoint()
        assert logs(old) == []
        assert values(third.partition("t"), from_follower=True) == RECORDS


async def test_a_replica_that_moves_back_is_made_anew_and_the_stray_goes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        leader = await cluster.written(RECORDS, replicas=2)
        old = cluster.follower()
        reassign(cluster, leader.leader)
        await cluster.wait(lambda: logs(old) == ["stray"])
        reassign(cluster, leader.leader, old.node_id)
        await cluster.wait(lambda: old.node_id in cluster.registration("t").isr)
        assert logs(old) == ["stray", "t-0"]
        cluster.hosts[old.node_id].wall += STRAY_KEPT_MS + 1
        await old.manager.maintenance.checkpoint()
        assert logs(old) == ["t-0"]
        assert values(old.partition("t"), from_follower=True) == RECORDS


# --- while a node is down -------------------------------------------------------------------------


async def test_a_replica_that_moved_while_its_node_was_down_is_set_aside(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        leader = await cluster.written(RECORDS, replicas=2)
        old = cluster.follower()
        await cluster.stop(old.node_id)
        reassign(cluster, leader.leader)
        await cluster.wait(lambda: cluster.registration("t").replicas == (leader.leader,))
        again = await cluster.start(old.node_id)
        await cluster.wait(lambda: logs(again) == ["stray"])
        assert again.manager.table.get("t", 0) is None


async def test_what_was_set_aside_of_a_sole_replica_stays(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its directory got another's name. A log was made anew, and the old one, all that was left,
    deleted a minute later."""
    async with memory_cluster(1) as cluster:
        leader = await cluster.written(RECORDS, replicas=1)
        path = leader.log.path
        await cluster.stop(0)
        cluster.disks[0].rename(path, path.replace("t-0", "t-1"))
        again = await cluster.start(0)
        await cluster.wait(lambda: logs(again) == ["stray", "t-0"])
        cluster.hosts[NodeId(0)].wall += STRAY_KEPT_MS + 1
        await again.manager.maintenance.checkpoint()
        assert logs(again) == ["stray", "t-0"]


async def test_a_topic_that_went_while_a_node_was_down_is_kept_there(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """That a node's metadata do not know it proves nothing: the log stays, with its marks."""
    async with memory_cluster() as cluster:
        await cluster.written(RECORDS)
        node = cluster.follower()
        await cluster.stop(node.node_id)
        cluster.authority.decide(None, DeleteTopic("t"))
        for _ in range(2):
            again = await cluster.start(node.node_id, clean=True)
            await trio.sleep(1)
            assert logs(again) == ["t-0"]
            assert again.manager.table.get("t", 0) is None
            await cluster.stop(node.node_id)
            marks = await layout.read_offsets(again.disk, layout.Offsets.HIGH_WATERMARK)
            assert list(marks.values()) == [len(RECORDS)]


async def test_a_segment_that_went_while_a_node_was_down_is_deleted_there(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its topic goes on, and remembers which of its partitions are retired."""
    async with memory_cluster() as cluster:
        for number in (0, 1):
            cluster.authority.decide(None, CreateSegmentRequest("s", number))
        await cluster.wait(
            lambda: all(len(n.manager.table.partitions) == 2 for n in cluster.nodes.values())
        )
        await cluster.stop(2)
        cluster.authority.decide(None, DeleteSegmentRequest("s", 0))
        again = await cluster.start(2)
        await cluster.wait(lambda: logs(again) == ["s-1"])
        assert again.manager.table.get("s", 1) is not None


async def test_a_nameless_directory_goes_by_its_name_and_a_foreign_one_is_set_aside(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        await cluster.written(RECORDS)
        node = cluster.follower()
        disk = cluster.disks[node.node_id]
        path = node.partition("t").log.path
        await cluster.stop(node.node_id)
        disk.overwrite(f"{path}/partition.metadata", b"nonsense")
        again = await cluster.start(node.node_id)
        await cluster.wait(lambda: again.node_id in cluster.registration("t").isr)
        await cluster.wait(lambda: cluster.all_at("t", len(RECORDS)))
        assert logs(again) == ["t-0"]
        assert values(again.partition("t"), from_follower=True) == RECORDS
        # Where a further log is to be made lies something that is none.
        further = layout.partition_path("t", again.partition("t").topic_id, 1)
        disk.mkdir(further)
        disk.create(f"{further}/notes.txt").append([b"mine"])
        cluster.authority.decide(None, AddPartitions("t", 2))
        await cluster.wait(lambda: again.manager.table.get("t", 1) is not None)
        assert logs(again).count("stray") == 1
        assert disk.exists(f"{again.partition('t', 1).log.path}/partition.metadata")
        # It is not known to be of no use.
        cluster.hosts[again.node_id].wall += STRAY_KEPT_MS + 1
        await again.manager.maintenance.checkpoint()
        assert logs(again).count("stray") == 1


async def test_a_torn_write_is_cut_at_the_start(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_cluster() as cluster:
        leader = await cluster.written(RECORDS)
        node = cluster.follower()
        disk = cluster.disks[node.node_id]
        path = node.partition("t").log.segments[0].path()
        await cluster.kill(node.node_id)
        disk.overwrite(path, disk.content(path) + b"\x00\x01\x02")
        again = await cluster.start(node.node_id)
        assert again.partition("t").log_end_offset == len(RECORDS)
        await produce(leader, batch(b"after"))
        await cluster.wait(lambda: cluster.all_at("t", len(RECORDS) + 1))
        assert values(again.partition("t"), from_follower=True) == [*RECORDS, b"after"]


# --- flush modes ----------------------------------------------------------------------------------


async def test_a_weaker_flush_mode_holds_once_the_floor_is_written_down(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster(1) as cluster:
        leader = await cluster.written(RECORDS, replicas=1)
        disk = cluster.disks[0]
        cluster.hold_floor = trio.Event()
        cluster.alter_topic("t", flush_mode="interval", flush_interval_ms="100")
        await trio.sleep(1)
        assert leader.config.flush_mode is FlushMode.GROUP
        assert cluster.floors == []
        cluster.hold_floor.set()
        await trio.sleep(0.1)
        assert leader.config.flush_mode is FlushMode.INTERVAL
        assert cluster.floors == [FlushMode.INTERVAL]
        assert cluster.nodes[0].manager.table.weakest_flush_mode() is FlushMode.INTERVAL
        # Records count before they are on disk now, and are synced in time.
        disk.hang()
        await produce(leader, batch(b"fast"))
        assert leader.high_watermark == len(RECORDS) + 1
        assert leader.log.durable_offset == len(RECORDS)
        disk.heal()
        await cluster.wait(lambda: leader.log.durable_offset == len(RECORDS) + 1)
        # Back again: what is not on disk yet is synced at once.
        disk.hang()
        await produce(leader, batch(b"last"))
        cluster.alter_topic("t", flush_mode=None)
        disk.heal()
        await cluster.wait(lambda: leader.log.durable_offset == len(RECORDS) + 2)
        assert leader.config.flush_mode is FlushMode.GROUP


async def test_in_mode_interval_records_count_before_they_are_on_any_disk(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        leader = await cluster.written(
            RECORDS, flush_mode="interval", flush_interval_ms="200", min_insync_replicas="3"
        )
        await trio.sleep(1)
        partitions = [node.partition("t") for node in cluster.nodes.values()]
        assert all(each.log.durable_offset == len(RECORDS) for each in partitions)
        maintenance = cluster.nodes[leader.leader].manager.maintenance
        assert 0 < maintenance.flush_intervals() <= 0.2
        for disk in cluster.disks.values():
            disk.hang()
        await produce(leader, batch(b"fast"))
        assert leader.high_watermark == len(RECORDS) + 1
        assert all(each.log.durable_offset == len(RECORDS) for each in partitions)
        for disk in cluster.disks.values():
            disk.heal()
        await cluster.wait(
            lambda: all(each.log.durable_offset == len(RECORDS) + 1 for each in partitions)
        )
