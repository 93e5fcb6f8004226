"""Kafka producers in the simulation: batches to the leader, with the numbers of an idempotent
producer or without."""

from __future__ import annotations

import random

from paceline.errors import ErrorCode, PacelineError
from paceline.wire.batch import build_value_batch
from paceline.wire.kafka import records as wire
from paceline.wire.kafka.transactions import InitProducerIdRequest, InitProducerIdResponse
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.foreign_clients.kafka import (
    KafkaCluster,
    KafkaLink,
    kafka_cluster,
    raise_for,
)
from paceline_cluster.sim.foreign_clients.writer import ForeignWriter, Request
from paceline_cluster.sim.history import Recorder, at
from paceline_cluster.sim.plan import Plan
from paceline_cluster.sim.workload import wall_ms

_TIMEOUT_MS = 1500
_NOBODY = (-1, -1)
_FINDINGS = frozenset(
    (
        ErrorCode.OUT_OF_ORDER_SEQUENCE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.DUPLICATE_SEQUENCE,
    )
)


class KafkaWriter(ForeignWriter):
    """With ``is_numbered`` it is an idempotent producer."""

    def __init__(
        self, name: str, plan: Plan, recorder: Recorder, rng: random.Random, *, is_numbered: bool
    ) -> None:
        super().__init__(name, plan, recorder, rng, is_numbered=is_numbered)
        self._version = rng.choice((3, 7, 9))
        self._id = _NOBODY
        self._sequences: dict[tuple[str, int], int] = {}

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Write from ``host`` until told to stop."""
        async with kafka_cluster(cluster, host, self._rng) as known:
            await self._work(lambda: self._write(known), known.forget)
        self.ended.set()

    async def _write(self, known: KafkaCluster) -> None:
        if self._is_numbered and self._id == _NOBODY:
            await self._begin(known)
        request = self._due()
        link = await known.leader(request.where)
        await self._settled(request, lambda: self._produce(link, request))

    async def _begin(self, known: KafkaCluster) -> None:
        link = await known.links.to_any()
        told = await link.ask(
            InitProducerIdRequest(), self._rng.choice((0, 2, 4)), InitProducerIdResponse
        )
        raise_for(told.error_code, "INIT_PRODUCER_ID")
        self._id = (told.producer_id, told.producer_epoch)

    async def _produce(self, link: KafkaLink, request: Request) -> int:
        """The offset of the batch. Raises PacelineError."""
        name, number = request.where
        part = wire.ProduceRequestTopicPartition(index=number, records=request.body)
        asked = wire.ProduceRequest(
            acks=self._acks.value,
            timeout_ms=_TIMEOUT_MS,
            topic_data=(wire.ProduceRequestTopic(name=name, partition_data=(part,)),),
        )
        told = await link.ask(asked, self._version, wire.ProduceResponse)
        (entry,) = told.responses
        (found,) = entry.partition_responses
        raise_for(found.error_code, f"PRODUCE {at(name, number)}")
        return found.base_offset

    def _body(self, where: tuple[str, int], values: list[bytes]) -> bytes:
        sequence = -1
        if self._is_numbered:
            sequence = self._sequences.get(where, 0)
            self._sequences[where] = sequence + len(values)
        batch = build_value_batch(
            values,
            timestamp_ms=wall_ms(),
            producer_id=self._id[0],
            producer_epoch=self._id[1],
            base_sequence=sequence,
        )
        return bytes(batch)

    def _renew(self) -> None:
        self._id = _NOBODY
        self._sequences.clear()

    def _is_finding(self, error: PacelineError) -> bool:
        return error.code in _FINDINGS
