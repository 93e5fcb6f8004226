"""Bits that flip below the high watermark while the nodes run: found by whoever reads them, never
served, repaired from another replica (replication/DESIGN 6; rows 21 and 22 of
tests/sim/README.md)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from paceline.client import Position
from paceline.errors import PacelineError
from paceline.types import LeaderEpoch
from paceline.wire.batch_header import BatchHeader, iter_batches
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import CorruptExamined, ReportCorrupt
from paceline_node.services.records.corruption_reports import PAUSE_S
from tests.integration.faults.faulty import FaultyCluster, faulty_cluster
from tests.integration.faults.writing import assert_complete, create, lead, stored, writing
from tests.integration.node.machines import connect, data_dir
from tests.integration.node.native import NativeConnection

pytestmark = pytest.mark.timeout(120)


def segment_of(nodes: FaultyCluster, number: int) -> Path:
    topics = data_dir(nodes.directory, number) / "topics"
    [segment] = topics.glob("t-0.*/*.log")
    return segment


Flip = Callable[[FaultyCluster, int, dict[int, str]], bytes]


def flip_value(nodes: FaultyCluster, number: int, acked: dict[int, str]) -> bytes:
    """Flip one bit of the value at offset 20 in a node's segment, behind its back; the bytes as
    they were."""
    segment = segment_of(nodes, number)
    whole = segment.read_bytes()
    _flip(segment, whole, whole.index(acked[20].encode()), 0x10)
    return whole


def flip_base_offset(nodes: FaultyCluster, number: int, acked: dict[int, str]) -> bytes:
    """The same with the base offset of the batch that holds offset 20, which no checksum covers."""
    segment = segment_of(nodes, number)
    whole = segment.read_bytes()
    [at] = [at for at, header in iter_batches(whole) if 20 in range(*_offsets(header))]
    _flip(segment, whole, at + 7, 0x40)
    return whole


def _offsets(header: BatchHeader) -> tuple[int, int]:
    return header.base_offset, header.next_offset


def _flip(segment: Path, whole: bytes, position: int, bit: int) -> None:
    with segment.open("r+b") as file:
        file.seek(position)
        file.write(bytes([whole[position] ^ bit]))


both = pytest.mark.parametrize(
    "flip", [flip_value, pytest.param(flip_base_offset, marks=pytest.mark.slow)]
)


def is_whole(nodes: FaultyCluster, number: int, expected: bytes) -> bool:
    """Whether a node's log has the bytes that it had before the flip again."""
    topics = data_dir(nodes.directory, number) / "topics"
    segments = sorted(topics.glob("t-0.*/*.log"))
    return b"".join(segment.read_bytes() for segment in segments).startswith(expected)


@both
async def test_a_reader_finds_it_on_the_leader(tmp_path: Path, flip: Flip) -> None:
    async with faulty_cluster(tmp_path) as nodes:
        leader = await create(nodes, "t")
        async with writing(nodes, "t", via=(leader + 1) % 3) as writer:
            await writer.more(50)
        await nodes.in_sync("t", 0, 0, 1, 2)
        whole = flip(nodes, leader, writer.acked)
        async with nodes.v1(leader) as client:
            answer = await client.call("CONSUME", "t 0 0")
            assert answer.startswith("ERR|"), "bad bytes were served"
        await repaired(nodes, leader, whole)
        assert await nodes.leader("t", 0) != leader, "a damaged replica goes on leading"
        await assert_complete(nodes, writer)
        await lead(nodes, "t", leader)
        await assert_complete(nodes, writer)


@both
async def test_a_native_reader_reports_what_the_leader_sends_unread(
    tmp_path: Path, flip: Flip
) -> None:
    async with faulty_cluster(tmp_path) as nodes:
        leader = await create(nodes, "t")
        async with writing(nodes, "t", via=(leader + 1) % 3) as writer:
            await writer.more(50)
        await nodes.in_sync("t", 0, 0, 1, 2)
        whole = flip(nodes, leader, writer.acked)
        address = nodes.up[leader].native
        end = max(writer.acked) + 1
        with trio.fail_after(60):
            async with (
                connect(address) as client,
                client.consumer("t", start=Position.EARLIEST, stop=Position.at(end)) as consumer,
            ):
                read = {record.offset: record.value async for record in consumer}
        assert {offset: (read[offset] or b"").decode() for offset in writer.acked} == writer.acked
        await repaired(nodes, leader, whole)
        assert await nodes.leader("t", 0) != leader, "a damaged replica goes on leading"


