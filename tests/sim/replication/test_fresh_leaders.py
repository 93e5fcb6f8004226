"""A new leader that holds more than it knows to be committed: what clients were told is there must
not be called missing (replication/DESIGN 3.2, listeners/DESIGN 8.3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast
from uuid import UUID

import pytest
import trio
import trio.testing

from paceline.errors import (
    NotEnoughReplicas,
    OffsetNotAvailable,
    OffsetOutOfRange,
    RequestTimedOut,
    UnknownOutcome,
)
from paceline.types import NodeId
from paceline.wire.batch_header import ProducerNamespace
from paceline.wire.cursus.batch import CursusRecord
from paceline.wire.cursus_record_mapping import record_of
from paceline.wire.peer.control import CreateSegmentRequest
from paceline.wire.records import Record
from paceline.wire.segment.events import frame_events
from paceline_node.loop_turns import Turns
from paceline_node.replication.partition import Partition
from paceline_node.security.principals import AllowAll, node_principal
from paceline_node.services.authorization.authorizer import Authorizer
from paceline_node.services.event_streams.event_streams import EventStreams
from paceline_node.services.partitions.partition_access import PartitionAccess
from paceline_node.services.records.list_offsets import OffsetService
from paceline_node.services.records.trim import TO_HIGH_WATERMARK, TrimService
from paceline_node.services.segments.led_segment import LedSegment
from paceline_node.services.segments.segment_service import SegmentService
from paceline_node.services.topics.topic_service import TopicService
from tests.integration.replication.cluster import batch, produce
from tests.sim.replication.memory_cluster import RECORDS, MemoryCluster, memory_cluster

TOPIC = "rivers_brief"
DATA = frame_events([b"one Event"])
WAIT_S = 5.0
PRINCIPAL = node_principal(NodeId(9))


class Services:
    """What a node's listeners ask."""

    def __init__(self, cluster: MemoryCluster, number: int) -> None:
        node = cluster.nodes[number]
        env = cluster.make_env(number, lambda disk: disk)
        access = Authorizer(AllowAll(), lambda name: {})
        # Only what makes and removes topics needs a controller.
        topics = TopicService(
            env,
            cluster.authority.stores[node.node_id],
            cast(Any, node.controller),
            access,
            auto_create=False,
            is_cut_off=lambda _: False,
        )
        table = node.manager.table
        self.segments = SegmentService(env, node.node_id, access, table, topics)
        records = PartitionAccess(access, table, topics)
        self.trimming = TrimService(access, records, topics)
        self.offsets = OffsetService(records, Turns())


def cut(cluster: MemoryCluster, number: int) -> None:
    """Nothing from others reaches a node; its controller does."""
    for other in set(cluster.nodes) - {number}:
        cluster.fabric.cut(cluster.host_of(other), cluster.host_of(number))


def heal(cluster: MemoryCluster, number: int) -> None:
    for other in set(cluster.nodes) - {number}:
        cluster.fabric.heal(cluster.host_of(other), cluster.host_of(number))


async def heal_soon(cluster: MemoryCluster, number: int) -> None:
    await trio.sleep(0.2)
    heal(cluster, number)


async def new_segment(cluster: MemoryCluster) -> LedSegment:
    """A new segment at its leader."""
    cluster.authority.decide(None, CreateSegmentRequest(TOPIC, 0, "", UUID(int=7)))
    await cluster.wait(lambda: cluster.leader(TOPIC) is not None)
    await cluster.wait(lambda: cluster._in_place(TOPIC, 0, 3))
    leader = cluster.leader(TOPIC)
    assert leader is not None
    return led(cluster, leader)


def led(cluster: MemoryCluster, leader: Partition) -> LedSegment:
    """The segment at the node that leads it."""
    return Services(cluster, leader.leader).segments.led(leader)


async def append(segment: LedSegment) -> None:
    """Store one more Event; its writer is told that it is."""
    start = segment.log_end
    writer = segment.writer(ProducerNamespace.SEGMENT_SEED, bytes(15) + b"w")
    await writer.append_and_wait(start, start + len(DATA), 1, DATA, timeout_s=WAIT_S)


def event(key: bytes, version: int) -> Record:
    """As Cursus's clients append it."""
    return record_of(
        CursusRecord(key=key, payload=b"event", aggregate_version=version), timestamp_ms=1
    )


async def unsure(
    cluster: MemoryCluster, topic: str, work: Callable[[], Awaitable[object]]
) -> Partition:
    """Let the leader do ``work``; then another replica leads, which holds what came of it and
    does not know that it is committed until :func:`heal`."""
    fresh = cluster.follower(topic)
    partition = fresh.partition(topic)
    await work()
    assert partition.high_watermark < partition.log_end_offset, "it has been told already"
    cut(cluster, fresh.node_id)
    cluster.elect(topic, fresh.node_id)
    assert partition.is_leader
    assert not partition.replica.high_watermark_is_true
    return partition


