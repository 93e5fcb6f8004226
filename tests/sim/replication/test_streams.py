"""Event streams whose events are gone: a version is given once, whoever leads."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from paceline.errors import Throttled
from paceline.wire.cursus.batch import CursusRecord
from paceline.wire.cursus_record_mapping import record_of
from paceline_node.replication.partition import Partition
from paceline_node.services.event_streams.event_streams import EventStreams, VersionConflict
from paceline_node.storage.memory_disk import MemoryDisk
from tests.sim.replication.memory_cluster import MemoryCluster, memory_cluster
from tests.sim.replication.test_states import SETTINGS, give_up_all, joins, leads


def streams(cluster: MemoryCluster, number: int) -> EventStreams:
    return EventStreams(cluster.make_env(number, lambda disk: disk))


async def append(service: EventStreams, leader: Partition, key: bytes, version: int) -> int:
    event = record_of(CursusRecord(key=key, payload=b"e" * 300, aggregate_version=version))
    return await service.append(leader, key, version, event, timeout_s=10)


@pytest.mark.parametrize("how", ["followed", "behind", "wiped"])
async def test_versions_go_on_behind_retention_and_a_change_of_leader(
    how: str, autojump_clock: trio.testing.MockClock
) -> None:
    """Version 1 was given twice, by a leader whose log had nothing left of the stream."""
    async with memory_cluster() as cluster:
        await cluster.create_topic("t", **SETTINGS)
        leader = await leads(cluster, 0)
        service = streams(cluster, 0)
        if how != "followed":
            await cluster.kill(2)
            await cluster.wait(lambda: 2 not in cluster.registration("t").isr)
        for version in range(1, 7):
            await append(service, leader, b"k", version)
        await append(service, leader, b"other", 1)
        await service.save_snapshot(leader, b"k", 3, b"s", timeout_s=10)
        await give_up_all(cluster)
        if how == "wiped":
            cluster.disks[2] = MemoryDisk()
        if how != "followed":
            await joins(cluster, 2)
        successor = await leads(cluster, 2)
        await cluster.wait(lambda: successor.high_watermark >= successor.log_end_offset)
        again = streams(cluster, 2)
        assert await again.version(successor, b"k") == 6
        with pytest.raises(VersionConflict) as conflict:
            await append(again, successor, b"k", 1)
        assert conflict.value.current == 6
        offset = await append(again, successor, b"k", 7)
        assert await again.version(successor, b"k") == 7
        assert [each.offset for each in await again.read(successor, b"k", 7)] == [offset]
        assert await again.version(successor, b"other") == 1


async def test_there_are_only_so_many_streams(autojump_clock: trio.testing.MockClock) -> None:
    """Their versions lie in the memory of every replica for ever, and anybody may name one more."""
    async with memory_cluster() as cluster:
        await cluster.create_topic("t", **SETTINGS)
        leader = await leads(cluster, 0)
        service = EventStreams(cluster.make_env(0, lambda disk: disk), streams_max=3)
        for key in (b"a", b"b", b"c"):
            await append(service, leader, key, 1)
        for _ in range(2):
            with pytest.raises(Throttled, match=r"cursus\.event_streams_max"):
                await append(service, leader, b"d", 1)
        await append(service, leader, b"a", 2)
        with pytest.raises(VersionConflict):
            await append(service, leader, b"b", 1)
        await give_up_all(cluster)
        with pytest.raises(Throttled):
            await append(service, leader, b"d", 1)
        assert await append(service, leader, b"c", 2) > 0
