"""Replication over real sockets and disks, in one process."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from paceline.errors import (
    DuplicateSequence,
    LeaderChangedAfterAppend,
    NotEnoughReplicas,
    NotLeader,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RequestTimedOut,
)
from paceline.types import Acks, OffsetSpec
from paceline.wire.batch import TRANSACTIONAL, build_batch, validate_client_batches
from paceline.wire.native.admin import DeleteTopic
from paceline.wire.peer.control import CreateSegmentRequest, DeleteSegmentRequest
from paceline.wire.records import Record, decode_records
from paceline_node.replication.offset_lookups import find_offset
from paceline_node.replication.partition import Partition
from paceline_node.replication.transaction_gate import MarkerOrder
from tests.integration.replication.cluster import (
    TestCluster,
    batch,
    produce,
    running_cluster,
)


def values(partition: Partition, *, from_follower: bool = False) -> list[bytes | None]:
    """All committed values, as a consumer reads them."""
    found: list[bytes | None] = []
    offset = partition.log_start_offset
    while True:
        read = partition.read(offset, 1 << 20, from_follower=from_follower)
        if read.slice is None:
            return found
        data = read.slice.read()
        position = 0
        while position < len(data):
            records = list(decode_records(data[position:]))
            found += [record.value for record in records]
            position += int.from_bytes(data[position + 8 : position + 12], "big") + 12
        offset = read.slice.next_offset


async def settled(cluster: TestCluster, topic: str) -> None:
    """All replicas hold and know as committed what the leader holds."""

    def equal() -> bool:
        leader = cluster.leader(topic)
        if leader is None:
            return False
        ends = {
            (p.log_end_offset, p.high_watermark)
            for node in cluster.nodes.values()
            if (p := node.manager.table.get(topic, 0)) is not None
        }
        return ends == {(leader.log_end_offset, leader.log_end_offset)}

    await cluster.wait(equal)


async def test_acknowledged_writes_are_on_every_replica(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await cluster.create_topic("orders", min_insync_replicas="2")
        leader = cluster.leader("orders")
        assert leader is not None
        for number in range(20):
            result = await produce(leader, batch(b"v%d" % number))
            assert (result.base_offset, result.last_offset) == (number, number)
            assert result.high_watermark > number
        await settled(cluster, "orders")
        expected = [b"v%d" % number for number in range(20)]
        for node in cluster.nodes.values():
            assert values(node.partition("orders"), from_follower=True) == expected


async def test_large_batches_travel_from_the_file(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await cluster.create_topic("big")
        leader = cluster.leader("big")
        assert leader is not None
        payload = bytes(range(256)) * 2048
        async with trio.open_nursery() as nursery:
            for _ in range(6):
                nursery.start_soon(produce, leader, batch(payload))
        await settled(cluster, "big")
        for node in cluster.nodes.values():
            assert values(node.partition("big"), from_follower=True) == [payload] * 6


async def test_acks_and_refusals(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await cluster.create_topic("t", min_insync_replicas="2")
        leader = cluster.leader("t")
        assert leader is not None
        assert (await produce(leader, batch(b"0"), acks=Acks.NONE)).last_offset == 0
        assert (await produce(leader, batch(b"1"), acks=Acks.LEADER)).last_offset == 1
        assert leader.log.durable_offset >= 2
        followers = [n for n in cluster.nodes.values() if n.node_id != leader.leader]
        with pytest.raises(NotLeader):
            await produce(followers[0].partition("t"), batch(b"x"))
        for node in followers:
            await cluster.kill(node.node_id)
        await cluster.wait(lambda: len(leader.isr) == 1)
        with pytest.raises(NotEnoughReplicas):
            await produce(leader, batch(b"x"))
        before = leader.high_watermark
        await produce(leader, batch(b"alone"), acks=Acks.LEADER)
        assert leader.high_watermark == before  # not committed below min ISR
        await cluster.start(followers[0].node_id)
        await cluster.wait(lambda: len(leader.isr) == 2)
        assert (await produce(leader, batch(b"again"))).last_offset == 3


async def test_pending_acks_fail_when_leadership_moves(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await cluster.create_topic("t")
        leader = cluster.leader("t")
        assert leader is not None
        other = next(n for n in cluster.nodes if n != leader.leader)
        outcome: list[type[Exception]] = []

        async def write() -> None:
            try:
                await produce(leader, batch(b"late"))
            except LeaderChangedAfterAppend as error:
                outcome.append(type(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()
            cluster.elect("t", other)
        moved = cluster.leader("t")
        assert moved is not None
        assert moved.leader == other
        assert outcome in ([], [LeaderChangedAfterAppend])
        with pytest.raises(NotLeader):
            await produce(leader, batch(b"x"))
        await produce(moved, batch(b"after"))
        await settled(cluster, "t")
        logs = {tuple(values(n.partition("t"), from_follower=True)) for n in cluster.nodes.values()}
        assert len(logs) == 1


async def test_failover_keeps_every_acknowledged_write(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await cluster.create_topic("t", min_insync_replicas="2")
        acknowledged: list[bytes] = []
        for round_number in range(3):
            leader = cluster.leader("t")
            assert leader is not None
            for number in range(10):
                value = b"%d-%d" % (round_number, number)
                await produce(leader, batch(value))
                acknowledged.append(value)
            victim = leader.leader
            await cluster.kill(victim)
            await cluster.wait(lambda: cluster.leader("t") is not None)
            await cluster.start(victim)
            await cluster.wait(lambda: len(cluster.registration("t").isr) == 3)
        await settled(cluster, "t")
        for node in cluster.nodes.values():
            assert values(node.partition("t"), from_follower=True) == acknowledged


async def test_uncommitted_tail_of_a_deposed_leader_is_cut(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await cluster.create_topic("t", min_insync_replicas="2")
        leader = cluster.leader("t")
        assert leader is not None
        await produce(leader, batch(b"kept"))
        await settled(cluster, "t")
        # The leader is cut off from its followers and from metadata, and goes on appending.
        old = cluster.nodes[leader.leader]
        others = [n for n in cluster.nodes.values() if n is not old]
        store = cluster.authority.stores.pop(old.node_id)
        cluster.elect("t", others[0].node_id)
        with pytest.raises(RequestTimedOut):
            await produce(leader, batch(b"lost"), timeout_s=0.3)
        assert leader.high_watermark == 1
        moved = cluster.leader("t")
        assert moved is not None
        cluster.authority.stores[old.node_id] = store
        cluster.authority._feed(store)
        await cluster.wait(lambda: len(cluster.registration("t").isr) == 3)
        await produce(moved, batch(b"new"))
        await settled(cluster, "t")
        assert values(old.partition("t"), from_follower=True) == [b"kept", b"new"]


async def test_idempotent_retries_survive_failover(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await cluster.create_topic("t")
        leader = cluster.leader("t")
        assert leader is not None
        first = await produce(leader, batch(b"a", b"b", producer=(7, 0, 0)))
        again = await produce(leader, batch(b"a", b"b", producer=(7, 0, 0)))
        assert again.duplicate
        assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
        await settled(cluster, "t")
        cluster.elect("t", next(n for n in cluster.nodes if n != leader.leader))
        moved = cluster.leader("t")
        assert moved is not None
        retried = await produce(moved, batch(b"a", b"b", producer=(7, 0, 0)))
        assert retried.duplicate
        with pytest.raises(OutOfOrderSequence):
            await produce(moved, batch(b"x", producer=(7, 0, 9)))
        both = batch(b"a", b"b", producer=(7, 0, 0)) + batch(b"c", producer=(7, 0, 2))
        mixed = await produce(moved, both)  # the first batch is known, the second is new
        assert (mixed.base_offset, mixed.last_offset, mixed.duplicate) == (0, 2, False)
        with pytest.raises(DuplicateSequence):
            await produce(moved, batch(b"z", producer=(7, 0, 1)))
        assert values(moved) == [b"a", b"b", b"c"]


async def test_reads_offsets_and_long_polls(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await cluster.create_topic("t")
        leader = cluster.leader("t")
        assert leader is not None
        woken: list[str] = []
        leader.when_readable(0, lambda: woken.append("first"))
        leader.when_readable(1, lambda: woken.append("second"))
        token = leader.when_readable(0, lambda: woken.append("cancelled"))
        leader.cancel(token)
        leader.cancel(token)
        await produce(leader, batch(b"a"))
        assert woken == ["first"]
        assert find_offset(leader, OffsetSpec.EARLIEST).offset == 0
        assert find_offset(leader, OffsetSpec.LATEST).offset == 1
        assert find_offset(leader, 1000)[:2] == (0, 1000)
        assert find_offset(leader, 5000).offset == -1
        with pytest.raises(OffsetOutOfRange):
            leader.read(2, 100)
        assert leader.read(1, 100).slice is None
        follower = next(n for n in cluster.nodes.values() if n.node_id != leader.leader)
        with pytest.raises(NotLeader):
            follower.partition("t").read(0, 100)
        cluster.elect("t", follower.node_id)
        assert woken == ["first", "second"]  # a role change wakes whoever waits


async def test_restart_keeps_the_log_and_rejoins(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await cluster.create_topic("t")
        leader = cluster.leader("t")
        assert leader is not None
        await produce(leader, batch(b"a", b"b"))
        follower = next(n for n in cluster.nodes if n != leader.leader)
        await cluster.stop(follower)
        await cluster.start(follower, clean=True)
        await cluster.wait(lambda: len(leader.isr) == 3)
        assert cluster.nodes[follower].partition("t").log_end_offset == 2
        await produce(leader, batch(b"c"))


async def test_deleted_topics_leave_no_files(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await cluster.create_topic("gone", partitions=2)
        leader = cluster.leader("gone")
        assert leader is not None
        cluster.authority.decide(None, DeleteTopic("gone"))
        topics = [node.root / "topics" for node in cluster.nodes.values()]
        await cluster.wait(lambda: all(not list(path.iterdir()) for path in topics))
        assert all(not node.manager.table.partitions for node in cluster.nodes.values())


async def test_whoever_still_holds_a_deleted_partition_is_refused(tmp_path: Path) -> None:
    """Its log is closed: an append must not look like a failing disk, which would end the node."""
    async with running_cluster(tmp_path) as cluster:
        await cluster.create_topic("gone")
        leader = cluster.leader("gone")
        assert leader is not None
        cluster.authority.decide(None, DeleteTopic("gone"))
        nodes = list(cluster.nodes.values())
        await cluster.wait(lambda: not any(node.manager.table.partitions for node in nodes))
        with pytest.raises(NotLeader):
            await produce(leader, batch(b"late"))
        with pytest.raises(NotLeader):
            leader.check_serving()


async def test_deleted_segments_leave_no_files_wherever_they_were(tmp_path: Path) -> None:
    """A node that was away at the deletion finds out when it comes back."""
    async with running_cluster(tmp_path) as cluster:
        for number in (3, 8):
            cluster.authority.decide(None, CreateSegmentRequest("sc_st", number))
        nodes = list(cluster.nodes.values())
        await cluster.wait(lambda: all(len(node.manager.table.partitions) == 2 for node in nodes))
        await cluster.stop(2)
        cluster.authority.decide(None, DeleteSegmentRequest("sc_st", 8))
        await cluster.start(2, clean=True)
        kept = {f"sc_st-3.{nodes[0].manager.table.partitions[0].topic_id.hex[:8]}"}
        topics = [node.root / "topics" for node in cluster.nodes.values()]
        await cluster.wait(
            lambda: all({each.name for each in path.iterdir()} == kept for path in topics)
        )
        for node in cluster.nodes.values():
            assert [each.partition for each in node.manager.table.partitions] == [3]


async def test_silent_follower_leaves_the_isr_and_returns(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        await cluster.create_topic("t")
        leader = cluster.leader("t")
        assert leader is not None
        silent = next(n for n in cluster.nodes.values() if n.node_id != leader.leader)
        silent.manager.fetchers.unfollow(silent.partition("t").key)
        await cluster.wait(lambda: silent.node_id not in leader.isr)
        await produce(leader, batch(b"without"))
        silent.manager.fetchers.follow(silent.partition("t"))
        await cluster.wait(lambda: silent.node_id in leader.isr)
        await settled(cluster, "t")


async def test_replicas_that_nobody_reads_remember_no_ended_transactions(tmp_path: Path) -> None:
    """They kept every one since the process began: nobody asked them what is stable."""
    async with running_cluster(tmp_path) as cluster:
        await cluster.create_topic("t")
        leader = cluster.leader("t")
        assert leader is not None
        for number in range(20):
            ticket = leader.gate.ticket(7, 0)
            ticket.confirm(1)
            leader.produce(
                data := build_batch(
                    [Record(-1, 1000, None, b"v")],
                    producer_id=7,
                    producer_epoch=0,
                    base_sequence=number,
                    flags=TRANSACTIONAL,
                ),
                validate_client_batches(data, allowed_attributes=TRANSACTIONAL),
                acks=Acks.ALL,
                timeout_s=10.0,
                done=lambda _: None,
                ticket=ticket,
            )
            ended = trio.Event()
            order = MarkerOrder(7, 0, number, number % 2 == 0, 1)
            leader.end_transaction(order, timeout_s=10.0, done=lambda _, ended=ended: ended.set())
            await ended.wait()
        await settled(cluster, "t")
        for node in cluster.nodes.values():
            replica = node.partition("t")
            await cluster.wait(lambda replica=replica: replica.high_watermark == 40)
            index = replica.log.producers.transactions
            assert (len(index.aborted), index.unsettled_count) == (10, 0)
