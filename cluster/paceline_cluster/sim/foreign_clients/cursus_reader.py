"""A Cursus reader without a group: polls or streams a partition, in either dialect, and goes on at
the next leader where the last one left it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import trio

from paceline.errors import PacelineError
from paceline.wire.cursus.batch import CursusRecord
from paceline.wire.cursus.errors import CursusError
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.foreign_clients.cursus import (
    CursusLink,
    CursusLinks,
    cursus_links,
    leader_told,
    records_of,
)
from paceline_cluster.sim.foreign_clients.links import AGAIN_S, ANSWER_S, Address
from paceline_cluster.sim.history import Recorder, at
from paceline_cluster.sim.plan import Plan, places_of

_CLOSE = b"STREAM_CONTROL"
_AT_ONCE = 40
_WAIT_MS = 400
_PAUSE_S = 0.3


class CursusReader:
    """Reads one partition after the other from its start, until cancelled."""

    def __init__(self, name: str, plan: Plan, recorder: Recorder, rng: random.Random) -> None:
        self.name = name
        self._recorder = recorder
        self._rng = rng
        self._places = places_of((*plan.topics, plan.tallies))
        self._lives = 0

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Read until cancelled."""
        rng = self._rng
        async with cursus_links(cluster, host, rng) as links:
            while True:
                self._lives += 1
                life = _Reading(
                    f"{self.name}.{self._lives}", rng.choice(self._places), self._recorder, rng
                )
                with trio.move_on_after(rng.uniform(2.0, 6.0)):
                    await life.run(links)


class _Reading:
    """One reader of one partition."""

    def __init__(
        self, name: str, where: tuple[str, int], recorder: Recorder, rng: random.Random
    ) -> None:
        self._name = name
        self._topic, self._partition = where
        self._at = at(*where)
        self._recorder = recorder
        self._offset = 0
        self._streams = rng.random() < 0.5
        self._is_positional = rng.random() < 0.3

    async def run(self, links: CursusLinks) -> None:
        """Read on until cancelled, at whichever node leads."""
        self._recorder.seek(self._name, self._at, self._offset)
        node: Address | None = None
        while True:
            try:
                link = await links.to(node or links.anywhere())
                await (self._stream(link) if self._streams else self._poll(link))
            except CursusError as error:
                node = leader_told(error)
                await trio.sleep(AGAIN_S)
            except PacelineError:
                node = None
                await trio.sleep(AGAIN_S)

    def _line(self, word: str) -> str:
        if self._is_positional:
            return f"{word} {self._topic} {self._partition} {self._offset}"
        line = f"{word} topic={self._topic} partition={self._partition} offset={self._offset}"
        line += f" member={self._name} batch={_AT_ONCE}"
        return f"{line} wait_ms={_WAIT_MS}" if word == "CONSUME" else line

    async def _poll(self, link: CursusLink) -> None:
        while True:
            records = await link.consume(self._line("CONSUME"))
            self._given(records)
            if self._is_positional:
                await trio.sleep(_PAUSE_S)

    async def _stream(self, link: CursusLink) -> None:
        """Until the stream is closed; then the connection is ready for commands again."""
        line = self._line("STREAM")
        await link.exchange(line, lambda: link.send(line.encode()))
        while True:
            body = await link.exchange(line, link.frame, within_s=ANSWER_S)
            if body.startswith(_CLOSE):
                return
            link.is_usable = False
            if body:
                self._given(records_of(body))

    def _given(self, records: Sequence[CursusRecord]) -> None:
        if not records:
            return
        first = records[0].offset
        offsets = [record.offset for record in records]
        assert offsets == list(range(first, first + len(records))), f"{self._at}: {offsets}"
        self._recorder.given(
            self._name, self._at, first, -1, [record.payload for record in records]
        )
        self._offset = offsets[-1] + 1
