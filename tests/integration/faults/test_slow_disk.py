"""A disk whose syncs take more than a second (replication/DESIGN 7; row 19 of
tests/sim/README.md)."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.integration.faults.faulty import FaultyCluster, faulty_cluster
from tests.integration.faults.writing import assert_complete, create, lead, writing

pytestmark = pytest.mark.timeout(120)

SLOW_S = 1.1


async def degraded(nodes: FaultyCluster, number: int, expected: bool) -> None:
    """Wait until a node says so of itself."""

    async def told() -> bool:
        return (await nodes.status(number)).degraded is expected

    await nodes.wait_for(f"node {number} degraded={expected}", told)


@pytest.mark.slow
async def test_a_leader_with_a_slow_disk_gives_way_and_may_come_back(tmp_path: Path) -> None:
    async with faulty_cluster(tmp_path) as nodes:
        await create(nodes, "t")
        # The hardest case: the slow node is also the one that has to order its own replacement.
        slow = (await nodes.status(0)).controller
        await lead(nodes, "t", slow)
        other = next(number for number in (0, 1, 2) if number != slow)
        async with writing(nodes, "t", via=other) as writer:
            began = trio.current_time()
            nodes.disks[slow].sync_delay_s = SLOW_S
            await degraded(nodes, slow, True)
            assert trio.current_time() - began >= 5.0, "one slow moment is no reason to move"

            async def moved() -> bool:
                return (await nodes.partition("t", 0, via=other)).leader != slow

            await nodes.wait_for("leadership moves away", moved)
            # As a follower in the ISR it still takes part in every acknowledgement.
            await writer.more(2)
            assert len((await nodes.partition("t", 0, via=other)).isr) >= 2
            assert all("|REPLICATION_TIMEOUT|" in each for each in writer.refused), writer.refused

            nodes.disks[slow].sync_delay_s = 0.0
            await degraded(nodes, slow, False)
            await nodes.in_sync("t", 0, 0, 1, 2)
            await lead(nodes, "t", slow)
            await writer.more()
        await assert_complete(nodes, writer)
