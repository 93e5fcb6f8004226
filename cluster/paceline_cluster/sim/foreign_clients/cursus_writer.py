"""Cursus producers in the simulation: batches in both dialects, and PUBLISH, to any node, which all
hand them to the leader. The topic's rule (strict or window) leaves out records whose numbers are
stored."""

from __future__ import annotations

import random

from paceline.errors import PacelineError
from paceline.wire.cursus.batch import CursusBatch, CursusRecord, Dialect, encode_batch
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.foreign_clients.cursus import (
    AnyNode,
    CursusLink,
    cursus_links,
    is_fencing,
    is_open,
)
from paceline_cluster.sim.foreign_clients.writer import ForeignWriter, Request
from paceline_cluster.sim.history import Recorder
from paceline_cluster.sim.plan import Plan, places_of

_PUBLISH = 0.3
"""How likely a single record is sent as a line."""


class CursusWriter(ForeignWriter):
    """With ``is_numbered`` its records have numbers: in the topic whose rule is strict, or in
    others."""

    def __init__(
        self, name: str, plan: Plan, recorder: Recorder, rng: random.Random, *, is_numbered: bool
    ) -> None:
        super().__init__(name, plan, recorder, rng, is_numbered=is_numbered)
        if is_numbered and rng.random() < 0.5:
            self._places = places_of((plan.tallies,))
        self._epoch = 1
        self._sequences: dict[tuple[str, int], int] = {}

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Write from ``host`` until told to stop."""
        async with cursus_links(cluster, host, self._rng) as links:
            node = AnyNode(links)
            await self._work(lambda: self._write(node), node.forget)
        self.ended.set()

    async def _write(self, node: AnyNode) -> None:
        link = await node.link()
        request = self._due()
        await self._settled(request, lambda: self._produce(link, request))

    async def _produce(self, link: CursusLink, request: Request) -> int:
        stored = await link.produce(request.body)
        # Of records that were there before, the acknowledgement does not say where.
        return -1 if request.tries > 1 else stored.last_offset - request.count + 1

    def _body(self, where: tuple[str, int], values: list[bytes]) -> bytes:
        publishes = len(values) == 1 and self._rng.random() < _PUBLISH
        return self._publish(where, values) if publishes else self._batch(where, values)

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

    def _renew(self) -> None:
        self._epoch += 1
        self._sequences.clear()

    def _is_finding(self, error: PacelineError) -> bool:
        return is_fencing(error)

    def _is_open(self, error: PacelineError) -> bool:
        return is_open(error)
