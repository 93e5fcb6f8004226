"""What records said outlives them: the state as of a log's start goes to whoever begins there."""

from __future__ import annotations

import errno

import msgpack
import pytest
import structlog.testing
import trio
import trio.testing

from paceline.errors import SegmentSealed
from paceline.types import Acks, NodeId
from paceline.wire.batch import ProducerNamespace, read_header
from paceline.wire.native.admin import ReassignPartition
from paceline_node.replication.partition import Partition
from paceline_node.services.future import Future
from paceline_node.storage import checkpoint, partition_file, producer_file
from paceline_node.storage.byte_segment_batches import Run, run_batch, seal_batch
from paceline_node.storage.byte_segment_state import require_next, writer_key
from paceline_node.storage.memory_disk import MemoryDisk
from tests.integration.replication.cluster import batch, produce
from tests.sim.replication.memory_cluster import MemoryCluster, memory_cluster

WRITER = bytes(range(16))
KEY = writer_key(ProducerNamespace.SEGMENT_PRAVEGA, WRITER)
SETTINGS = {"segment_bytes": "1024", "min_insync_replicas": "2"}


async def store(leader: Partition, data: bytearray) -> None:
    answer: Future[object] = Future()
    leader.produce(data, [read_header(data)], acks=Acks.ALL, timeout_s=10, done=answer.deliver)
    await answer.wait()


async def append_run(leader: Partition, start: int, size: int) -> None:
    """A run of the writer's, of that many bytes."""
    marks = leader.log.producers.marks
    run = Run(ProducerNamespace.SEGMENT_PRAVEGA, WRITER, start, start + 1, 1, b"e" * size)
    await store(leader, run_batch(run, marks, 1_000))


async def give_up_all(cluster: MemoryCluster) -> Partition:
    """Give up all of the leader's records."""
    leader = cluster.leader("t")
    assert leader is not None
    leader.log.seal()
    cluster.nodes[leader.replica.me].manager.flusher.request(leader.log)
    end = leader.log_end_offset
    await cluster.wait(lambda: leader.high_watermark == leader.log.durable_offset == end)
    leader.trim(end)
    await cluster.wait(lambda: leader.log.segments[0].base_offset == end)
    return leader


async def joins(cluster: MemoryCluster, number: int) -> Partition:
    """The node's replica, once it is in the ISR."""
    await cluster.start(number)
    await cluster.wait(lambda: number in cluster.registration("t").isr, 60.0)
    return cluster.nodes[number].partition("t")


async def leads(cluster: MemoryCluster, number: int) -> Partition:
    if cluster.registration("t").leader != number:
        cluster.elect("t", number)
    await cluster.wait(lambda: cluster.leader("t") is cluster.nodes[number].partition("t"))
    found = cluster.leader("t")
    assert found is not None
    return found


