"""A log's open transaction that no coordinator knows, as after an unclean election."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from paceline.errors import DuplicateSequence, InvalidProducerEpoch, NotEnoughReplicas
from paceline.types import LeaderEpoch, NodeId
from paceline.wire.batch_header import read_header
from paceline.wire.peer.names import PartitionName
from paceline.wire.peer.transactions import AppendStaged, MarkedPartition, WriteMarkers
from paceline_node.groups.committed_offsets import Commit
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.pending_offsets import PendingOffsets
from paceline_node.replication.partition import Partition
from paceline_node.services.transactions import forgotten_producers, staged_batches
from paceline_node.services.transactions.forgotten_producers import ForgottenProducers
from paceline_node.storage.producers import FrozenTable
from paceline_node.storage.reading import LogSlice
from paceline_node.transaction_names import ProducerIdentity
from paceline_node.transactions.records import Staged
from tests.integration.client.test_transactional import ONE, seen
from tests.integration.node.machines import connect
from tests.integration.node.nodes import lone_node

pytestmark = pytest.mark.virtual_time


async def test_what_the_log_has_of_a_forgotten_producer_is_not_stored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when an unclean election has a transaction that was complete long ago told once more."""
    flags = {**ONE, "log.producer_check_ms": "100", "log.producer_ttl_ms": "1000"}
    async with lone_node(tmp_path, flags) as node, connect(node.native) as client:
        await client.admin.create_topic("out", partitions=1)
        broker = node.node.broker
        with trio.fail_after(60):
            while (partition := broker.replicas.table.get("out", 0)) is None:  # noqa: ASYNC110
                await trio.sleep(0.02)
        rpc = broker.transactions.rpc
        epoch = LeaderEpoch(partition.replica.leader_epoch)
        began_ms = int(time.time() * 1000)

        async def store(producer_id: int, value: bytes) -> None:
            who = ProducerIdentity(producer_id, 3)
            staged = [Staged("out", 0, -1, began_ms, None, value)]
            (batch,) = staged_batches.staged_batches(staged, PartitionName("out", 0), who)
            order = AppendStaged("out", 0, epoch, LeaderEpoch(0), 30_000, None, began_ms)
            await rpc.append_staged(NodeId(0), order, batch)

        async def mark(producer_id: int) -> None:
            there = (MarkedPartition("out", 0, epoch),)
            order = WriteMarkers(producer_id, 3, 1, True, LeaderEpoch(0), 30_000, there)
            assert (await rpc.write_markers(NodeId(0), order)).errors == (0,)

        await store(10**9, b"once")
        await mark(10**9)
        with trio.fail_after(60):
            while len(partition.log.producers):  # noqa: ASYNC110  no event tells
                await trio.sleep(0.05)
        with pytest.raises(
            DuplicateSequence, match=r"sequences 0\.\.0 in epoch 3, which was forgotten"
        ):
            await store(10**9, b"once")
        await store(10**9 + 1, b"another's")
        await mark(10**9 + 1)
        assert await seen(client, "out") == [b"another's", b"once"]

        # A batch with each request: the next one goes on behind it.
        monkeypatch.setattr(forgotten_producers, "_PATIENCE_S", 0.0)
        monkeypatch.setattr(forgotten_producers, "_PIECE_BYTES", 1)
        refused = 0
        for _ in range(100):
            try:
                await store(10**9 + 2, b"a third one's")
            except NotEnoughReplicas:
                refused += 1
            else:
                break
        assert refused >= 4, "two batches and their markers"
        await mark(10**9 + 2)
        assert await seen(client, "out") == [b"a third one's", b"another's", b"once"]


def forget_producers(partition: Partition) -> None:
    """As a table that was made anew behind damage."""
    log = partition.log
    aborted = tuple(log.producers.transactions.aborted)
    log.producers.load(FrozenTable(log.log_end_offset, aborted=aborted))
    partition.gate.clear()


