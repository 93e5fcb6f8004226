"""Cursus producers in the simulation: batches in both dialects, and PUBLISH, to any node, which all
hand them to the leader. One request at a time.

A producer that numbers its records sends the same ones again until they are acknowledged; the
topic's rule (strict or window) leaves out what is stored. It is the only one of its name, so a gap
or a stale epoch that it is told of is a finding.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import trio

from paceline.errors import PacelineError
from paceline.types import Acks
from paceline.wire.cursus.batch import CursusBatch, CursusRecord, Dialect, encode_batch
from paceline.wire.cursus.errors import CursusError, class_of
from paceline_cluster.sim.cluster import CURSUS_PORT, SimCluster
from paceline_cluster.sim.guests.cursus import CursusLink, Stored, is_open
from paceline_cluster.sim.guests.links import AGAIN_S, Address, Links
from paceline_cluster.sim.history import Recorder, Stream, at
from paceline_cluster.sim.plan import Plan

_NEW_EPOCH = 0.03
"""How likely a producer begins a new epoch behind an acknowledgement."""
_PUBLISH = 0.3


@dataclass(frozen=True, slots=True)
class _Request:
    """What is to be acknowledged: counters of a stream, in one frame."""

    where: tuple[str, int]
    stream: Stream
    first: int
    count: int
    body: bytes


class CursusWriter:
    """Writes until told to stop. With ``is_numbered`` records have numbers: in the topic whose rule
    is strict, or in others."""

    def __init__(
        self, name: str, plan: Plan, recorder: Recorder, rng: random.Random, *, is_numbered: bool
    ) -> None:
        self.name = name
        self._rng = rng
        self._recorder = recorder
        self._pause_s = plan.guest_pause_s
        self._is_numbered = is_numbered
        self._acks = Acks.ALL if is_numbered else rng.choice((Acks.ALL, Acks.LEADER))
        is_strict = is_numbered and rng.random() < 0.5
        topics = (plan.tallies,) if is_strict else plan.topics
        self._places = [
            (topic.name, number) for topic in topics for number in range(topic.partitions)
        ]
        self._streams: dict[tuple[str, int], Stream] = {}
        self._sequences: dict[tuple[str, int], int] = {}
        self._epoch = 1
        self._request: _Request | None = None
        self._tries = 0
        self.stopping = False
        self.ended = trio.Event()

    async def run(self, cluster: SimCluster, host: str) -> None:
        rng = self._rng
        async with Links(cluster, host, CURSUS_PORT, CursusLink, rng) as links:
            node: Address | None = None
            while not self.stopping or self._request is not None:
                node = node or links.anywhere()
                try:
                    await self._write(await links.to(node))
                except PacelineError:
                    node = None
                    await trio.sleep(AGAIN_S)
                else:
                    await trio.sleep(rng.uniform(0.0, self._pause_s))
        self.ended.set()

    async def _write(self, link: CursusLink) -> None:
        if self._request is None:
            self._request, self._tries = self._next(), 0
        request = self._request
        self._tries += 1
        try:
            stored = await link.produce(request.body)
        except PacelineError as error:
            self._refused(request, error)
            raise
        self._stored(request, stored)

    # --- outcomes ---------------------------------------------------------------------------------

    def _stored(self, request: _Request, stored: Stored) -> None:
        self._request = None
        # Of records that were there before, the acknowledgement does not say where.
        offset = -1 if self._tries > 1 else stored.last_offset - request.count + 1
        for n in range(request.count):
            told = -1 if offset < 0 else offset + n
            self._recorder.ok(request.stream, request.first + n, told, -1)
        if self._is_numbered and self._rng.random() < _NEW_EPOCH:
            self._epoch += 1
            self._sequences.clear()

    def _refused(self, request: _Request, error: PacelineError) -> None:
        if self._is_numbered:
            fenced = isinstance(error, CursusError) and class_of(error.word) == "fencing"
            assert not fenced, f"{request.where}: the only producer {self.name} was told {error}"
            return
        self._request = None
        for counter in range(request.first, request.first + request.count):
            if is_open(error):
                self._recorder.unknown_outcome(request.stream, counter, repr(error))
            else:
                self._recorder.fail(request.stream, counter, repr(error))
        if is_open(error):
            del self._streams[request.where]

    # --- requests ---------------------------------------------------------------------------------

    def _next(self) -> _Request:
        rng, recorder = self._rng, self._recorder
        where = rng.choice(self._places)
        stream = self._streams.get(where)
        if stream is None:
            stream = self._streams[where] = recorder.open(
                self.name, at(*where), self._acks, idempotent=self._is_numbered
            )
        count = rng.choice((1, 1, 2, 5))
        first, values = recorder.invoke(stream, count, rng.choice((0, 20)))
        publishes = count == 1 and rng.random() < _PUBLISH
        make = self._publish if publishes else self._batch
        return _Request(where, stream, first, count, make(where, values))

    def _batch(self, where: tuple[str, int], values: list[bytes]) -> bytes:
        dialect = self._rng.choice((Dialect.REAL, Dialect.REAL, Dialect.SEED))
        records = [
            CursusRecord(0, self._number(where), self.name.encode(), b"", self._epoch, value)
            for value in values
        ]
        return encode_batch(CursusBatch(dialect, *where, self._acks, self._is_numbered, records))

    def _publish(self, where: tuple[str, int], values: list[bytes]) -> bytes:
        (value,) = values
        words = (
            f"PUBLISH topic={where[0]} partition={where[1]} acks={self._acks.value}"
            f" producerId={self.name} seqNum={self._number(where)} epoch={self._epoch}"
            f" isIdempotent={'true' if self._is_numbered else 'false'} message="
        )
        return words.encode() + value

    def _number(self, where: tuple[str, int]) -> int:
        if not self._is_numbered:
            return 0
        self._sequences[where] = self._sequences.get(where, 0) + 1
        return self._sequences[where]
