"""A replica that was away while others removed a tombstone begins anew: a deleted key does not come
back, neither on it nor when it leads (storage/README.md, compaction)."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from paceline.types import NO_EPOCH, Acks
from paceline.wire.batch import build_batch
from paceline.wire.batch_header import TRANSACTIONAL, verify
from paceline.wire.records import Record
from paceline_node.replication.partition import Partition
from paceline_node.replication.transaction_gate import MarkerOrder
from paceline_node.storage import compaction_file
from paceline_node.storage.removed_tombstones import Removals
from tests.integration.replication.cluster import TestNode, produce
from tests.integration.replication.test_compaction import last_values
from tests.sim.replication.memory_cluster import MemoryCluster, memory_cluster

RETENTION_S = 10
GONE = b"gone"
PRODUCER = 7


async def put(partition: Partition, key: bytes, value: bytes | None) -> None:
    await produce(partition, build_batch([Record(-1, 1_000, key, value)]))


async def put_in_transaction(partition: Partition, number: int, key: bytes) -> None:
    """One record of transaction ``number``, which stays open."""
    data = build_batch(
        [Record(-1, 1_000, key, b"in a transaction")],
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=number,
        flags=TRANSACTIONAL,
    )
    ticket = partition.gate.ticket(PRODUCER, 0)
    ticket.confirm(1)
    ended = trio.Event()
    partition.produce(
        data,
        [verify(memoryview(data), 0)],
        acks=Acks.ALL,
        timeout_s=10.0,
        done=lambda _: ended.set(),
        ticket=ticket,
    )
    await ended.wait()


async def end_transaction(partition: Partition, number: int, *, commits: bool = True) -> None:
    order = MarkerOrder(PRODUCER, 0, number, commits=commits, coordinator_epoch=1)
    ended = trio.Event()
    partition.end_transaction(order, timeout_s=10.0, done=lambda _: ended.set())
    await ended.wait()


async def fill_up(partition: Partition, count: int = 20) -> None:
    """Several segments' worth of other keys."""
    for each in range(count):
        await put(partition, b"key %d" % (each % 4), b"%4d" % each * 20)


async def compacted(cluster: MemoryCluster) -> Partition:
    """The leader of a compacted topic; what is removed is removed when a test says so."""
    await cluster.create_topic(
        "t",
        replicas=len(cluster.nodes),
        cleanup_policy="compact",
        segment_bytes="1024",
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms=str(RETENTION_S * 1000),
        min_insync_replicas="1",
    )
    leader = cluster.leader("t")
    assert leader is not None
    return leader


async def compact(cluster: MemoryCluster, *nodes: TestNode) -> None:
    for node in nodes or tuple(cluster.nodes.values()):
        await node.manager.compactions.compact_due()


async def remove_tombstones(cluster: MemoryCluster, *nodes: TestNode) -> None:
    """Retention passes between two compactions, on these nodes or on all that run."""
    await compact(cluster, *nodes)
    await trio.sleep(RETENTION_S + 1)
    await compact(cluster, *nodes)


async def caught_up(cluster: MemoryCluster) -> None:
    """All that run are in sync."""

    def holds() -> bool:
        leader = cluster.leader("t")
        return (
            leader is not None
            and cluster.all_at("t", leader.log_end_offset)
            and len(cluster.registration("t").isr) == len(cluster.nodes)
        )

    await cluster.wait(holds)


async def elect(cluster: MemoryCluster, node: TestNode) -> Partition:
    cluster.elect("t", node.node_id)
    await cluster.wait(lambda: cluster.leader("t") is node.partition("t"))
    return node.partition("t")


def has_key(partition: Partition, key: bytes) -> bool:
    """Whether any record of the key is in the log, tombstones included."""
    offset = partition.log_start_offset
    while offset < partition.high_watermark:
        read = partition.read(offset, 1 << 20, from_follower=True)
        assert read.slice is not None
        if key in bytes(read.slice.read()):
            return True
        offset = read.slice.next_offset
    return False


def has_begun_anew(partition: Partition) -> bool:
    return partition.log.compaction.removals.copy_epoch != NO_EPOCH


async def return_behind_a_removed_tombstone() -> None:
    async with memory_cluster() as cluster:
        leader = await compacted(cluster)
        await put(leader, GONE, b"old")
        await fill_up(leader)
        await caught_up(cluster)
        away = cluster.follower()
        await cluster.stop(away.node_id)
        await put(leader, GONE, None)
        await fill_up(leader)
        await remove_tombstones(cluster)
        assert not has_key(leader, GONE)
        back = await cluster.start(away.node_id)
        await caught_up(cluster)
        expected = last_values(leader)
        assert GONE not in expected
        assert not has_key(back.partition("t"), GONE)
        assert last_values(await elect(cluster, back)) == expected


async def test_a_replica_behind_a_removed_tombstone_begins_anew(
    autojump_clock: trio.testing.MockClock,
) -> None:
    await return_behind_a_removed_tombstone()