async def test_batches_that_a_log_lacks_are_stored_where_it_has_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch of the producer was taken as proof that all of its transaction were stored; where
    it was ended, by a producer that is forgotten or not, it is."""
    monkeypatch.setattr(staged_batches, "_BATCH_BYTES", 1)
    # Nobody aborts meanwhile what the coordinator does not know.
    flags = {**ONE, "log.producer_check_ms": "600000"}
    async with lone_node(tmp_path, flags) as node, connect(node.native) as client:
        await client.admin.create_topic("out", partitions=1)
        broker = node.node.broker
        with trio.fail_after(60):
            while (partition := broker.replicas.table.get("out", 0)) is None:  # noqa: ASYNC110
                await trio.sleep(0.02)
        rpc, log = broker.transactions.rpc, partition.log
        epoch = LeaderEpoch(partition.replica.leader_epoch)
        began_ms, producer_id = int(time.time() * 1000), 10**9
        staged = [Staged("out", 0, -1, began_ms, None, value) for value in (b"1st", b"2nd", b"3rd")]
        who, where = ProducerIdentity(producer_id, 3), PartitionName("out", 0)
        batches = [bytes(each) for each in staged_batches.staged_batches(staged, where, who)]

        async def store(number: int, *, asks_log: bool = True) -> None:
            began = began_ms if asks_log else -1
            order = AppendStaged("out", 0, epoch, LeaderEpoch(0), 30_000, None, began)
            await rpc.append_staged(NodeId(0), order, bytearray(batches[number]))

        async def mark(*, commits: bool = True) -> None:
            there = (MarkedPartition("out", 0, epoch),)
            order = WriteMarkers(producer_id, 3, 1, commits, LeaderEpoch(0), 30_000, there)
            assert (await rpc.write_markers(NodeId(0), order)).errors == (0,)

        await store(0, asks_log=False)
        await mark(commits=False)  # a coordinator did not know of it
        forget_producers(partition)
        await store(0)
        forget_producers(partition)
        second = read_header(batches[1])
        with monkeypatch.context() as compacted:  # the marker, and other batches, may be gone there
            state = replace(log.compaction, cleaned_offset=log.log_end_offset)
            compacted.setattr(log, "compaction", state)
            with pytest.raises(DuplicateSequence):
                await ForgottenProducers(rpc._env).check(partition, second, began_ms)
        assert await ForgottenProducers(rpc._env).check(partition, second, began_ms) == 1
        partition.fence.seen(log.producers, [read_header(batches[0])])  # it was refused meanwhile
        with pytest.raises(DuplicateSequence):
            await store(0)
        for number in (1, 2):
            await store(number)
        end = log.log_end_offset
        assert end == len(["aborted", "its marker"]) + 3
        for number in (2, 1):
            await store(number)  # the producer is known by these
        with pytest.raises(DuplicateSequence):
            await store(0)  # the next coordinator begins there
        assert log.log_end_offset == end

        await mark()
        forget_producers(partition)
        await mark()
        for number in (0, 1, 2, 0):  # known by its marker, and forgotten
            with pytest.raises(DuplicateSequence):
                await store(number)
        forget_producers(partition)
        for number in (2, 0, 1):
            with pytest.raises(DuplicateSequence):
                await store(number)
        assert await seen(client, "out") == [b"1st", b"2nd", b"3rd"]


async def test_what_is_not_committed_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two coordinators sent a batch at once. While one request had the log read, the other's batch
    came into it, and was taken for stored before it was: its leader may still have lost it."""
    async with lone_node(tmp_path, ONE) as node, connect(node.native) as client:
        await client.admin.create_topic("out", partitions=1)
        broker = node.node.broker
        with trio.fail_after(60):
            while (partition := broker.replicas.table.get("out", 0)) is None:  # noqa: ASYNC110
                await trio.sleep(0.02)
        rpc, began_ms = broker.transactions.rpc, int(time.time() * 1000)
        epoch = LeaderEpoch(partition.replica.leader_epoch)
        async with client.producer() as producer:
            await producer.send("out", b"something to read")

        def batch(producer_id: int) -> bytearray:
            who, staged = (
                ProducerIdentity(producer_id, 3),
                Staged("out", 0, -1, began_ms, None, b"x"),
            )
            (made,) = staged_batches.staged_batches([staged], PartitionName("out", 0), who)
            return bytearray(made)

        async def store(producer_id: int) -> None:
            order = AppendStaged("out", 0, epoch, LeaderEpoch(0), 30_000)
            await rpc.append_staged(NodeId(0), order, batch(producer_id))

        honest, others = LogSlice.read_async, [10**9]

        async def beside_another(self: LogSlice) -> bytes:
            while others:
                await store(others.pop())
            return bytes(await honest(self))

        forgotten = ForgottenProducers(rpc._env)
        with monkeypatch.context() as busy:
            busy.setattr(LogSlice, "read_async", beside_another)
            header = read_header(batch(10**9))
            assert await forgotten.check(partition, header, began_ms) == 0, "for produce to judge"

        await store(10**9 + 1)
        end = partition.log.log_end_offset
        forget_producers(partition)
        with monkeypatch.context() as behind:
            behind.setattr(partition.replica, "high_watermark", end - 1)
            with pytest.raises(NotEnoughReplicas, match="not committed"):
                await forgotten.check(partition, read_header(batch(10**9 + 1)), began_ms)
        with pytest.raises(DuplicateSequence):
            await forgotten.check(partition, read_header(batch(10**9 + 1)), began_ms)


