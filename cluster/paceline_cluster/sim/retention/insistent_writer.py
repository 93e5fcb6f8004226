"""A writer that sends what was acknowledged once more: it must be told where it is stored already.

It writes to a partition of which records are deleted from the start, as one producer after the
other. Most of them are silent soon, so what is known of them lies in few batches, and often in
none that is left. What it sends again is within the batches that are remembered of each producer.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import trio

from paceline.client.client import Client
from paceline.client.sequenced import SequencedBatch, SequencedWriter
from paceline.errors import OutOfOrderSequence, PacelineError
from paceline.types import Acks, TopicPartition
from paceline.values import dataclass
from paceline.wire.batch import build_batch
from paceline.wire.records import Record
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.history import Recorder, Stream
from paceline_cluster.sim.plan import Plan
from paceline_cluster.sim.workload import AGAIN_S, wall_ms, while_connected
from paceline_node.storage.producer_state import WINDOW

_AGAIN = 0.4
"""How often it sends something again instead of writing."""
_PRODUCERS = 60
_PATIENCE_S = 5.0


class _Stored(NamedTuple):
    data: bytes
    last_offset: int


@dataclass(slots=True, eq=False)
class _Producer:
    number: int
    stream: Stream
    stored: list[_Stored]


class InsistentWriter:
    """Writes until told to stop; ``fail`` is told of the invariant that broke, and how."""

    def __init__(
        self,
        name: str,
        at: TopicPartition,
        plan: Plan,
        recorder: Recorder,
        rng: random.Random,
        fail: Callable[[str, str], None],
    ) -> None:
        self.name = name
        self.stopping = False
        self.ended = trio.Event()
        self._at = at
        self._pause_s = plan.pause_s
        self._recorder = recorder
        self._rng = rng
        self._fail = fail
        self._producers: list[_Producer] = []
        self._current: _Producer | None = None

    async def run(self, cluster: SimCluster, host: str) -> None:
        async def work(client: Client) -> None:
            writer = client.sequenced_writer()
            while not self.stopping:
                try:
                    await self._act(writer)
                except (PacelineError, trio.TooSlowError):
                    await trio.sleep(AGAIN_S)
                await trio.sleep(self._rng.uniform(0.0, self._pause_s))

        await while_connected(cluster, host, self._rng, work)
        self.ended.set()

    async def last_look(self, cluster: SimCluster, host: str) -> None:
        """Send again what is remembered of every producer."""

        async def look(client: Client) -> None:
            for producer in self._producers:
                while True:
                    try:
                        await self._repeat(client.sequenced_writer(), producer)
                        break
                    except (PacelineError, trio.TooSlowError):
                        await trio.sleep(AGAIN_S)

        await while_connected(cluster, host, self._rng, look)

    async def _act(self, writer: SequencedWriter) -> None:
        if self._producers and self._rng.random() < _AGAIN:
            await self._repeat(writer, self._rng.choice(self._producers))
            return
        if self._current is None or self._rng.random() < 0.3:
            if len(self._producers) == _PRODUCERS:
                self._current = self._rng.choice(self._producers)
            else:
                self._current = await self._begin(writer)
        await self._write(writer, self._current)

    async def _begin(self, writer: SequencedWriter) -> _Producer:
        with trio.fail_after(_PATIENCE_S):
            identity = await writer.new_identity()
        name = f"{self.name}.{len(self._producers)}"
        stream = self._recorder.open(name, str(self._at), Acks.ALL, idempotent=True)
        return _Producer(identity.producer_id, stream, [])

    async def _write(self, writer: SequencedWriter, producer: _Producer) -> None:
        first, values = self._recorder.invoke(producer.stream, self._rng.choice((1, 2)), 0)
        records = [Record(-1, wall_ms(), None, value) for value in values]
        data = build_batch(
            records, producer_id=producer.number, producer_epoch=0, base_sequence=first
        )
        last = -1
        try:
            last = await self._send(writer, bytes(data))
        finally:
            if last < 0:  # it may be stored, now or later, so nothing is sent behind it
                self._current = None
                if producer in self._producers:
                    self._producers.remove(producer)
                for number in range(len(values)):
                    self._recorder.unknown_outcome(producer.stream, first + number, "not answered")
        if last >= 0:
            for number in range(len(values)):
                offset = last - len(values) + 1 + number
                self._recorder.ok(producer.stream, first + number, offset, -1)
            producer.stored = [*producer.stored[1 - WINDOW :], _Stored(bytes(data), last)]
            if producer not in self._producers:
                self._producers.append(producer)

    async def _send(self, writer: SequencedWriter, data: bytes) -> int:
        with trio.move_on_after(_PATIENCE_S):
            stored = await writer.write([SequencedBatch(self._at, bytearray(data))])
            return stored[self._at]
        return -1

    async def _repeat(self, writer: SequencedWriter, producer: _Producer) -> None:
        for stored in list(producer.stored):
            try:
                with trio.fail_after(_PATIENCE_S):
                    told = await writer.write([SequencedBatch(self._at, bytearray(stored.data))])
            except OutOfOrderSequence as error:
                self._judge(producer, stored, str(error))
            else:
                if told[self._at] != stored.last_offset:
                    self._judge(producer, stored, f"it is said to end at {told[self._at]}")

    def _judge(self, producer: _Producer, stored: _Stored, said: str) -> None:
        self._fail(
            "I18",
            f"{self._at}: what producer {producer.number} sent again is stored up to offset "
            f"{stored.last_offset}; {said}",
        )