@pytest.mark.parametrize("how", ["behind", "wiped"])
async def test_a_segment_stays_sealed_and_as_long_as_it_was(
    how: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with memory_cluster() as cluster:
        await cluster.create_topic("t", **SETTINGS)
        await leads(cluster, 0)
        leader = cluster.leader("t")
        assert leader is not None
        await append_run(leader, -1, 100)
        await cluster.kill(2)
        await cluster.wait(lambda: 2 not in cluster.registration("t").isr)
        for start in range(5):
            await append_run(leader, start, 700)
        await store(leader, seal_batch(leader.log.producers.marks, 1_000))
        await give_up_all(cluster)
        if how == "wiped":
            cluster.disks[2] = MemoryDisk()
        await joins(cluster, 2)
        successor = await leads(cluster, 2)
        marks = successor.log.producers.marks
        assert marks.end_position == 3_600, marks
        writer = successor.log.producers.writer(KEY)
        assert writer is not None
        assert writer.end == 5
        with pytest.raises(SegmentSealed):
            require_next(marks, writer.end, 5)


async def test_a_batch_sent_again_is_known_to_a_replica_that_came_later(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Through the reassignment to a node that never had the records, and a crash of all."""
    async with memory_cluster(4) as cluster:
        await cluster.create_topic("t", **SETTINGS)
        number = next(iter(cluster.registration("t").replicas))
        leader = await leads(cluster, number)
        for sequence in range(20):
            await produce(leader, batch(b"v" * 200, producer=(7, 0, sequence)))
        await give_up_all(cluster)
        outsider = int(cluster.outsider().node_id)
        replicas = (*cluster.registration("t").replicas[1:], NodeId(outsider))
        cluster.authority.decide(None, ReassignPartition("t", 0, replicas))
        await cluster.wait(lambda: outsider in cluster.registration("t").isr, 60.0)
        successor = await leads(cluster, outsider)
        assert successor.log_start_offset == 20
        again = await produce(successor, batch(b"v" * 200, producer=(7, 0, 19)))
        assert again.duplicate
        assert successor.log_end_offset == 20


async def test_the_state_of_many_producers_goes_in_pieces(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """More than one answer holds, and more than is written in the middle of an append."""
    async with memory_cluster() as cluster:
        await cluster.create_topic("t", min_insync_replicas="2")
        leader = await leads(cluster, 0)
        await cluster.kill(2)
        await cluster.wait(lambda: 2 not in cluster.registration("t").isr)
        async with trio.open_nursery() as nursery:
            for number in range(3000):
                nursery.start_soon(produce, leader, batch(b"v", producer=(number, 0, 0)))
        await give_up_all(cluster)
        cluster.nodes[0].manager.states.piece_bytes = 4096
        cluster.nodes[1].manager.states.piece_bytes = 4096
        replica = await joins(cluster, 2)
        assert len(replica.log.producers) == 3000
        assert replica.log.producers == leader.log.producers
        assert replica.log_start_offset == 3000


@pytest.mark.parametrize("how", ["lost", "rotten"])
@pytest.mark.parametrize("who", ["leader", "follower"])
async def test_a_lost_state_is_fetched_from_a_peer(
    how: str, who: str, autojump_clock: trio.testing.MockClock
) -> None:
    """It is the one file that says what records that are gone have said."""
    async with memory_cluster() as cluster:
        await cluster.create_topic("t", **SETTINGS)
        leader = await leads(cluster, 0)
        for sequence in range(20):
            await produce(leader, batch(b"v" * 200, producer=(7, 0, sequence)))
        await give_up_all(cluster)
        await produce(leader, batch(b"w" * 200, producer=(8, 0, 0)))
        await cluster.wait(lambda: cluster.all_at("t", 21))
        await cluster.wait(
            lambda: all(n.partition("t").log_start_offset == 20 for n in cluster.nodes.values())
        )
        number = 0 if who == "leader" else 2
        path = cluster.nodes[number].partition("t").log.path
        await cluster.kill(number)
        disk = cluster.disks[number]
        for offset in producer_file.offsets(disk.list(path)):
            if how == "lost":
                disk.remove(f"{path}/{producer_file.name(offset)}")
            else:
                content = bytearray(disk.content(f"{path}/{producer_file.name(offset)}"))
                content[len(content) // 2] ^= 1
                disk.overwrite(f"{path}/{producer_file.name(offset)}", bytes(content))
        replica = await joins(cluster, number)
        successor = await leads(cluster, number)
        assert replica is successor
        again = await produce(successor, batch(b"v" * 200, producer=(7, 0, 19)))
        assert again.duplicate
        assert successor.log.state_offset is not None


async def needs_the_anchor_of(cluster: MemoryCluster, number: int) -> str:
    """The only replica that has nothing is to begin with the anchor of the node that leads; the
    path of that."""
    await cluster.create_topic("t", **SETTINGS)
    leader = await leads(cluster, number)
    for start in range(-1, 4):
        await append_run(leader, start, 700)
    leader = await give_up_all(cluster)
    await cluster.kill(2)
    cluster.disks[2].wipe()
    offset = leader.log.state_offset
    assert offset
    return f"{leader.log.path}/{producer_file.name(offset)}"


@pytest.mark.parametrize("is_alone", [False, True])
async def test_a_leader_whose_state_cannot_be_read_writes_it_anew(
    is_alone: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """Whoever had nothing asked for it for ever, and nobody said why; later one who was told it
    could not help where it was the only one left."""
    async with memory_cluster() as cluster:
        path = await needs_the_anchor_of(cluster, 0)
        if is_alone:
            await cluster.kill(1)
        cluster.disks[0].make_unreadable(path, 10, 11)
        with structlog.testing.capture_logs() as logs:
            await joins(cluster, 2)
        (told,) = (each for each in logs if each["event"] == "state is damaged")
        assert "cannot be read (Input/output error)" in told["reason"]
        assert cluster.registration("t").leader == 0
        assert not cluster.registration("t").damaged
        assert not cluster.nodes[0].failures
        assert cluster.nodes[2].partition("t").log.producers.writer(KEY) is not None


async def test_a_leader_short_of_descriptors_has_lost_no_state(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        path = await needs_the_anchor_of(cluster, 0)
        cluster.disks[0].fail_next("open", code=errno.EMFILE, path=path)
        with structlog.testing.capture_logs() as logs:
            await joins(cluster, 2)
        assert not cluster.disks[0].will_fail("open")
        assert not any(each["log_level"] == "error" for each in logs)
        assert cluster.registration("t").leader == 0


async def test_who_comes_later_begins_inside_a_batch_too(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Records were given up in the middle of a batch: a new replica waited for ever."""
    async with memory_cluster() as cluster:
        await cluster.create_topic("t", **SETTINGS)
        leader = await leads(cluster, 0)
        await cluster.kill(2)
        for _ in range(6):
            await produce(leader, batch(*[b"v" * 60] * 10))
        leader.trim(35)
        await cluster.wait(lambda: leader.log.segments[0].base_offset == 30)
        replica = await joins(cluster, 2)
        await cluster.wait(lambda: replica.log_start_offset == 35)
        assert replica.log_end_offset == 60


async def test_a_directory_of_the_version_before_opens_and_keeps_what_is_known(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """It has neither a snapshot at its start nor the mark that there must be one."""
    async with memory_cluster() as cluster:
        await cluster.create_topic("t", **SETTINGS)
        leader = await leads(cluster, 0)
        for sequence in range(20):
            await produce(leader, batch(b"v" * 200, producer=(7, 0, sequence)))
        leader.trim(10)
        await cluster.wait(lambda: leader.log.segments[0].base_offset > 0)
        await cluster.wait(lambda: cluster.all_at("t", 20))
        logs = {number: node.partition("t").log for number, node in cluster.nodes.items()}
        for number, log in logs.items():
            await cluster.stop(number)
            disk = cluster.disks[number]
            for offset in producer_file.offsets(disk.list(log.path)):
                disk.remove(f"{log.path}/{producer_file.name(offset)}")
            table = msgpack.packb([-1, log.producers.snapshot()])
            old = checkpoint.encode(checkpoint.Kind.PRODUCERS, table)
            disk.create(f"{log.path}/{producer_file.name(20)}").append([old])
            identity = [log.topic_id.bytes, "t", 0]
            metadata = checkpoint.encode(checkpoint.Kind.PARTITION, msgpack.packb(identity))
            disk.overwrite(f"{log.path}/{partition_file.NAME}", metadata)
        cluster.disks[2] = MemoryDisk()
        for number in (0, 1):
            await cluster.start(number, clean=True)
        await joins(cluster, 2)
        successor = await leads(cluster, 2)
        again = await produce(successor, batch(b"v" * 200, producer=(7, 0, 19)))
        assert again.duplicate
        for number in (0, 1):
            assert not cluster.nodes[number].manager.repairs.damaged
