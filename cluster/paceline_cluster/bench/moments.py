"""Times and sizes of the cluster itself: start, failover, memory."""

from __future__ import annotations

import time

import trio

from paceline.client import Client, ProducerSettings, connect
from paceline.types import TopicPartition
from paceline_cluster.bench.figures import Aim, Figure, percentile
from paceline_cluster.bench.rig import Rig
from paceline_cluster.bench.throughput import REPLICATION_FACTOR, leader_of

START_AIM = Aim(2.0, at_least=False)
FAILOVER_AIM = Aim(0.5, at_least=False)
MEMORY_AIM = Aim(60, at_least=False)
SETTLE_S = 1.0


async def start(rig: Rig) -> Figure:
    """From 'paceline up' to the first write that all replicas hold (topic creation included)."""
    begin = time.monotonic()
    await trio.to_thread.run_sync(rig.up)
    up_s = time.monotonic() - begin
    async with connect(rig.addresses) as client, client.producer() as producer:
        await producer.send("first", b"value")
        wall_s = time.monotonic() - begin
    details = {"up_s": round(up_s, 2)}
    return Figure("up to first acknowledged write", round(wall_s, 2), "s", START_AIM, details)


async def memory(rig: Rig) -> Figure:
    """Resident memory of the largest node, before any load."""
    await trio.sleep(SETTLE_S)
    sizes = rig.resident_mib()
    details = {f"node_{number}": round(size, 1) for number, size in enumerate(sizes)}
    return Figure("resident memory per idle node", round(max(sizes), 1), "MiB", MEMORY_AIM, details)


async def failover(client: Client, rig: Rig, *, times: int) -> Figure:
    """From SIGKILL of the leader to the acknowledgement of a write that was made after it."""
    topic = "failover"
    await client.admin.create_topic(
        topic, partitions=1, replication_factor=REPLICATION_FACTOR, if_not_exists=True
    )
    gaps = []
    async with client.producer(ProducerSettings()) as producer:
        for _ in range(times):
            await producer.send(topic, b"before")
            leader = await leader_of(client, TopicPartition(topic, 0))
            killed_at = rig.kill(leader)
            await producer.send(topic, b"after")
            gaps.append(time.monotonic() - killed_at)
            await trio.to_thread.run_sync(rig.restart, leader)
    details = {"min_s": round(min(gaps), 3), "max_s": round(max(gaps), 3), "times": len(gaps)}
    value = round(percentile(gaps, 0.5), 3)
    name = "SIGKILL of the leader to the next acknowledged write"
    return Figure(name, value, "s median", FAILOVER_AIM, details)
