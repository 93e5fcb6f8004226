"""The last reading of what foreign clients have copied in transactions, for the judge
(``copy_rule.py``)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

import trio

from paceline.client import Client, Position
from paceline.types import TopicPartition
from paceline_cluster.chaos.copies import Copying
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.foreign_clients.copier import ForeignCopier
from paceline_cluster.sim.foreign_clients.copy_rule import CopyRule, Read
from paceline_cluster.sim.plan import ForeignClient, Plan
from paceline_cluster.sim.workload import while_connected

_AGAIN_S = 0.3
_DECIDED_S = 10.0
"""How long a transaction that was committed may take until it shows everywhere."""


def copying_of(plan: Plan, client: ForeignClient) -> Copying:
    """Who of a protocol copies what."""
    topic = plan.topics[0]
    name = plan.foreign_copies(client).name
    return Copying(topic.name, topic.partitions, f"{client.value}-copiers", name, 1)


async def what_is_wrong_with_foreign_copies(
    workers: Iterable[object], cluster: SimCluster, host: str, rng: random.Random
) -> str | None:
    """The first problem of a group whose copiers are among ``workers``, once none of them copies
    any more; None for nothing."""
    one_of_each = {each.rule: each for each in workers if isinstance(each, ForeignCopier)}
    for rule, copier in one_of_each.items():
        offsets = await copier.offsets_in_the_end(cluster, host)
        problem = await _judged(rule, offsets, cluster, host, rng)
        if problem is not None:
            return problem
    return None


async def _judged(
    rule: CopyRule,
    offsets: Mapping[int, int],
    cluster: SimCluster,
    host: str,
    rng: random.Random,
) -> str | None:
    deadline = trio.current_time() + _DECIDED_S
    told: list[str | None] = []

    async def judge(client: Client) -> None:
        while True:
            copies = [
                read.value for read in await _read(client, TopicPartition(rule.copying.copies, 0))
            ]
            records = [
                read for source in rule.copying.sources for read in await _read(client, source)
            ]
            problem = rule.judge(offsets, records, copies)
            if problem is None or trio.current_time() > deadline:
                told.append(problem)
                return
            await trio.sleep(_AGAIN_S)

    await while_connected(cluster, host, rng, judge)
    return told[-1]


async def _read(client: Client, at: TopicPartition) -> list[Read]:
    async with client.consumer([at], stop=Position.LATEST) as consumer:
        return [
            Read(at.partition, record.offset, record.value or b"")
            async for batch in consumer.batches()
            for record in batch.records()
        ]
