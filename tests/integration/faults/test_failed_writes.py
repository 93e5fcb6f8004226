"""Writes that fail: a full disk is waited for, a broken one ends the node (storage/DESIGN 2.2;
rows 17 and 18 of tests/sim/README.md)."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from paceline.types import OffsetSpec, TopicPartition
from paceline_node.app.node import EXIT_DISK_FAILED
from tests.integration.faults.faulty import FaultyCluster, faulty_cluster, is_checkpoint, is_log
from tests.integration.faults.writing import (
    assert_complete,
    create,
    lead,
    stored,
    writing,
)
from tests.integration.node.machines import connect, data_dir

pytestmark = pytest.mark.timeout(120)


def log_bytes(nodes: FaultyCluster, number: int) -> int:
    """Size of the files of t/0 on a node."""
    topics = data_dir(nodes.directory, number) / "topics"
    return sum(file.stat().st_size for file in topics.glob("t-0.*/*.log"))


def fill(nodes: FaultyCluster, number: int) -> None:
    """No byte more fits on the node's disk, whatever the file."""
    nodes.disks[number].write_error = errno.ENOSPC


def make_room(nodes: FaultyCluster, number: int) -> None:
    nodes.disks[number].write_error = 0


async def test_a_leader_without_room_refuses_goes_on_serving_and_gives_way(tmp_path: Path) -> None:
    async with faulty_cluster(tmp_path, replication__lag_max_ms="1000") as nodes:
        leader = await create(nodes, "t")
        other = (leader + 1) % 3
        async with writing(nodes, "t", via=other) as writer:
            await writer.more()
        end = (await nodes.describe("t", 0)).log_end_offset
        size = log_bytes(nodes, leader)
        fill(nodes, leader)
        async with nodes.v1(leader) as near:
            answer = await writer.write(near)
            assert answer == "ERR|INTERNAL|t/0: No space left on device"
            assert len(await stored(near, "t")) == end
            assert log_bytes(nodes, leader) == size, "part of a refused write stayed in the file"
        await nodes.wait_for("a degraded leader gives way", lambda: _leads_other(nodes, leader))
        async with writing(nodes, "t", via=leader) as after:
            await after.more()
            # Long enough for checkpoints and metadata records, which find no room either.
            await nodes.wait_for("all else was refused too", lambda: _refused(nodes, leader))
            assert (await nodes.status(leader)).degraded, "its fetches are refused room, too"
            assert leader in nodes.up
            make_room(nodes, leader)
            await nodes.wait_for("well again", lambda: _is_well(nodes, leader))
        writer.acked |= after.acked
        await nodes.in_sync("t", 0, 0, 1, 2)
        await lead(nodes, "t", leader)
        await assert_complete(nodes, writer)
        async with nodes.v1(leader) as near:
            assert writer.last not in (await stored(near, "t")).values(), "a refused write is there"


async def _leads_other(nodes: FaultyCluster, former: int) -> bool:
    return (await nodes.partition("t", 0, via=(former + 1) % 3)).leader not in (-1, former)


async def _is_well(nodes: FaultyCluster, number: int) -> bool:
    return not (await nodes.status(number)).degraded


async def _refused(nodes: FaultyCluster, number: int) -> bool:
    paths = nodes.disks[number].refused_writes
    return any(path.startswith("metadata/") for path in paths) and any(
        path.endswith(".ckpt.tmp") or path == "durable.marks" for path in paths
    )


async def test_a_topic_made_while_a_disk_is_full_comes_to_be(tmp_path: Path) -> None:
    async with faulty_cluster(tmp_path) as nodes:
        full = (await nodes.status(0)).controller
        fill(nodes, full)
        via = (full + 1) % 3
        async with nodes.v1(via) as client:
            await client.ok("ADMIN_CREATE_TOPIC", "t 3 3")
        assert full in nodes.up

        async def tried() -> bool:
            paths = nodes.disks[full].refused_writes
            return len([path for path in paths if path.startswith("topics/t-")]) > 3

        await nodes.wait_for("the full node tries to make its logs", tried)
        make_room(nodes, full)
        for partition in range(3):
            await nodes.in_sync("t", partition, 0, 1, 2)
        names = [path.name for path in (data_dir(tmp_path, full) / "topics").iterdir()]
        assert not [name for name in names if name.startswith("stray")], names


