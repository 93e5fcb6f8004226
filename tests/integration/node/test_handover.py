"""Leaders that stop in order, and leaders that die, under an idempotent producer's load."""

from __future__ import annotations

import random

import pytest

from paceline.errors import ErrorCode
from paceline.wire.batch import build_batch
from paceline.wire.native.data import ProducedPartition
from paceline.wire.records import Record
from paceline_node.env import Disk, Env
from paceline_node.replication.log_directory import LogDirectory
from paceline_node.storage import incarnation
from paceline_node.storage.log_settings import LogSettings
from tests.integration.node.load import load
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import Cluster, cluster, make_node
from tests.integration.node.test_v1_cluster import create

pytestmark = pytest.mark.virtual_time


async def all_in_sync(nodes: Cluster) -> None:
    for partition in range(3):
        await nodes.in_sync("orders", partition, 0, 1, 2)


# --- orderly stops --------------------------------------------------------------------------------


async def test_stopping_one_leader_after_the_other_fails_no_write(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        await create(nodes, "orders", 3)
        async with load("orders", nodes.bootstrap_native) as writing:
            for _ in range(2):
                number = await nodes.leader("orders", 0)
                await nodes.stop(number)
                await writing.more()
                assert await _was_clean(nodes, number)
                await nodes.start(number)
                await all_in_sync(nodes)
                await writing.more()
        assert len(writing.epochs) >= 3, "leadership moved with each stop"
        assert not nodes.exits


def _disk(nodes: Cluster, number: int) -> Disk:
    """What a node that is down has left."""
    return nodes.machines.data(nodes.directory, number)


async def _was_clean(nodes: Cluster, number: int) -> bool:
    disk = _disk(nodes, number)
    found = await incarnation.read(disk)
    disk.close()
    assert found is not None
    return found.clean


async def test_only_an_orderly_stop_spares_the_next_start_its_scan(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        await create(nodes, "orders", 3)
        async with load("orders", nodes.bootstrap_native) as writing:
            await nodes.stop(1)
            await writing.more()
            scanned, rebuilt, end = await _recovery(nodes, 1)
            assert (scanned, rebuilt) == (0, ())
            assert end > 0, "the stopped node held records"
            await nodes.start(1)
            await all_in_sync(nodes)
            await writing.more()
            await nodes.crash(1)
            assert not await _was_clean(nodes, 1)
            scanned, _, end = await _recovery(nodes, 1)
            assert scanned > 0
            await nodes.start(1)
            await all_in_sync(nodes)


async def test_a_stop_before_recovery_leaves_an_unclean_directory_unclean(tmp_path) -> None:
    async with cluster(tmp_path, 1) as nodes:
        await create(nodes, "orders", factor=1)
        async with nodes.v1(0) as client:
            await client.ok("PRODUCE", "orders k:v")
        await nodes.crash(0)
        left = await _checkpoints(nodes, 0)
        hurried = make_node(tmp_path, 0, nodes.ports(0), nodes.flags, machines=nodes.machines)
        hurried.stop()
        await hurried.run()
        assert not await _was_clean(nodes, 0)
        assert await _checkpoints(nodes, 0) == left
        await nodes.start(0)
        async with nodes.v1(0) as client:
            assert (await client.ok("CONSUME", "orders 0 0"))["messages"] == "0:v"


async def _checkpoints(nodes: Cluster, number: int) -> dict[str, bytes]:
    disk = _disk(nodes, number)
    found = {}
    for name in disk.list(""):
        if name.endswith(".ckpt"):
            file = await disk.open(name)
            found[name] = file.pread(file.size(), 0)
            file.close()
    disk.close()
    assert found
    return found


async def _recovery(nodes: Cluster, number: int) -> tuple[int, tuple[str, ...], int]:
    """What opening the logs, as the next process does, reads and rebuilds; and the records in
    them. Nothing is written: the node still finds what it left."""
    disk = _disk(nodes, number)
    env = Env(nodes.machines.host, disk, nodes.machines.network, random.Random())
    before = await incarnation.read(disk)
    assert before is not None
    opened = await LogDirectory(env).open_all(clean=before.clean, settings=LogSettings())
    reports = [log.recovery for log in opened.logs.values()]
    end = sum(log.log_end_offset for log in opened.logs.values())
    for log in opened.logs.values():
        log.abandon()
    disk.close()
    assert opened.reached_durable_mark
    rebuilt = tuple(name for report in reports for name in report.rebuilt)
    return sum(report.scanned_bytes for report in reports), rebuilt, end


# --- deaths ---------------------------------------------------------------------------------------


async def test_each_record_is_stored_once_whoever_dies(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        await create(nodes, "orders", 3)
        async with load("orders", nodes.bootstrap_native) as writing:
            for turn in range(3):
                victim = await nodes.leader("orders", turn)
                await nodes.crash(victim)
                await writing.more()
                await nodes.start(victim)
                await all_in_sync(nodes)
                await writing.more()
        assert len(writing.epochs) >= 2


def numbered(sequence: int, *, epoch: int = 0, count: int = 1) -> bytearray:
    records = [Record(value=b"%d" % (sequence + each)) for each in range(count)]
    return build_batch(
        records, producer_id=4242, producer_epoch=epoch, base_sequence=sequence, timestamp_ms=1
    )


async def test_a_new_leader_knows_what_producers_wrote_to_the_old_one(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        await create(nodes, "orders")
        for sequence in range(7):
            stored = await _produce(nodes, numbered(sequence * 2, count=2))
            assert (stored.error, stored.base_offset) == (0, sequence * 2)
        for _ in range(2):
            leader = await nodes.leader("orders", 0)
            await nodes.crash(leader)
            # The producer's last five batches are recognised, whoever leads now.
            for sequence in (12, 10, 4):
                again = await _produce(nodes, numbered(sequence, count=2))
                assert (again.error, again.duplicate) == (0, True), again
                assert (again.base_offset, again.last_offset) == (sequence, sequence + 1)
            gap = await _produce(nodes, numbered(99))
            assert gap.error == ErrorCode.OUT_OF_ORDER_SEQUENCE
            await nodes.start(leader)
            await nodes.in_sync("orders", 0, 0, 1, 2)
        stored = await _produce(nodes, numbered(0, epoch=1))
        assert (stored.error, stored.base_offset) == (0, 14)
        stale = await _produce(nodes, numbered(14, epoch=0))
        assert stale.error == ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await nodes.describe("orders", 0)).log_end_offset == 15


async def _produce(nodes: Cluster, batch: bytearray) -> ProducedPartition:
    """Send a batch to the leader, again until it is answered otherwise than with a retry."""
    passing = {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.LEADER_CHANGED_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }

    async def answered() -> ProducedPartition | None:
        leader = await nodes.leader("orders", 0)
        async with NativeConnection(nodes.up[leader].addresses["native"]) as connection:
            result = await connection.produce("orders", 0, batch)
        return None if result.error in passing else result

    return await nodes.wait_for("the batch is answered", answered)
