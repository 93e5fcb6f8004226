"""What one node wrote down of where its logs begin is as it was some time ago. What was deleted
stays deleted, whoever leads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio.testing

from paceline_node.env import Disk
from paceline_node.replication.leader import LeaderState
from paceline_node.replication.partition import Partition
from paceline_node.storage import layout
from paceline_node.storage.layout import CheckpointedStart, Offsets, PartitionKey
from tests.integration.replication.test_replication import values
from tests.sim.replication.memory_cluster import MemoryCluster, memory_cluster

START = 4
SEGMENTS = ("1048576", "1024")
"""One, in whose midst it is; several, some of which are gone then."""
RECORDS = [b"value %2d" % number * 30 for number in range(12)]
ITS_OWN = Offsets.LOG_START.files
ALL = (*ITS_OWN, Offsets.HIGH_WATERMARK.value)


async def checkpoint(cluster: MemoryCluster) -> None:
    for node in cluster.nodes.values():
        await node.manager.maintenance.checkpoint()


async def trim(cluster: MemoryCluster, leader: Partition) -> None:
    """Delete records; the client is told so."""
    told: list[int] = []
    leader.trim(START)
    leader.trims.when_reached(START, lambda: told.append(START))
    await cluster.wait(lambda: bool(told))
    await checkpoint(cluster)


async def all_killed(cluster: MemoryCluster, names: tuple[str, ...], segment_bytes: str) -> int:
    """Records were deleted, then all nodes killed; the leader's files ``names`` are older. Its
    number."""
    leader = await cluster.written(RECORDS, min_insync_replicas="2", segment_bytes=segment_bytes)
    await checkpoint(cluster)
    aged = leader.leader
    disk = cluster.disks[aged]
    early = {name: disk.content(name) for name in names}
    await trim(cluster, leader)
    for number in sorted(cluster.nodes, key=lambda each: each == aged):
        await cluster.kill(number)
    for name, content in early.items():
        assert disk.content(name) != content
        disk.overwrite(name, content)
    return aged


async def check_all_begin_there(cluster: MemoryCluster, aged: int) -> None:
    def begins() -> bool:
        return all(n.partition("t").log_start_offset == START for n in cluster.nodes.values())

    await cluster.wait(lambda: len(cluster.registration("t").isr) == 3, timeout_s=60)
    if cluster.registration("t").leader != aged:
        cluster.elect("t", aged)
    await cluster.wait(lambda: cluster.leader("t") is cluster.nodes[aged].partition("t"))
    await cluster.wait(begins)
    led = cluster.leader("t")
    assert led is not None
    assert values(led) == RECORDS[START:]
    await cluster.wait(lambda: led.trims.low_watermark == START)


async def lead_alone(segment_bytes: str) -> None:
    """Its own files are old; ``hw.ckpt`` is not."""
    async with memory_cluster() as cluster:
        aged = await all_killed(cluster, ITS_OWN, segment_bytes)
        node = await cluster.start(aged)
        await cluster.wait(lambda: cluster.leader("t") is not None)
        assert values(node.partition("t")) == RECORDS[START:]
        for number in set(cluster.disks) - {aged}:
            await cluster.start(number)
        await check_all_begin_there(cluster, aged)


async def lead_others(segment_bytes: str, *, is_first: bool = False) -> None:
    """All files that say it are old."""
    async with memory_cluster() as cluster:
        aged = await all_killed(cluster, ALL, segment_bytes)
        for number in sorted(cluster.disks, key=lambda each: (each == aged) != is_first):
            await cluster.start(number)
        await check_all_begin_there(cluster, aged)
        await cluster.kill(aged)
        await cluster.start(aged)
        await check_all_begin_there(cluster, aged)


@pytest.mark.parametrize("segment_bytes", SEGMENTS)
async def test_a_leader_alone_knows_it_from_another_file(
    segment_bytes: str, autojump_clock: trio.testing.MockClock
) -> None:
    await lead_alone(segment_bytes)


@pytest.mark.parametrize("segment_bytes", SEGMENTS)
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_leader_that_has_forgotten_it_everywhere_learns_it_from_the_others(
    is_first: bool, segment_bytes: str, autojump_clock: trio.testing.MockClock
) -> None:
    await lead_others(segment_bytes, is_first=is_first)


async def _nothing_beside(_: Disk) -> dict[PartitionKey, CheckpointedStart]:
    return {}


@pytest.mark.parametrize(
    ("scene", "owner", "name", "broken"),
    [
        (lead_alone, layout, "read_beside", _nothing_beside),
        (lead_others, LeaderState, "others_begin_at", lambda *_, alone: alone),
    ],
    ids=["other file", "others"],
)
async def test_without_the_rule_deleted_records_are_back(
    scene: Callable[[str], Awaitable[None]],
    owner: object,
    name: str,
    broken: object,
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mutants: the scenes above can fail."""
    monkeypatch.setattr(owner, name, broken)
    with pytest.RaisesGroup(AssertionError, flatten_subgroups=True):
        await scene(SEGMENTS[0])