async def test_acknowledged_bytes_are_given_up_at_a_leader_that_is_not_sure_of_them(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster, trio.open_nursery() as nursery:
        old = await new_segment(cluster)
        fresh = await unsure(cluster, TOPIC, lambda: append(old))
        segment = led(cluster, fresh)
        with pytest.raises(NotEnoughReplicas, match="is not committed"):
            await segment.truncate(len(DATA), timeout_s=0.1)
        nursery.start_soon(heal_soon, cluster, fresh.leader)
        await segment.truncate(len(DATA), timeout_s=WAIT_S)
        info = await segment.info(timeout_s=WAIT_S)
        assert (info.bounds.start, info.bounds.end) == (len(DATA), len(DATA))
        with pytest.raises(OffsetOutOfRange, match=f"is outside 0..{len(DATA)}"):
            await segment.truncate(len(DATA) + 1, timeout_s=WAIT_S)


async def test_a_leader_that_is_not_sure_says_no_length_and_unseals_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        old = await new_segment(cluster)
        await append(old)
        fresh = await unsure(cluster, TOPIC, lambda: old.seal(timeout_s=WAIT_S))
        segment = led(cluster, fresh)
        with pytest.raises(NotEnoughReplicas, match="is not committed"):
            await segment.info(timeout_s=0.1)
        heal(cluster, fresh.leader)
        info = await segment.info(timeout_s=WAIT_S)
        assert info.bounds.is_sealed
        assert info.bounds.end == len(DATA)


async def test_a_truncation_asked_for_again_is_done_when_the_first_one_is_committed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The first try lies in the leader's log, and another leader may never have heard of it."""
    async with memory_cluster() as cluster:
        segment = await new_segment(cluster)
        leader = cluster.leader(TOPIC)
        assert leader is not None
        await append(segment)
        await cluster.wait(lambda: cluster.all_at(TOPIC, 1))
        cut(cluster, leader.leader)
        with pytest.raises(UnknownOutcome):
            await segment.truncate(len(DATA), timeout_s=0.1)
        with pytest.raises(NotEnoughReplicas, match="is not committed"):
            await segment.truncate(len(DATA), timeout_s=0.1)
        heal(cluster, leader.leader)
        await segment.truncate(len(DATA), timeout_s=WAIT_S)
        assert leader.high_watermark == leader.log_end_offset == 2


async def test_a_level_is_told_behind_something_of_the_leaders_own_term(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A replica that is away may have more of the term before, which was on its way to the leader
    that died. Were nothing committed since, its log would be the longest."""
    async with memory_cluster() as cluster:
        await append(await new_segment(cluster))
        await cluster.wait(lambda: cluster.all_at(TOPIC, 1))
        fresh = cluster.follower(TOPIC)
        cluster.elect(TOPIC, fresh.node_id)
        partition = fresh.partition(TOPIC)
        segment = led(cluster, partition)
        for key in (bytes(15) + b"w", bytes(15) + b"x", bytes(15) + b"w"):
            writer = segment.writer(ProducerNamespace.SEGMENT_SEED, key)
            assert await writer.level(timeout_s=WAIT_S) == (len(DATA) if key[-1:] == b"w" else 0)
            assert partition.log.epochs.last_epoch == partition.replica.leader_epoch
            assert partition.high_watermark == partition.log_end_offset == 2
        await append(segment)
        assert segment.bounds().end == 2 * len(DATA)


async def test_acknowledged_records_are_trimmed_at_a_leader_that_is_not_sure_of_them(
    autojump_clock: trio.testing.MockClock,
) -> None:
    end = len(RECORDS) + 1
    async with memory_cluster() as cluster:
        old = await cluster.written(RECORDS)
        fresh = await unsure(cluster, "t", lambda: produce(old, batch(b"acknowledged")))
        service = Services(cluster, fresh.leader).trimming
        for offset in (end, TO_HIGH_WATERMARK):
            with pytest.raises(OffsetNotAvailable, match="not confirmed yet"):
                await service.trim(PRINCIPAL, "t", 0, offset, timeout_s=WAIT_S)
        assert fresh.log_start_offset == 0
        with pytest.raises(RequestTimedOut, match="not yet on all in-sync replicas"):
            await service.trim(PRINCIPAL, "t", 0, 3, timeout_s=0)
        assert fresh.log_start_offset == 3, "what it knows to be committed can be deleted"
        heal(cluster, fresh.leader)
        await cluster.wait(lambda: fresh.replica.high_watermark_is_true)
        with pytest.raises(OffsetOutOfRange):
            await service.trim(PRINCIPAL, "t", 0, end + 1, timeout_s=WAIT_S)
        assert await service.trim(PRINCIPAL, "t", 0, TO_HIGH_WATERMARK, timeout_s=WAIT_S) == end


async def test_a_leader_that_is_not_sure_lets_no_stream_and_no_offset_fall(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Whoever was told version 2 must not be told 1, nor that 2 is free."""
    async with memory_cluster() as cluster:
        old = await cluster.written([])
        streams = EventStreams(cluster.make_env(old.leader, lambda disk: disk))

        async def write(version: int) -> None:
            record = event(b"key", version)
            await streams.append(old, b"key", version, record, timeout_s=WAIT_S)

        await write(1)
        await cluster.wait(lambda: cluster.all_at("t", 1))
        fresh = await unsure(cluster, "t", lambda: write(2))
        offsets = Services(cluster, fresh.leader).offsets
        for ask in (
            lambda: streams.version(fresh, b"key"),
            lambda: streams.snapshot(fresh, b"key"),
            lambda: streams.read(fresh, b"key", 1),
        ):
            with pytest.raises(OffsetNotAvailable, match="not confirmed yet"):
                await ask()
        with pytest.raises(OffsetNotAvailable, match="not confirmed yet"):
            offsets.ends(PRINCIPAL, "t", 0)
        heal(cluster, fresh.leader)
        await cluster.wait(lambda: fresh.replica.high_watermark_is_true)
        assert await streams.version(fresh, b"key") == 2
        assert len(await streams.read(fresh, b"key", 1)) == 2
        assert offsets.ends(PRINCIPAL, "t", 0).high_watermark == 2
