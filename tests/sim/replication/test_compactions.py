"""Compaction where the disk fails or the log goes or changes meanwhile: no value that counts is
lost, and the next round does the work (storage/README.md, compaction)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import trio
import trio.testing

from paceline.wire.batch import build_batch
from paceline.wire.native.admin import DeleteTopic
from paceline.wire.records import Record
from paceline_node.replication.partition import Partition
from paceline_node.storage.cleaner import CleanerLimits
from tests.integration.replication.cluster import produce
from tests.integration.replication.test_compaction import last_values
from tests.sim.replication.memory_cluster import (
    QUIET,
    MemoryCluster,
    fill,
    memory_cluster,
    rot,
)

KEYS = 4
COUNT = 30
KEYED = [(b"key %d" % (each % KEYS), b"%4d" % each * 20) for each in range(COUNT)]
LAST = dict(KEYED)


async def keyed(cluster: MemoryCluster) -> Partition:
    """A compacted topic with several sealed segments, none compacted yet."""
    await cluster.create_topic(
        "t",
        replicas=len(cluster.nodes),
        cleanup_policy="compact",
        segment_bytes="1024",
        min_cleanable_dirty_ratio="0.1",
    )
    leader = cluster.leader("t")
    assert leader is not None
    for each, (key, value) in enumerate(KEYED):
        await produce(leader, build_batch([Record(-1, 1_000 + each, key, value)]))
    await cluster.wait(lambda: cluster.all_at("t", COUNT))
    return leader


@contextlib.asynccontextmanager
async def while_compacting(cluster: MemoryCluster, after_s: float) -> AsyncIterator[None]:
    """The block runs ``after_s`` after compaction has begun, on a disk whose every read and sync
    takes 0.1 s. Leaving it waits for the end."""
    disk = cluster.disks[0]
    disk.read_delay_s = disk.sync_delay_s = lambda: 0.1
    ended = trio.Event()

    async def compact() -> None:
        await cluster.nodes[0].manager.compactions.compact_due()
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(compact)
        await trio.sleep(after_s)
        assert not ended.is_set()
        yield


async def test_the_dirtiest_log_is_compacted_and_clean_then(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster(1) as cluster:
        leader = await keyed(cluster)
        compactions = cluster.nodes[0].manager.compactions
        assert compactions.dirtiest() == 1.0
        size = leader.log.size_bytes
        await compactions.compact_due()
        assert compactions.dirtiest() == 0.0
        assert leader.log.size_bytes < size / 2
        assert last_values(leader) == LAST


FEW_KEYS = replace(
    QUIET, compaction=replace(QUIET.compaction, limits=CleanerLimits(max_keys=KEYS - 1))
)


async def test_more_keys_than_fit_in_memory_take_several_rounds(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster(1, settings=FEW_KEYS) as cluster:
        leader = await keyed(cluster)
        compactions = cluster.nodes[0].manager.compactions
        await compactions.compact_due()
        assert compactions.statistics.rounds > 1
        assert compactions.dirtiest() == 0.0
        assert last_values(leader) == LAST


async def test_a_policy_changed_between_two_rounds_ends_compaction(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster(1, settings=FEW_KEYS) as cluster:
        leader = await keyed(cluster)
        async with while_compacting(cluster, 0.05):
            cluster.alter_topic("t", cleanup_policy="delete")
        assert cluster.nodes[0].manager.compactions.statistics.rounds == 1
        assert leader.log.compaction.cleaned_offset < leader.log.segments[-1].base_offset
        assert last_values(leader) == LAST


async def test_compaction_without_room_is_given_up_until_there_is_some(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster(1) as cluster:
        leader = await keyed(cluster)
        node, disk = cluster.nodes[0], cluster.disks[0]
        fill(disk)
        await node.manager.compactions.compact_due()
        assert leader.log.compaction.cleaned_offset == 0
        assert last_values(leader) == LAST
        disk.capacity_bytes = None
        await node.manager.compactions.compact_due()
        assert leader.log.compaction.cleaned_offset == leader.log.segments[-1].base_offset
        assert last_values(leader) == LAST
        assert not node.failures


@pytest.mark.parametrize(
    ("operation", "path"), [("write", ".cleaned"), ("sync", "cleaned"), ("rename", ".log")]
)
async def test_compaction_on_a_failing_disk_ends_the_node(
    operation: str, path: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with memory_cluster(1) as cluster:
        await keyed(cluster)
        cluster.disks[0].fail_next(operation, path=path)
        await cluster.nodes[0].manager.compactions.compact_due()
        assert len(cluster.nodes[0].failures) == 1
        await cluster.kill(0)
        cluster.disks[0].heal()
        again = await cluster.start(0)
        await cluster.wait(lambda: cluster.leader("t") is not None)
        await again.manager.compactions.compact_due()
        assert again.manager.compactions.dirtiest() == 0.0
        assert last_values(again.partition("t")) == LAST


@pytest.mark.parametrize("step", [1, 3, 5, 7])
async def test_a_topic_deleted_while_it_is_compacted_goes_quietly(
    step: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with memory_cluster(1) as cluster:
        await keyed(cluster)
        node = cluster.nodes[0]
        async with while_compacting(cluster, 0.1 * step - 0.05):
            cluster.authority.decide(None, DeleteTopic("t"))
        await trio.sleep(2)
        assert not node.disk.list("topics")
        assert not node.failures


async def test_a_log_trimmed_while_it_is_compacted_begins_where_it_was_trimmed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster(1) as cluster:
        leader = await keyed(cluster)
        async with while_compacting(cluster, 0.25):
            leader.trim(COUNT - 1)
        assert leader.log_start_offset == COUNT - 1
        assert leader.log_end_offset == COUNT
        assert last_values(leader) == dict(KEYED[-1:])
        assert not cluster.nodes[0].failures


async def test_policy_changed_to_delete_ends_compaction(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster(1) as cluster:
        leader = await keyed(cluster)
        compactions = cluster.nodes[0].manager.compactions
        cluster.alter_topic("t", cleanup_policy="delete")
        assert compactions.dirtiest() == 0.0
        size = leader.log.size_bytes
        await compactions.compact_due()
        assert leader.log.size_bytes == size


async def test_rot_that_compaction_meets_is_repaired_and_nothing_is_dropped_for_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        await keyed(cluster)
        node = cluster.follower()
        rot(cluster, node, 2)
        await node.manager.compactions.compact_due()
        assert node.partition("t").log.compaction.cleaned_offset == 0
        await cluster.wait(lambda: node.manager.repairs.repaired_count == 1)
        await cluster.wait(lambda: cluster.all_at("t", COUNT))
        await node.manager.compactions.compact_due()
        assert last_values(node.partition("t")) == LAST
