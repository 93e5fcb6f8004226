"""Kafka producers in the simulation, one request at a time.

An idempotent one sends a batch again, under its number, until it is answered; it is the only one of
its id, so a gap or a wrong epoch that it is told of is a finding. The other takes refusals as such.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import trio

from paceline.errors import ErrorCode, PacelineError
from paceline.types import Acks
from paceline.wire.batch import build_value_batch
from paceline.wire.kafka import records as wire
from paceline.wire.kafka.transactions import InitProducerIdRequest, InitProducerIdResponse
from paceline_cluster.sim.cluster import KAFKA_PORT, SimCluster
from paceline_cluster.sim.guests.kafka import KafkaCluster, KafkaLink, is_open, raise_for
from paceline_cluster.sim.guests.links import AGAIN_S, Links
from paceline_cluster.sim.history import Recorder, Stream, at
from paceline_cluster.sim.plan import Plan
from paceline_cluster.sim.workload import wall_ms

_TIMEOUT_MS = 1500
_NEW_ID = 0.03
"""How likely a producer goes on under a new id behind an acknowledgement."""
_FINDINGS = frozenset(
    (
        ErrorCode.OUT_OF_ORDER_SEQUENCE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.DUPLICATE_SEQUENCE,
    )
)
"""What the only producer of an id that sends one batch at a time is never told."""


@dataclass(frozen=True, slots=True)
class _Request:
    """What is to be acknowledged: counters of a stream, in one batch."""

    where: tuple[str, int]
    stream: Stream
    first: int
    count: int
    batch: bytes


class KafkaWriter:
    """Writes until told to stop."""

    def __init__(
        self, name: str, plan: Plan, recorder: Recorder, rng: random.Random, *, is_idempotent: bool
    ) -> None:
        self.name = name
        self._rng = rng
        self._recorder = recorder
        self._pause_s = plan.guest_pause_s
        self._is_idempotent = is_idempotent
        self._acks = Acks.ALL if is_idempotent else rng.choice((Acks.ALL, Acks.LEADER))
        self._version = rng.choice((3, 7, 9))
        self._places = [
            (topic.name, number) for topic in plan.topics for number in range(topic.partitions)
        ]
        self._streams: dict[tuple[str, int], Stream] = {}
        self._id = (-1, -1)
        self._sequences: dict[tuple[str, int], int] = {}
        self._request: _Request | None = None
        self._tries = 0
        self.stopping = False
        self.ended = trio.Event()

    async def run(self, cluster: SimCluster, host: str) -> None:
        rng = self._rng
        async with Links(cluster, host, KAFKA_PORT, KafkaLink, rng) as links:
            known = KafkaCluster(links, rng)
            while not self.stopping or self._request is not None:
                try:
                    if self._is_idempotent and self._id[0] < 0:
                        await self._begin(known)
                    await self._write(known)
                except PacelineError:
                    known.forget()
                    await trio.sleep(AGAIN_S)
                else:
                    await trio.sleep(rng.uniform(0.0, self._pause_s))
        self.ended.set()

    async def _begin(self, known: KafkaCluster) -> None:
        link = await known.links.to(known.links.anywhere())
        told = await link.ask(
            InitProducerIdRequest(), self._rng.choice((0, 2, 4)), InitProducerIdResponse
        )
        raise_for(told.error_code, "INIT_PRODUCER_ID")
        self._id = (told.producer_id, told.producer_epoch)

    async def _write(self, known: KafkaCluster) -> None:
        if self._request is None:
            self._request, self._tries = self._next(), 0
        request = self._request
        link = await known.leader(request.where)
        self._tries += 1
        try:
            offset = await self._produce(link, request)
        except PacelineError as error:
            self._refused(request, error)
            raise
        self._request = None
        for n in range(request.count):
            self._recorder.ok(request.stream, request.first + n, offset + n, -1)
        if self._is_idempotent and self._rng.random() < _NEW_ID:
            self._id = (-1, -1)
            self._sequences.clear()

    async def _produce(self, link: KafkaLink, request: _Request) -> int:
        """The offset of the batch. Raises PacelineError."""
        name, number = request.where
        part = wire.ProduceRequestTopicPartition(index=number, records=request.batch)
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

    def _refused(self, request: _Request, error: PacelineError) -> None:
        if self._is_idempotent:
            assert error.code not in _FINDINGS, f"{request.where}: {self.name} was told {error!r}"
            return
        self._request = None
        for counter in range(request.first, request.first + request.count):
            if is_open(error):
                self._recorder.unknown_outcome(request.stream, counter, repr(error))
            else:
                self._recorder.fail(request.stream, counter, repr(error))
        if is_open(error):
            del self._streams[request.where]

    def _next(self) -> _Request:
        rng, recorder = self._rng, self._recorder
        where = rng.choice(self._places)
        stream = self._streams.get(where)
        if stream is None:
            stream = self._streams[where] = recorder.open(
                self.name, at(*where), self._acks, idempotent=self._is_idempotent
            )
        count = rng.choice((1, 1, 2, 5))
        first, values = recorder.invoke(stream, count, rng.choice((0, 20)))
        sequence = -1
        if self._is_idempotent:
            sequence = self._sequences.get(where, 0)
            self._sequences[where] = sequence + count
        batch = build_value_batch(
            values,
            timestamp_ms=wall_ms(),
            producer_id=self._id[0],
            producer_epoch=self._id[1],
            base_sequence=sequence,
        )
        return _Request(where, stream, first, count, bytes(batch))