async def test_a_lie_about_corruption_does_nothing(tmp_path: Path) -> None:
    async with faulty_cluster(tmp_path) as nodes:
        leader = await create(nodes, "t")
        async with writing(nodes, "t", via=leader) as writer:
            await writer.more(50)
        end = (await nodes.describe("t", 0)).high_watermark

        async def claim(at: NativeConnection, offset: int, epoch: int = -1) -> str:
            body = ReportCorrupt("t", 0, offset, LeaderEpoch(epoch))
            try:
                reply = await at.call(NativeApi.REPORT_CORRUPT, body, CorruptExamined)
            except PacelineError as error:
                return type(error).__name__
            return "damaged" if reply.damaged else "holds"

        async with (
            NativeConnection(nodes.up[leader].addresses["native"]) as near,
            NativeConnection(nodes.up[(leader + 1) % 3].addresses["native"]) as far,
        ):
            began = trio.current_time()
            answers = [await claim(near, offset % end) for offset in range(200)]
            looks = 1 + (trio.current_time() - began) / PAUSE_S
            assert set(answers) == {"holds", "Throttled"}
            assert answers.count("holds") <= looks, "claims without end make the disk busy"
            assert await claim(far, 5) == "NotLeader"
            assert await claim(near, 5, 999) == "UnknownLeaderEpoch"
            for offset in (-1, end + 100, 1 << 60):
                await trio.sleep(2 * PAUSE_S)
                assert await claim(near, offset) == "OffsetOutOfRange"
        assert await nodes.leader("t", 0) == leader
        assert len((await nodes.partition("t", 0, via=leader)).isr) == 3
        await assert_complete(nodes, writer)


async def repaired(nodes: FaultyCluster, number: int, whole: bytes) -> None:
    async def done() -> bool:
        return is_whole(nodes, number, whole)

    await nodes.wait_for(f"node {number} is repaired", done)
    await nodes.in_sync("t", 0, 0, 1, 2)


@both
async def test_a_follower_that_fetches_finds_it_on_the_leader(tmp_path: Path, flip: Flip) -> None:
    async with faulty_cluster(tmp_path) as nodes:
        leader = await create(nodes, "t")
        empty, via = (leader + 1) % 3, (leader + 2) % 3
        async with writing(nodes, "t", via=via) as writer:
            await writer.more(50)
        await nodes.crash(empty)
        whole = flip(nodes, leader, writer.acked)
        await nodes.wipe(empty)
        await nodes.start(empty)
        await repaired(nodes, leader, whole)
        assert is_whole(nodes, empty, whole), "the damage was copied"
        assert await nodes.leader("t", 0) == via
        await assert_complete(nodes, writer)


async def test_a_replica_damaged_as_a_follower_does_not_serve_it_when_it_leads(
    tmp_path: Path,
) -> None:
    """Nobody reads a follower, so it may be elected with damage that nobody knows of."""
    async with faulty_cluster(tmp_path) as nodes:
        leader = await create(nodes, "t")
        damaged, via = (leader + 1) % 3, (leader + 2) % 3
        async with writing(nodes, "t", via=via) as writer:
            await writer.more(50)
            await nodes.in_sync("t", 0, 0, 1, 2)
            whole = flip_value(nodes, damaged, writer.acked)
            await lead(nodes, "t", damaged)
            await writer.more()
            async with nodes.v1(via) as client:
                before = await client.call("CONSUME", "t 0 20")
                assert before.startswith("ERR|"), "bad bytes were served"
                await repaired(nodes, damaged, whole)
                await writer.more()
                found = await stored(client, "t")
                assert found[20] == writer.acked[20]
        await assert_complete(nodes, writer)
