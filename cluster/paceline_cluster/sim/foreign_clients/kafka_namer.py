"""Clients of Kafka that ask for producer ids and write nothing. Each id is given out once, ever:
two producers of one id would take each other's records for their own."""

from __future__ import annotations

import random

import trio

from paceline.errors import PacelineError
from paceline.wire.kafka.transactions import InitProducerIdRequest, InitProducerIdResponse
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.foreign_clients.kafka import kafka_cluster, raise_for
from paceline_cluster.sim.foreign_clients.links import AGAIN_S
from paceline_cluster.sim.history import Recorder

_PAUSE_S = 0.1


class KafkaNamer:
    """Asks any node, again and again."""

    def __init__(self, name: str, recorder: Recorder, rng: random.Random) -> None:
        self.name = name
        self._recorder = recorder
        self._rng = rng

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Ask from ``host`` until cancelled."""
        async with kafka_cluster(cluster, host, self._rng) as known:
            while True:
                try:
                    link = await known.links.to_any()
                    told = await link.ask(InitProducerIdRequest(), 4, InitProducerIdResponse)
                    raise_for(told.error_code, "INIT_PRODUCER_ID")
                    self._recorder.named(told.producer_id)
                except PacelineError:
                    known.forget()
                    await trio.sleep(AGAIN_S)
                await trio.sleep(self._rng.uniform(0.0, _PAUSE_S))
