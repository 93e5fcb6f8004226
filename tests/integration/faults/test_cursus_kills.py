"""Nodes that die at named steps of a Cursus transaction's end: readers see all of each
transaction or nothing, and its client is told how every one ended.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.integration.faults.cursus_bookkeeper import Bookkeeper
from tests.integration.faults.faulty import FaultyCluster, FaultyHost, faulty_cluster
from tests.integration.node.cursus_client import CursusClient, payloads

pytestmark = pytest.mark.timeout(180)

PARTITIONS = 3
COORDINATOR = (
    "transaction.offsets-pending",
    "transaction.deciding",
    "transaction.prepared",
    "transaction.staged",
    "transaction.partly-marked",
    "transaction.settled",
)
LEADER = ("transaction.staged-received", "transaction.marker-appended")
"""Points that partitions' leaders come to."""
FIRST = ("transaction.deciding", "transaction.partly-marked", "transaction.marker-appended")
"""Before the decision, between markers, and a leader; the others are slow."""


class DyingHost(FaultyHost):
    """The machine, whose process ends at the point that is armed."""

    def __init__(self) -> None:
        super().__init__()
        self.armed = ""
        self.struck = trio.Event()

    def buggify(self, site: str) -> bool:
        if site == self.armed:
            self.armed = ""
            self.struck.set()
            self.exit(137)
        return False


class DyingCluster(FaultyCluster):
    host_type = DyingHost


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=[] if point in FIRST else [pytest.mark.slow])
        for point in (*COORDINATOR, *LEADER)
    ],
)
async def test_all_or_nothing(tmp_path: Path, point: str) -> None:
    committed: list[int] = []
    async with faulty_cluster(tmp_path, DyingCluster) as nodes:
        addresses = [nodes.up[number].addresses["cursus"] for number in range(3)]
        async with CursusClient(addresses[0]) as maker:
            await maker.create(f"topic=ledger partitions={PARTITIONS}")
            home = await maker.ok("FIND_COORDINATOR transactional_id=bookkeeper")
        for partition in range(PARTITIONS):
            await nodes.in_sync("ledger", partition, 0, 1, 2)
        keeper = Bookkeeper(addresses, "bookkeeper", "ledger", "readers")
        await keeper.open()
        await keeper.transact(1, PARTITIONS, commits=True)
        committed.append(1)
        leader = await nodes.leader("ledger", 0)
        victim = int(home["coordinator_id"]) if point in COORDINATOR else leader
        host = nodes.hosts[victim]
        assert isinstance(host, DyingHost)
        host.armed = point
        for number in range(2, 7):
            await keeper.transact(number, PARTITIONS, commits=number % 4 != 0)
            if number % 4:
                committed.append(number)
        assert host.struck.is_set(), "nobody died at that point"
        assert victim not in nodes.up
        assert await keeper.committed() == committed[-1]
        async with CursusClient(addresses[(victim + 1) % 3]) as reader:
            for partition in range(PARTITIONS):
                found = await reader.read(f"CONSUME ledger {partition} 0")
                assert payloads(found) == [b"%d" % number for number in committed]
