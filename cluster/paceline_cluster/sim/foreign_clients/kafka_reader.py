"""A Kafka consumer without a group: goes on at the next leader where the last one left it."""

from __future__ import annotations

import random

import trio

from paceline.errors import PacelineError
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.foreign_clients.kafka import KafkaCluster, fetch, kafka_cluster
from paceline_cluster.sim.foreign_clients.links import AGAIN_S
from paceline_cluster.sim.history import Recorder, at
from paceline_cluster.sim.plan import Plan, places_of

_WAIT_MS = 400


class KafkaReader:
    """Reads one partition after the other from its start, until cancelled."""

    def __init__(self, name: str, plan: Plan, recorder: Recorder, rng: random.Random) -> None:
        self.name = name
        self._recorder = recorder
        self._rng = rng
        self._places = places_of(plan.topics)
        self._lives = 0

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Read until cancelled."""
        rng = self._rng
        async with kafka_cluster(cluster, host, rng) as known:
            while True:
                self._lives += 1
                with trio.move_on_after(rng.uniform(2.0, 6.0)):
                    await self._read(known, f"{self.name}.{self._lives}", rng.choice(self._places))

    async def _read(self, known: KafkaCluster, name: str, where: tuple[str, int]) -> None:
        version = self._rng.choice((4, 11, 12))
        offset = 0
        self._recorder.seek(name, at(*where), offset)
        while True:
            try:
                offset = await fetch(
                    known, name, where, offset, self._recorder, version=version, wait_ms=_WAIT_MS
                )
            except PacelineError:
                known.forget()
                await trio.sleep(AGAIN_S)