async def test_a_follower_without_room_leaves_and_comes_back(tmp_path: Path) -> None:
    async with faulty_cluster(tmp_path, replication__lag_max_ms="1000") as nodes:
        leader = await create(nodes, "t")
        full, via = (leader + 1) % 3, (leader + 2) % 3
        async with writing(nodes, "t", via=via) as writer:
            await writer.more()
            fill(nodes, full)
            await nodes.wait_for("out of the ISR", lambda: _isr_is(nodes, via, leader, via))
            await writer.more()
            assert full in nodes.up
            make_room(nodes, full)
            await nodes.in_sync("t", 0, 0, 1, 2)
            await lead(nodes, "t", full)
            await writer.more()
        await assert_complete(nodes, writer)


async def _isr_is(nodes: FaultyCluster, via: int, *expected: int) -> bool:
    info = await nodes.partition("t", 0, via=via)
    return sorted(info.isr) == sorted(expected)


@pytest.mark.parametrize("role", ["leader", pytest.param("follower", marks=pytest.mark.slow)])
async def test_a_write_error_ends_the_node(tmp_path: Path, role: str) -> None:
    async with faulty_cluster(tmp_path) as nodes:
        leader = await create(nodes, "t")
        victim = leader if role == "leader" else (leader + 1) % 3
        via = (leader + 2) % 3
        async with writing(nodes, "t", via=via) as writer:
            await writer.more()
            disk = nodes.disks[victim]
            disk.broken = is_log
            disk.write_error = errno.EIO
            await nodes.ended(victim)
            assert nodes.exits[victim] == EXIT_DISK_FAILED
            assert len(disk.refused_writes) == 1, "the write was tried again"
            await writer.more()
            await nodes.start(victim)
            await nodes.in_sync("t", 0, 0, 1, 2)
        # The one that was on its way may have been stored, or not: it was never acknowledged. Those
        # that found no leader for too long were not: see assert_complete.
        assert all(_is_passing(answer) for answer in writer.refused), writer.refused
        await assert_complete(nodes, writer)


def _is_passing(answer: str) -> bool:
    return answer.startswith(("ERR|REPLICATION_TIMEOUT|", "ERR|NOT_LEADER|"))


async def test_a_follower_without_room_for_a_log_start_stops_no_trim(tmp_path: Path) -> None:
    """What is appended still fits into the last block of the log, a checkpoint nowhere: trims
    waited for as long as the disk was full, and health said that all was well."""
    flags = {"replication__lag_max_ms": "1000", "log__checkpoint_ms": "200"}
    async with faulty_cluster(tmp_path, **flags) as nodes:
        leader = await create(nodes, "t")
        full, via = (leader + 1) % 3, (leader + 2) % 3
        async with writing(nodes, "t", via=via) as writer:
            await writer.more()
            nodes.disks[full].broken = is_checkpoint
            fill(nodes, full)
            async with connect(nodes.up[via].native) as client:
                assert await client.admin.trim(TopicPartition("t", 0), 7) == 7
            assert await _isr_is(nodes, via, leader, via)
            said = await nodes.status(full)
            assert said.degraded
            assert said.damaged == ("the disk is full: no room for checkpoints",)
            make_room(nodes, full)
            await nodes.in_sync("t", 0, 0, 1, 2)
            await nodes.wait_for("well again", lambda: _is_well(nodes, full))
            assert (await nodes.status(full)).damaged == ()
            await lead(nodes, "t", full)
            await writer.more()
            async with connect(nodes.up[via].native) as client:
                at = TopicPartition("t", 0)
                assert (await client.admin.find_offsets({at: OffsetSpec.EARLIEST}))[at].offset == 7
