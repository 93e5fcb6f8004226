"""A client that deletes records: it reads a partition from its start, and now and then has deleted
what lies below a place that it has read."""

from __future__ import annotations

import random

import trio

from paceline.client.client import Client
from paceline.client.position import Position
from paceline.client.settings import ConsumerSettings
from paceline.errors import PacelineError
from paceline.types import TopicPartition
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.history import Recorder
from paceline_cluster.sim.retention.log_starts import LogStarts
from paceline_cluster.sim.workload import AGAIN_S, values_of, while_connected

_PATIENCE_S = 3.0


class Trimmer:
    """Nobody else may delete records of the partition ``at``. All that it deletes is in the history
    before, since it was read."""

    def __init__(
        self,
        name: str,
        at: TopicPartition,
        starts: LogStarts,
        recorder: Recorder,
        rng: random.Random,
    ) -> None:
        self.name = name
        self._at = at
        self._starts = starts
        self._recorder = recorder
        self._rng = rng
        self._next = 0
        self._due = 0.0
        self._lives = 0

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Read and delete until cancelled."""

        async def work(client: Client) -> None:
            while True:
                try:
                    await self._read(client)
                except PacelineError:
                    await trio.sleep(AGAIN_S)

        await while_connected(cluster, host, self._rng, work)

    async def _read(self, client: Client) -> None:
        self._lives += 1
        reader = f"{self.name}.{self._lives}"
        settings = ConsumerSettings(max_wait_s=0.2)
        start = Position.at(self._next)
        async with client.consumer([self._at], start=start, settings=settings) as consumer:
            self._recorder.seek(reader, str(self._at), self._next)
            async for batch in consumer.batches():
                values = values_of(batch)
                epoch = batch.header.leader_epoch
                self._recorder.given(reader, str(batch.at), batch.first_offset, epoch, values)
                self._next = batch.first_offset + len(values)
                if trio.current_time() >= self._due:
                    await self._trim(client)

    async def _trim(self, client: Client) -> None:
        before = self._next if self._rng.random() < 0.5 else self._rng.randint(0, self._next)
        self._due = trio.current_time() + self._rng.uniform(0.2, 1.2)
        self._starts.asked(self._at, before)
        with trio.move_on_after(_PATIENCE_S):
            await client.admin.trim(self._at, before)
            self._starts.told(self._at, before)
