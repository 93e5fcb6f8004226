"""A client that writes in transactions: several records to both partitions of the ledger, then
commits or aborts. Now and then it vanishes in the middle, and its successor has to clean up.
"""

from __future__ import annotations

import random

import trio

from paceline.client.client import Client
from paceline.client.producer import Delivery
from paceline.client.settings import ProducerSettings, TransactionalSettings
from paceline.client.transactional import TransactionalProducer
from paceline.errors import PacelineError
from paceline.types import Acks
from paceline_cluster.checker import events
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.history import Recorder, Stream, at
from paceline_cluster.sim.plan import Plan
from paceline_cluster.sim.workload import AGAIN_S, while_connected

SETTINGS = TransactionalSettings(
    transaction_timeout_s=4.0,
    visible_s=1.0,
    producer=ProducerSettings(ack_timeout_s=1.0, delivery_timeout_s=4.0),
)
_ABORT = 0.25
"""How likely a transaction is aborted."""
_LINGER = 0.7
"""How likely a transaction stays open for a while when all of it is stored."""
_VANISH = 0.05
"""How likely a producer is left in the middle of one: the next one under its id fences it."""

Written = tuple[Stream, int, Delivery]


class _Vanished(Exception):
    """The producer is left as it is."""


class Transactor:
    """One transaction after the other until told to stop."""

    def __init__(self, name: str, plan: Plan, recorder: Recorder, rng: random.Random) -> None:
        self.name = name
        self._topic = plan.ledger
        self._pause_s = plan.pause_s
        self._recorder = recorder
        self._rng = rng
        self._streams: dict[int, Stream] = {}
        self.stopping = False
        self.ended = trio.Event()

    async def run(self, cluster: SimCluster, host: str) -> None:
        async def work(client: Client) -> None:
            while not self.stopping:
                try:
                    async with client.transactional_producer(self.name, SETTINGS) as producer:
                        while not self.stopping:
                            await self._transact(producer)
                            await trio.sleep(self._rng.uniform(0.0, self._pause_s))
                except (PacelineError, _Vanished):
                    await trio.sleep(AGAIN_S)

        await while_connected(cluster, host, self._rng, work)
        self.ended.set()

    async def _transact(self, producer: TransactionalProducer) -> None:
        """Write and decide; raises what leaves the outcome open."""
        recorder = self._recorder
        written: list[Written] = []
        await producer.begin()
        try:
            for _ in range(self._rng.choice((1, 2, 4))):
                written.append(await self._write(producer))
            if self._rng.random() < _LINGER:
                # What is aborted should have reached the log; what is open, readers.
                await producer.flush()
                await trio.sleep(self._rng.uniform(0.0, self._pause_s))
            if self._rng.random() < _VANISH:
                raise _Vanished
            if self._rng.random() < _ABORT:
                await producer.abort()
                for stream, counter, _ in written:
                    recorder.fail(stream, counter, "aborted")
            else:
                await producer.commit()
                for stream, counter, delivery in written:
                    stored = await delivery.wait()
                    recorder.ok(stream, counter, stored.offset, stored.leader_epoch)
        except (PacelineError, _Vanished) as error:
            for stream, counter, _ in written:
                recorder.unknown_outcome(stream, counter, repr(error))
            self._streams.clear()
            raise
        finally:
            runs = tuple((stream.number, counter, 1) for stream, counter, _ in written)
            recorder.say(events.Together(recorder.t, runs))

    async def _write(self, producer: TransactionalProducer) -> Written:
        partition = self._rng.randrange(self._topic.partitions)
        stream = self._streams.get(partition)
        if stream is None:
            where = at(self._topic.name, partition)
            stream = self._streams[partition] = self._recorder.open(
                self.name, where, Acks.ALL, idempotent=True
            )
        counter, (value,) = self._recorder.invoke(stream, 1, 0)
        try:
            delivery = await producer.submit(self._topic.name, value, partition=partition)
        except PacelineError as error:
            # Never sent, and the transaction cannot be committed any more.
            self._recorder.fail(stream, counter, repr(error))
            raise
        return stream, counter, delivery
