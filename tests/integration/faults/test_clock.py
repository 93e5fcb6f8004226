"""A wall clock that jumps: nothing but timestamps may notice (row 15 of tests/sim/README.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.types import Isolation
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import ListOffsets, ListOffsetsReply, OffsetQuery
from tests.integration.faults.faulty import FaultyCluster, faulty_cluster
from tests.integration.faults.writing import assert_complete, create, writing
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import HANG_S

pytestmark = pytest.mark.timeout(120)

HOUR_MS = 3_600_000


@pytest.mark.parametrize("role", ["leader", pytest.param("follower", marks=pytest.mark.slow)])
async def test_a_clock_that_jumps_changes_no_role_and_deletes_nothing(
    tmp_path: Path, role: str
) -> None:
    half_an_hour = str(HOUR_MS // 2)
    async with faulty_cluster(
        tmp_path,
        log__retention_check_ms="100",
        log__retention_ms=half_an_hour,
        log__segment_bytes="2048",
    ) as nodes:
        leader = await create(nodes, "t")
        jumping = leader if role == "leader" else (leader + 1) % 3
        async with writing(nodes, "t", via=(leader + 2) % 3) as writer:
            await writer.more()
            before = await nodes.partition("t", 0)
            controller = (await nodes.status(0)).controller
            nodes.hosts[jumping].wall_offset_ms = HOUR_MS
            ahead_ms, ahead = nodes.hosts[leader].wall_ms(), max(writer.acked) + 1
            await writer.more(50)
            nodes.hosts[jumping].wall_offset_ms = -HOUR_MS
            await writer.more(50)
            nodes.hosts[jumping].wall_offset_ms = 0
            await writer.more()
            assert writer.refused == []
            after = await nodes.partition("t", 0)
            assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
            assert sorted(after.isr) == [0, 1, 2]
            assert (await nodes.status(0)).controller == controller
            assert nodes.exits == {}
            for node in nodes.up.values():  # closed segments do not go by one clock either
                log = node.node.broker.replicas.table.get("t", 0).log
                assert len(log.segments) > 3
                assert log.log_start_offset == 0
            # Records bear the time of the leader's clock as it was, and are found by it; one
            # write may have been under way when it jumped.
            offset, at_ms = await first_since(nodes, ahead_ms)
            assert offset in (ahead, ahead + 1)
            assert 0 <= at_ms - ahead_ms < HANG_S * 1000
            assert await first_since(nodes, ahead_ms + 2 * HOUR_MS) == (-1, -1)
        await assert_complete(nodes, writer)


async def first_since(nodes: FaultyCluster, time_ms: int) -> tuple[int, int]:
    """(offset, timestamp) of the first record that is not older, as the leader finds it."""
    leader = await nodes.leader("t", 0)
    body = ListOffsets(Isolation.READ_UNCOMMITTED, (OffsetQuery("t", 0, time_ms),))
    async with NativeConnection(nodes.up[leader].addresses["native"]) as connection:
        reply = await connection.call(NativeApi.LIST_OFFSETS, body, ListOffsetsReply)
    [found] = reply.partitions
    assert found.error == 0, found.message
    return found.offset, found.timestamp_ms
