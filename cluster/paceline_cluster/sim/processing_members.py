"""A native group whose programs say what they have worked through, fail in the middle, are long at
work, and commit by themselves, all that they have read, or by name.

Nobody goes back on purpose. So no record may be passed over, whoever fails, and nothing that a
commit has kept may be set back (``checker/processing.py``).
"""

from __future__ import annotations

import math
import random

import trio

from paceline.client.client import Client
from paceline.client.consumed import ConsumedBatch
from paceline.client.group_consumer import GroupConsumer
from paceline.client.group_settings import GroupSettings
from paceline.errors import IllegalGeneration, PacelineError, RebalanceInProgress, UnknownMember
from paceline.types import TopicPartition
from paceline_cluster.chaos.member import Asking
from paceline_cluster.checker import events
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.history import Recorder
from paceline_cluster.sim.plan import TopicPlan
from paceline_cluster.sim.workload import AGAIN_S, while_connected

WORKERS = "workers"
OVERSEERS = Asking(WORKERS, events.AskKept, events.KeptTold)
_MOVED = (IllegalGeneration, RebalanceInProgress, UnknownMember)
"""What tells a program that others go on with something that it has worked through."""
_LIFE_S = (1.0, 8.0)
_FAILS = 0.02
_LONG, _LONG_S = 0.04, (0.5, 5.0)
_COMMITS, _BY_NAME = 0.15, 0.1
_RESTS, _REST_S = 0.2, (0.2, 1.5)
"""How likely a program does something else before it asks for more, once it has committed."""


class _ProgramError(Exception):
    """A program fails on what it has in hand."""


class ProcessingMember:
    """One member after another. ``_reached``: how far the program that has the turn has worked
    through partitions, as it believes that its commits tell."""

    def __init__(self, name: str, topic: TopicPlan, recorder: Recorder, rng: random.Random) -> None:
        self.name = name
        self._topic = topic
        self._recorder = recorder
        self._rng = rng
        self._reached: dict[TopicPartition, int] = {}
        self._was_long = False

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Be a member until cancelled."""

        async def live(client: Client) -> None:
            while True:
                try:
                    await self._live(client)
                except (_ProgramError, PacelineError):
                    await trio.sleep(AGAIN_S)

        await while_connected(cluster, host, self._rng, live)

    async def _live(self, client: Client) -> None:
        rng = self._rng
        self._reached = {}
        membership = GroupSettings(
            auto_commit_s=rng.choice((None, 0.2, 1.0)),
            session_timeout_s=2.0,
            rebalance_timeout_s=4.0,
        )
        work = rng.choice((self._by_record, self._by_batch))
        life_s = rng.uniform(*_LIFE_S)
        leaves_within = rng.random() < 0.5
        with trio.move_on_after(math.inf if leaves_within else life_s):
            async with client.consumer(
                [self._topic.name], group=WORKERS, membership=membership
            ) as consumer:
                with trio.move_on_after(life_s if leaves_within else math.inf):
                    await work(consumer)

    async def _by_record(self, consumer: GroupConsumer) -> None:
        async for record in consumer:
            at = TopicPartition(record.topic, record.partition)
            await self._work_on(at, record.offset, record.offset + 1)
            await self._commit(consumer)

    async def _by_batch(self, consumer: GroupConsumer) -> None:
        async for batch in consumer.batches():
            for record in batch.records():
                await self._work_on(batch.at, record.offset, record.offset + 1)
            self._is_through(batch)
            await self._commit(consumer)

    async def _work_on(self, at: TopicPartition, first: int, end: int) -> None:
        rng = self._rng
        self._was_long = rng.random() < _LONG
        if self._was_long:
            await trio.sleep(rng.uniform(*_LONG_S))
        if rng.random() < _FAILS:
            raise _ProgramError
        recorder = self._recorder
        recorder.say(events.Worked(recorder.t, WORKERS, str(at), first, end))
        self._reached[at] = end

    def _is_through(self, batch: ConsumedBatch) -> None:
        self._reached[batch.at] = batch.end_offset

    async def _commit(self, consumer: GroupConsumer) -> None:
        rng = self._rng
        kind = rng.uniform(0.0, _COMMITS + _BY_NAME) if self._was_long else rng.random()
        if kind < _COMMITS:
            await self._commit_all(consumer)
        elif kind < _COMMITS + _BY_NAME:
            await self._commit_one(consumer, rng.choice(sorted(self._reached)))
        else:
            return
        if rng.random() < _RESTS:
            await trio.sleep(rng.uniform(*_REST_S))

    async def _commit_all(self, consumer: GroupConsumer) -> None:
        reached = dict(self._reached)
        try:
            await consumer.commit()
        except _MOVED:
            self._reached.clear()
        except PacelineError:
            pass  # nobody knows
        else:
            for at, offset in reached.items():
                self._keep(at, offset)

    async def _commit_one(self, consumer: GroupConsumer, at: TopicPartition) -> None:
        offset = self._reached[at]
        try:
            await consumer.commit({at: offset})
        except _MOVED:
            del self._reached[at]
        except PacelineError:
            pass
        else:
            self._keep(at, offset)

    def _keep(self, at: TopicPartition, offset: int) -> None:
        recorder = self._recorder
        recorder.say(events.Kept(recorder.t, WORKERS, str(at), offset))
