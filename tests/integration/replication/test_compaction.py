"""Compacted topics on several nodes: each compacts by itself, all know the same last values."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from paceline.wire.batch import build_batch, iter_batches
from paceline.wire.records import Record, decode_records
from paceline_node.replication.compaction_schedule import CompactionSettings
from paceline_node.replication.partition import Partition
from paceline_node.storage.last_values import last_values as last_values_on
from paceline_node.storage.replica_comparison import compare_replicas
from paceline_node.storage.verify import verify_log
from tests.integration.replication.cluster import (
    SETTINGS,
    TestCluster,
    produce,
    running_cluster,
)
from tests.integration.replication.test_replication import settled

COMPACTING = replace(SETTINGS, compaction=CompactionSettings(check_s=0.02))
KEYS = 8


async def write(partition: Partition, start: int, count: int) -> None:
    for number in range(start, start + count):
        records = [
            Record(-1, 1_000 + number, b"key %d" % (each % KEYS), b"%d" % each)
            for each in range(number, number + 3)
        ]
        await produce(partition, build_batch(records))


def last_values(partition: Partition) -> dict[bytes | None, bytes | None]:
    """What a consumer knows who has read everything."""
    found: dict[bytes | None, bytes | None] = {}
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        read = partition.read(offset, 1 << 20, from_follower=True)
        assert read.slice is not None
        data = read.slice.read()
        for position, _ in iter_batches(data):
            for record in decode_records(data, position):
                if record.value is None:
                    found.pop(record.key, None)
                else:
                    found[record.key] = record.value
        offset = read.slice.next_offset
    return found


def expected(count: int) -> dict[bytes | None, bytes | None]:
    return {b"key %d" % (each % KEYS): b"%d" % each for each in range(count + 2)}


async def compacted(cluster: TestCluster) -> Partition:
    """A topic of one partition, written and compacted on all nodes; its leader."""
    await cluster.create_topic(
        "t", cleanup_policy="compact", segment_bytes="1024", min_cleanable_dirty_ratio="0.1"
    )
    leader = cluster.leader("t")
    assert leader is not None
    await write(leader, 0, 60)
    await settled(cluster, "t")
    partitions = [node.partition("t") for node in cluster.nodes.values()]
    await cluster.wait(
        lambda: all(
            each.log.compaction.cleaned_offset == each.log.segments[-1].base_offset > 100
            for each in partitions
        )
    )
    return leader


async def same_everywhere(cluster: TestCluster, count: int) -> None:
    await settled(cluster, "t")
    for node in cluster.nodes.values():
        assert last_values(node.partition("t")) == expected(count)


async def same_on_disk(cluster: TestCluster) -> None:
    """Stop all nodes; what ``paceline log verify`` then says of their directories."""
    nodes = list(cluster.nodes.values())
    path, end = nodes[0].partition("t").log.path, nodes[0].partition("t").high_watermark
    for node in nodes:
        await cluster.stop(node.node_id)
        assert (await verify_log(node.disk, path, recovery_point=end)).findings == ()
    places = {str(node.node_id): (node.disk, path) for node in nodes}
    assert await compare_replicas(places, high_watermark=end) == []
    assert len(await last_values_on(nodes[0].disk, path, end=end)) == KEYS


async def test_a_wiped_follower_fetches_a_compacted_log(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, settings=COMPACTING) as cluster:
        leader = await compacted(cluster)
        await same_everywhere(cluster, 60)
        size = leader.log.size_bytes
        assert size < 60 * 90  # of the first 60 batches most are gone
        wiped = next(n for n in cluster.nodes.values() if n.node_id != leader.leader)
        await cluster.stop(wiped.node_id)
        shutil.rmtree(wiped.root / "topics")
        await write(leader, 60, 20)
        again = await cluster.start(wiped.node_id)
        await cluster.wait(lambda: again.node_id in leader.isr)
        await write(leader, 80, 5)
        await same_everywhere(cluster, 85)
        assert again.partition("t").log_start_offset == 0
        # What it fetched makes it a leader like any other.
        cluster.elect("t", again.node_id)
        await cluster.wait(lambda: again.partition("t").is_leader)
        await write(again.partition("t"), 85, 15)
        await same_everywhere(cluster, 100)
        await same_on_disk(cluster)


async def test_a_damaged_compacted_replica_begins_anew(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, settings=COMPACTING) as cluster:
        leader = await compacted(cluster)
        node = next(n for n in cluster.nodes.values() if n.node_id != leader.leader)
        damaged = node.partition("t")
        sealed = damaged.log.segments[-2]
        with (node.root / sealed.path()).open("r+b") as file:
            file.seek(sealed.size - 2)
            file.write(b"?")
        damaged.suspect(sealed.next_offset - 1)
        await cluster.wait(lambda: node.manager.repairs.repaired_count == 1)
        await cluster.wait(lambda: node.node_id in leader.isr)
        await write(leader, 60, 5)
        await same_everywhere(cluster, 65)
        await same_on_disk(cluster)


async def test_the_policy_may_change(tmp_path: Path) -> None:
    """A topic made with cleanup.policy=delete is compacted once that is set for it."""
    async with running_cluster(tmp_path, settings=COMPACTING) as cluster:
        await cluster.create_topic("t", segment_bytes="1024")
        leader = cluster.leader("t")
        assert leader is not None
        await write(leader, 0, 60)
        assert len(leader.log.segments) > 3
        assert leader.log.settings.compaction is None
        cluster.alter_topic("t", cleanup_policy="compact")
        await cluster.wait(lambda: len(leader.log.segments) < 5)
        await same_everywhere(cluster, 60)


async def test_a_segment_from_before_a_compaction_is_not_believed(tmp_path: Path) -> None:
    """A deleted key lies in it, whose tombstone has gone from the segment behind. Each checksum
    holds, and the node led with it."""
    async with running_cluster(tmp_path, settings=COMPACTING) as cluster:
        await cluster.create_topic(
            "t",
            cleanup_policy="compact",
            segment_bytes="1024",
            min_cleanable_dirty_ratio="0.01",
            delete_retention_ms="0",
        )
        leader = cluster.leader("t")
        assert leader is not None
        kept = {b"kept %d" % number: b"x" * 700 for number in range(5)}
        node = next(n for n in cluster.nodes.values() if n.node_id != leader.leader)
        partition = node.partition("t")
        await produce(leader, build_batch([Record(-1, 1_000, b"deleted", b"value")]))
        for number, (key, value) in enumerate(kept.items()):
            await produce(leader, build_batch([Record(-1, 1_000, key, value)]))
            if number == 0:
                await settled(cluster, "t")
                oldest = node.root / partition.log.segments[0].path()
                before = oldest.read_bytes()
            elif number == 1:  # in the second segment
                await produce(leader, build_batch([Record(-1, 1_000, b"deleted", None)]))
        await settled(cluster, "t")
        await cluster.wait(lambda: b"deleted" not in _keys(partition))
        assert len(before) > oldest.stat().st_size > 700
        await cluster.kill(node.node_id)
        oldest.write_bytes(before)
        again = await cluster.start(node.node_id)
        await cluster.wait(lambda: again.node_id in leader.isr)
        await settled(cluster, "t")
        cluster.elect("t", again.node_id)
        await cluster.wait(lambda: again.partition("t").is_leader)
        assert last_values(again.partition("t")) == kept


def _keys(partition: Partition) -> set[bytes | None]:
    """Of all records that are there, tombstones too."""
    found: set[bytes | None] = set()
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        read = partition.read(offset, 1 << 20, from_follower=True)
        assert read.slice is not None
        data = read.slice.read()
        found |= {
            record.key
            for position, _ in iter_batches(data)
            for record in decode_records(data, position)
        }
        offset = read.slice.next_offset
    return found
