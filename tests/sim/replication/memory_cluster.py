"""Replica managers of several nodes on memory disks, a simulated network and a virtual clock.

The cluster is that of the integration tests (``tests/integration/replication/cluster.py``): the
production code, and the controller's decisions applied to every node's store at once. Here a test
can let any disk fail in any way, and take its time over it.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from pathlib import Path

import trio

from paceline_cluster.sim.fabric import Fabric, Weather
from paceline_cluster.sim.machine import EPOCH_MS, SimNetwork
from paceline_node.env import Disk, Env
from paceline_node.replication.compaction_schedule import CompactionSettings
from paceline_node.replication.manager import ReplicationSettings
from paceline_node.replication.partition import Partition
from paceline_node.storage.compaction_file import CLEANED
from paceline_node.storage.memory_disk import MemoryDisk
from tests.integration.replication.cluster import SETTINGS, TestCluster, TestNode, batch, produce
from tests.unit.storage.world import StillHost

QUIET = replace(
    SETTINGS,
    maintenance=replace(SETTINGS.maintenance, checkpoint_s=3600.0, retention_s=3600.0),
    compaction=CompactionSettings(check_s=3600.0),
)
"""Maintenance and compaction happen when a test asks for them."""

RECORDS = [b"value %d" % number for number in range(12)]


class VirtualHost(StillHost):
    """A host on trio's clock; ``wall`` is the wall clock's time at its start."""

    def __init__(self) -> None:
        super().__init__()
        self.wall = EPOCH_MS

    def now(self) -> float:
        return trio.current_time()

    def wall_ms(self) -> int:
        return self.wall + int(trio.current_time() * 1000)


class MemoryCluster(TestCluster):
    """``disks`` and ``hosts`` are kept by node over restarts."""

    def __init__(self, nursery: trio.Nursery, settings: ReplicationSettings) -> None:
        super().__init__(Path(), nursery, settings)
        self.fabric = Fabric(random.Random(1), Weather(slow_share=0.0))
        self.disks: dict[int, MemoryDisk] = {}
        self.hosts: dict[int, VirtualHost] = {}

    def make_env(self, number: int, wrap: Callable[[Disk], Disk]) -> Env:
        disk = self.disks.setdefault(number, MemoryDisk())
        host = self.hosts.setdefault(number, VirtualHost())
        net = SimNetwork(self.fabric, self.host_of(number), lambda: True)
        return Env(host, wrap(disk), net, random.Random(number))

    def host_of(self, number: int) -> str:
        return f"host-{number}"

    async def written(
        self, values: Iterable[bytes], *, replicas: int = 3, **configs: str
    ) -> Partition:
        """The leader of a new topic ``t`` with these records, one a batch, on all replicas."""
        await self.create_topic("t", replicas=replicas, **configs)
        leader = self.leader("t")
        assert leader is not None
        for value in values:
            await produce(leader, batch(value))
        end = leader.log_end_offset
        await self.wait(lambda: self.all_at("t", end))
        return leader

    def all_at(self, topic: str, end: int) -> bool:
        """Whether all replicas hold, and know as committed, everything below ``end``."""
        hosted = (node.manager.table.get(topic, 0) for node in self.nodes.values())
        return all(p.high_watermark == p.log_end_offset == end for p in hosted if p is not None)

    def follower(self, topic: str = "t") -> TestNode:
        """A node that follows."""
        registration = self.registration(topic)
        return next(self.nodes[n] for n in registration.replicas if n != registration.leader)

    def outsider(self, topic: str = "t") -> TestNode:
        """A node without a replica."""
        replicas = self.registration(topic).replicas
        return next(node for number, node in self.nodes.items() if number not in replicas)


def fill(disk: MemoryDisk) -> None:
    """Leave no room on a disk; setting ``capacity_bytes`` to None makes room again."""
    disk.capacity_bytes = disk.total_bytes() - disk.free_bytes()


def rot(cluster: MemoryCluster, node: TestNode, offset: int) -> None:
    """Rot the record at ``offset`` of a node's replica."""
    partition = node.partition("t")
    found = partition.log.locate(offset, 1, partition.log_end_offset)
    assert found is not None
    disk = cluster.disks[node.node_id]
    path = found.file.path.removesuffix(CLEANED)  # as a compaction has called it since
    content = bytearray(disk.content(path))
    content[found.position + found.size - 2] ^= 1
    disk.overwrite(path, bytes(content))


@contextlib.asynccontextmanager
async def memory_cluster(
    count: int = 3, settings: ReplicationSettings = QUIET
) -> AsyncIterator[MemoryCluster]:
    """Needs a clock that jumps (``autojump_clock``)."""
    async with trio.open_nursery() as nursery:
        cluster = MemoryCluster(nursery, settings)
        await nursery.start(cluster.fabric.run)
        for number in range(count):
            await cluster.start(number)
        yield cluster
        for number in sorted(cluster.nodes):
            await cluster.stop(number)
        nursery.cancel_scope.cancel()