async def test_it_is_aborted_and_none_that_is_known(tmp_path: Path) -> None:
    """Committed records behind it were never shown; nothing ever ended it."""
    flags = {**ONE, "log.producer_check_ms": "100"}
    async with (
        lone_node(tmp_path, flags) as node,
        connect(node.native) as client,
        client.transactional_producer("live") as live,
    ):
        await client.admin.create_topic("out", partitions=1)
        await live.begin()
        await live.send("out", b"live 1")
        broker = node.node.broker
        partition = broker.replicas.table.get("out", 0)
        assert partition is not None
        forgotten = ProducerIdentity(10**9, 0)
        (batch,) = staged_batches.staged_batches(
            [Staged("out", 0, -1, 0, None, b"forgotten")], PartitionName("out", 0), forgotten
        )
        epoch = LeaderEpoch(partition.replica.leader_epoch)
        order = AppendStaged("out", 0, epoch, LeaderEpoch(0), 30_000)
        await broker.transactions.rpc.append_staged(NodeId(0), order, batch)
        opened = partition.log.producers.transactions.open
        assert len(opened) == 2
        with trio.fail_after(60):
            while forgotten.producer_id in opened:  # noqa: ASYNC110  no event tells
                await trio.sleep(0.02)
        assert len(opened) == 1
        await live.send("out", b"live 2")
        await live.commit()
        assert await seen(client) == [b"live 1", b"live 2"]
        assert partition.log.producers.transactions.aborted[0].producer_id == forgotten.producer_id


async def test_its_offsets_are_dropped_and_none_of_one_that_is_known(tmp_path: Path) -> None:
    """Nobody was told the group's stable offsets any more, and nothing ever ended that."""
    flags = {**ONE, "log.producer_check_ms": "100"}
    async with (
        lone_node(tmp_path, flags) as node,
        connect(node.native) as client,
        client.transactional_producer("live") as live,
    ):
        await client.admin.create_topic("out", partitions=2)
        await live.begin()
        await live.send_offsets({PartitionName("out", 1): 7}, "team")
        broker = node.node.broker
        groups = broker.transactions.rpc.groups
        key = GroupKey(Family.KAFKA, "team")
        (number,) = [at for at, _, engine in groups.machines() if key in engine.store.pending]
        forgotten = 10**9

        def stage(engine: GroupEngine) -> PendingOffsets:
            offsets = engine.transactional
            offsets.stage(offsets.ticket(key, forgotten), 0, 1, [Commit("out", 0, 5)])
            return engine.store.pending[key]

        pendings = await groups.perform(number, key, stage, commit_s=30)
        assert len(pendings.producers()) == 2
        with trio.fail_after(60):
            while forgotten in pendings.producers():  # noqa: ASYNC110  no event tells
                await trio.sleep(0.02)
        assert len(pendings.producers()) == 1
        await live.commit()


async def test_a_log_that_knows_a_higher_epoch_refuses_an_id_once(tmp_path: Path) -> None:
    """Of as many restarts as transactions were forgotten each was refused."""
    flags = {**ONE, "log.producer_check_ms": "100"}
    async with lone_node(tmp_path, flags) as node, connect(node.native) as client:
        await client.admin.create_topic("out", partitions=1)
        async with client.transactional_producer("live") as live, live.transaction():
            await live.send("out", b"before")
        broker = node.node.broker
        partition = broker.replicas.table.get("out", 0)
        assert partition is not None
        (producer_id,) = [int.from_bytes(key[1]) for key, _ in partition.log.producers]
        (batch,) = staged_batches.staged_batches(
            [Staged("out", 0, -1, 0, None, b"forgotten")],
            PartitionName("out", 0),
            ProducerIdentity(producer_id, 100),
        )
        epoch = LeaderEpoch(partition.replica.leader_epoch)
        order = AppendStaged("out", 0, epoch, LeaderEpoch(0), 30_000)
        await broker.transactions.rpc.append_staged(NodeId(0), order, batch)
        with trio.fail_after(60):
            while partition.log.producers.transactions.open:  # noqa: ASYNC110  no event tells
                await trio.sleep(0.02)
        async with client.transactional_producer("live") as refused:
            await refused.begin()
            with pytest.raises(InvalidProducerEpoch):
                await refused.send("out", b"refused")
        async with client.transactional_producer("live") as live, live.transaction():
            await live.send("out", b"after")
        assert await seen(client) == [b"after", b"before"]
