"""An idempotent Kafka producer with several requests in flight, as librdkafka is one.

A burst of requests to one partition goes out at once; what was refused, and all behind it, goes
out again in the same order once all answers are there. An answer that the records are known already
counts as success, and that a number is out of line is believed only of the first that is missing:
then the producer begins anew, and what it does not know stays open.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import trio

from paceline.errors import ErrorCode, PacelineError
from paceline.types import Acks
from paceline.wire.batch import build_value_batch
from paceline.wire.kafka import records as wire
from paceline.wire.kafka.transactions import InitProducerIdRequest, InitProducerIdResponse
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.foreign_clients.kafka import KafkaCluster, kafka_cluster, raise_for
from paceline_cluster.sim.foreign_clients.links import AGAIN_S
from paceline_cluster.sim.foreign_clients.writer import Request
from paceline_cluster.sim.history import Recorder, Stream, at
from paceline_cluster.sim.plan import Plan, places_of
from paceline_cluster.sim.workload import wall_ms

_VERSION = 7
_TIMEOUT_MS = 1500
_IN_FLIGHT = 5
_PAUSE_S = 0.05
_RENEW = 0.6
"""How often it begins anew behind a burst: what a partition makes of the first numbers of a
producer that it does not know is tried again and again."""
_OUT_OF_LINE = frozenset(
    (
        ErrorCode.OUT_OF_ORDER_SEQUENCE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    )
)


class KafkaPipeline:
    """Writes bursts until told to stop."""

    def __init__(self, name: str, plan: Plan, recorder: Recorder, rng: random.Random) -> None:
        self.name = name
        self.stopping = False
        self.ended = trio.Event()
        self._rng = rng
        self._recorder = recorder
        self._pause_s = _PAUSE_S if plan.pipelines > 1 else plan.foreign_pause_s
        self._places = places_of(plan.written)
        self._streams: dict[tuple[str, int], Stream] = {}
        self._sequences: dict[tuple[str, int], int] = {}
        self._id: tuple[int, int] | None = None

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Write from ``host`` until told to stop."""
        async with kafka_cluster(cluster, host, self._rng) as known:
            while not self.stopping:
                try:
                    if self._id is None:
                        await self._begin(known)
                    await self._deliver(known, self._burst())
                    if self._rng.random() < _RENEW:
                        self._id = None
                except PacelineError:
                    known.forget()
                    await trio.sleep(AGAIN_S)
                await trio.sleep(self._rng.uniform(0.0, self._pause_s))
        self.ended.set()

    async def _begin(self, known: KafkaCluster) -> None:
        link = await known.links.to_any()
        self._streams.clear()
        told = await link.ask(InitProducerIdRequest(), 4, InitProducerIdResponse)
        raise_for(told.error_code, "INIT_PRODUCER_ID")
        self._recorder.named(told.producer_id)
        self._id = (told.producer_id, told.producer_epoch)
        self._sequences.clear()

    def _burst(self) -> list[Request]:
        """Requests that follow each other in one partition."""
        where = self._rng.choice(self._places)
        stream = self._streams.get(where)
        if stream is None:
            stream = self._streams[where] = self._recorder.open(
                self.name, at(*where), Acks.ALL, idempotent=True
            )
        return [self._request(where, stream) for _ in range(self._rng.randint(1, _IN_FLIGHT))]

    def _request(self, where: tuple[str, int], stream: Stream) -> Request:
        assert self._id is not None
        count = self._rng.choice((1, 1, 2))
        first, values = self._recorder.invoke(stream, count, 0)
        sequence = self._sequences.get(where, 0)
        self._sequences[where] = sequence + count
        batch = build_value_batch(
            values,
            timestamp_ms=wall_ms(),
            producer_id=self._id[0],
            producer_epoch=self._id[1],
            base_sequence=sequence,
        )
        return Request(where, stream, first, count, bytes(batch))

    async def _deliver(self, known: KafkaCluster, waiting: list[Request]) -> None:
        """Send what is waiting until all of it is acknowledged, or the producer has to give up."""
        while waiting:
            codes = await self._send(known, waiting)
            if codes and codes[0] in _OUT_OF_LINE:
                self._give_up(waiting)
                return
            waiting = [
                each
                for each, code in zip(waiting, (*codes, *(len(waiting) * [None])), strict=False)
                if not self._is_done(each, code)
            ]
            if waiting:
                known.forget()
                await trio.sleep(self._rng.uniform(0.0, AGAIN_S))

    def _is_done(self, request: Request, code: int | None) -> bool:
        if code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE):
            return False
        for n in range(request.count):
            self._recorder.ok(request.stream, request.first + n, -1, -1)
        return True

    def _give_up(self, waiting: Sequence[Request]) -> None:
        """Begin anew under another id. Nobody knows what became of the rest."""
        for request in waiting:
            for n in range(request.count):
                self._recorder.unknown_outcome(request.stream, request.first + n, "out of line")
        self._streams.clear()
        self._id = None

    async def _send(self, known: KafkaCluster, waiting: Sequence[Request]) -> list[int]:
        """The codes of those that were answered, in order."""
        try:
            link = await known.leader(waiting[0].where)
        except PacelineError:
            return []
        longest = self._rng.choice((0.0, 0.02, 0.1, 0.3))
        told = await link.ask_all(
            [_produce(each) for each in waiting],
            _VERSION,
            pause_s=lambda: self._rng.uniform(0.0, longest),
        )
        return [
            each.responses[0].partition_responses[0].error_code
            for each in told
            if isinstance(each, wire.ProduceResponse)
        ]


def _produce(request: Request) -> wire.ProduceRequest:
    name, number = request.where
    part = wire.ProduceRequestTopicPartition(index=number, records=request.body)
    topic = wire.ProduceRequestTopic(name=name, partition_data=(part,))
    return wire.ProduceRequest(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=(topic,))
