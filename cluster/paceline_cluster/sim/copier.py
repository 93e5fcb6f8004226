"""Read, process, write, exactly once: members of one group copy a topic in transactions that commit
how far they have read (``send_offsets``). They abort, vanish and leave in the middle.

A copy says which record it is of, so in the end each record that the group has read for good was
copied once, in order, by whoever it was assigned to.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping

import trio

from paceline.client.client import Client
from paceline.client.consumed import ConsumedBatch
from paceline.client.fetcher import OutOfRange
from paceline.client.group_consumer import GroupConsumer
from paceline.client.group_settings import GroupSettings
from paceline.client.position import Position
from paceline.client.transactional import TransactionalProducer
from paceline.errors import PacelineError
from paceline.types import TopicPartition
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.plan import COPIES, Plan
from paceline_cluster.sim.transactor import SETTINGS
from paceline_cluster.sim.workload import AGAIN_S, while_connected

GROUP = "copiers"
_MEMBERSHIP = GroupSettings(auto_commit_s=None, session_timeout_s=2.0, rebalance_timeout_s=4.0)
_ABORT = 0.15
_VANISH = 0.05
_DECIDED_S = 10.0
"""How long a transaction that was committed may need to show everywhere."""


class _Anew(Exception):
    """What was read is to be read again, from where the group is."""


class Copier:
    """Copies until told to stop."""

    def __init__(self, name: str, plan: Plan, rng: random.Random) -> None:
        self.name = name
        self._topic = plan.topics[0].name
        self._rng = rng
        self.stopping = False
        self.ended = trio.Event()

    async def run(self, cluster: SimCluster, host: str) -> None:
        async def work(client: Client) -> None:
            is_clean = False
            while not (self.stopping and is_clean):
                try:
                    # Whatever an earlier life has left open is aborted here.
                    async with client.transactional_producer(self.name, SETTINGS) as producer:
                        is_clean = self.stopping
                        if not self.stopping:
                            await self._live(client, producer)
                except (PacelineError, _Anew):
                    await trio.sleep(AGAIN_S)

        await while_connected(cluster, host, self._rng, work)
        self.ended.set()

    async def _live(self, client: Client, producer: TransactionalProducer) -> None:
        async with client.consumer(
            self._topic, group=GROUP, membership=_MEMBERSHIP, out_of_range=OutOfRange.EARLIEST
        ) as consumer:
            with trio.move_on_after(self._rng.uniform(2.0, 8.0)):
                async for batch in consumer.batches():
                    await self._copy(producer, consumer, batch)
        raise _Anew

    async def _copy(
        self, producer: TransactionalProducer, consumer: GroupConsumer, batch: ConsumedBatch
    ) -> None:
        await producer.begin()
        read_to = batch.first_offset
        for record in batch.records():
            copy = _copy_of(batch.at.partition, record.offset, record.value or b"")
            await producer.submit(COPIES, copy, partition=0)
            read_to = record.offset + 1
        await producer.send_offsets({batch.at: read_to}, consumer.member)
        if self._rng.random() < _ABORT:
            await producer.abort()
            raise _Anew
        if self._rng.random() < _VANISH or self.stopping:
            raise _Anew
        await producer.commit()


async def judge_copies(client: Client, plan: Plan) -> str | None:
    """What is wrong with the copies, once all transactions are decided; None for nothing."""
    topic = plan.topics[0]
    sources = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
    deadline = trio.current_time() + _DECIDED_S
    while True:
        try:
            copies = await _read(client, [TopicPartition(COPIES, 0)])
            offsets = await client.admin.groups.offsets(GROUP)
            originals = await _read(client, sources)
        except PacelineError:
            await trio.sleep(AGAIN_S)
            continue
        ends = {at: offsets[at].offset if at in offsets else 0 for at in sources}
        problem = _differ([value for _, value in copies], originals, ends)
        if problem is None or trio.current_time() > deadline:
            return problem
        await trio.sleep(AGAIN_S)


async def _read(
    client: Client, partitions: list[TopicPartition]
) -> list[tuple[tuple[int, int], bytes]]:
    found = []
    async with client.consumer(partitions, stop=Position.LATEST) as consumer:
        async for batch in consumer.batches():
            for record in batch.records():
                found.append(((batch.at.partition, record.offset), record.value or b""))
    return found


def _differ(
    copies: list[bytes],
    sources: list[tuple[tuple[int, int], bytes]],
    ends: Mapping[TopicPartition, int],
) -> str | None:
    for where, end in ends.items():
        number = where.partition
        expected = [
            _copy_of(number, offset, value)
            for (partition, offset), value in sources
            if partition == number and offset < end
        ]
        copied = [copy for copy in copies if copy.split(b" ", 1)[0] == b"%d" % number]
        if copied != expected:
            alike = itertools.takewhile(_are_equal, zip(copied, expected, strict=False))
            at = len(list(alike))
            return (
                f"{where} was read up to {end}: {len(expected)} records, {len(copied)} copies; "
                f"the first to differ is {copied[at : at + 1]}, expected {expected[at : at + 1]}"
            )
    return None


def _copy_of(partition: int, offset: int, value: bytes) -> bytes:
    return b"%d %d %b" % (partition, offset, value)


def _are_equal(pair: tuple[bytes, bytes]) -> bool:
    return pair[0] == pair[1]