async def test_without_the_rule_the_deleted_key_comes_back(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant: the scene above can fail."""
    monkeypatch.setattr(Removals, "forbids", lambda *_: False)
    with pytest.RaisesGroup(AssertionError, flatten_subgroups=True):
        await return_behind_a_removed_tombstone()


async def test_a_replica_away_for_less_than_the_retention_goes_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        leader = await compacted(cluster)
        await put(leader, b"earlier", b"old")
        await put(leader, b"earlier", None)
        await fill_up(leader)
        await caught_up(cluster)
        await remove_tombstones(cluster)
        assert leader.log.compaction.removals.removed_to > 0
        away = cluster.follower()
        await cluster.stop(away.node_id)
        await put(leader, b"key 1", None)
        await fill_up(leader, 3)
        await compact(cluster)
        back = await cluster.start(away.node_id)
        await caught_up(cluster)
        assert not has_begun_anew(back.partition("t"))
        assert last_values(back.partition("t")) == last_values(leader)


async def test_a_leader_that_still_has_the_tombstone_gives_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Another replica has removed it, and leads again later."""
    async with memory_cluster() as cluster:
        leader = await compacted(cluster)
        await put(leader, GONE, b"old")
        await fill_up(leader)
        await caught_up(cluster)
        first = cluster.nodes[cluster.registration("t").leader]
        away = cluster.follower()
        other = next(n for n in cluster.nodes.values() if n is not first and n is not away)
        await cluster.stop(away.node_id)
        await put(leader, GONE, None)
        await fill_up(leader)
        await caught_up(cluster)
        await remove_tombstones(cluster, first)
        assert not has_key(leader, GONE)
        await elect(cluster, other)
        back = await cluster.start(away.node_id)
        await caught_up(cluster)
        assert not has_begun_anew(back.partition("t"))
        assert GONE not in last_values(back.partition("t"))
        await elect(cluster, first)
        await fill_up(leader, 3)
        await caught_up(cluster)
        assert not has_begun_anew(back.partition("t"))
        assert last_values(back.partition("t")) == last_values(leader)


async def test_a_copy_lacks_what_its_leader_lacked_also_after_a_restart(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It has never compacted anything, and leads when the third one returns."""
    async with memory_cluster() as cluster:
        leader = await compacted(cluster)
        await put(leader, GONE, b"old")
        await fill_up(leader)
        await caught_up(cluster)
        first = cluster.nodes[cluster.registration("t").leader]
        copy, away = (node for node in cluster.nodes.values() if node is not first)
        await cluster.stop(copy.node_id)
        await cluster.stop(away.node_id)
        await put(leader, GONE, None)
        await fill_up(leader)
        await remove_tombstones(cluster)
        copy = await cluster.start(copy.node_id)
        await caught_up(cluster)
        await cluster.kill(copy.node_id)
        copy = await cluster.start(copy.node_id)
        await caught_up(cluster)
        await elect(cluster, copy)
        await cluster.stop(first.node_id)
        away = await cluster.start(away.node_id)
        await caught_up(cluster)
        assert has_begun_anew(away.partition("t"))
        assert not has_key(away.partition("t"), GONE)


async def test_a_replica_behind_a_removed_marker_begins_anew(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It took what was aborted for a part of the producer's next transaction, and committed."""
    async with memory_cluster() as cluster:
        leader = await compacted(cluster)
        await fill_up(leader)
        await put_in_transaction(leader, 0, GONE)
        away = cluster.follower()
        end = leader.log_end_offset
        await cluster.wait(lambda: away.partition("t").log_end_offset == end)
        await cluster.stop(away.node_id)
        await end_transaction(leader, 0, commits=False)
        marker = leader.log_end_offset - 1
        for number in range(1, 7):  # the last five batches of a producer stay, and their markers
            await put_in_transaction(leader, number, b"key 1")
            await end_transaction(leader, number)
        for _ in range(3):
            await fill_up(leader)
            await remove_tombstones(cluster)
        assert leader.log.compaction.removals.removed_to > marker
        back = await cluster.start(away.node_id)
        await caught_up(cluster)
        led = await elect(cluster, back)
        assert not has_key(led, GONE)
        assert led.last_stable_offset == led.high_watermark


async def lead_with_old_files() -> None:
    """Both files that say what compaction has removed are as they were before: a leader that
    believed them let a replica go on that was away meanwhile, with the deleted key."""
    async with memory_cluster() as cluster:
        leader = await compacted(cluster)
        await put(leader, GONE, b"old")
        await fill_up(leader)
        await caught_up(cluster)
        aged = leader.leader
        away, other = (number for number in cluster.nodes if number != aged)
        await cluster.stop(away)
        await put(leader, GONE, None)
        await fill_up(leader)
        await caught_up(cluster)
        await compact(cluster)
        directory, disk = leader.log.path, cluster.disks[aged]
        early = {
            path: disk.content(path)
            for path, _ in disk.files()
            if path.startswith(f"{directory}/compaction")
        }
        await trio.sleep(RETENTION_S + 1)
        await compact(cluster)
        assert not has_key(leader, GONE)
        expected = last_values(leader)
        await cluster.nodes[aged].manager.maintenance.checkpoint()
        await cluster.kill(aged)
        for path, content in early.items():
            assert disk.content(path) != content
            disk.overwrite(path, content)
        node = await cluster.start(aged)
        await caught_up(cluster)
        await elect(cluster, node)
        assert last_values(node.partition("t")) == expected
        await cluster.stop(other)
        back = await cluster.start(away)
        await caught_up(cluster)
        assert not has_key(back.partition("t"), GONE)
        assert last_values(await elect(cluster, back)) == expected


async def test_what_a_node_has_removed_stands_in_another_file_too(
    autojump_clock: trio.testing.MockClock,
) -> None:
    await lead_with_old_files()


async def test_without_that_file_the_deleted_key_comes_back(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant."""
    monkeypatch.setattr(compaction_file, "refuse_older", lambda *_: None)
    with pytest.RaisesGroup(AssertionError, flatten_subgroups=True):
        await lead_with_old_files()
