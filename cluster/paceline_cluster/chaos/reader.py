"""Consumers of the workload, and the last reading of everything."""

from __future__ import annotations

import random
from collections.abc import Callable

import trio

from paceline.client import Client, ConsumedBatch, Consumer, Position
from paceline.errors import PacelineError
from paceline.types import TopicPartition
from paceline_cluster.chaos.recorder import Recorder
from paceline_cluster.chaos.values import runs_of
from paceline_cluster.checker import events

_PAUSE_S = 0.05
_REREAD = 0.002
"""How likely a reader, after a batch, begins anew somewhere before."""


class Reader:
    """Reads a topic from its beginning, goes on after failures, now and then reads again."""

    def __init__(self, name: str, topic: str, recorder: Recorder, rng: random.Random) -> None:
        self._name = name
        self._topic = topic
        self._recorder = recorder
        self._rng = rng
        self._positions: dict[TopicPartition, int] = {}

    async def run(self, client: Client) -> None:
        """Read until cancelled."""
        while True:
            try:
                async with client.consumer(self._topic) as consumer:
                    await self._read(consumer)
            except PacelineError:
                # Whatever failed, a new consumer goes on where this one was.
                await trio.sleep(_PAUSE_S)

    async def _read(self, consumer: Consumer) -> None:
        for at in consumer.assignment:
            await self._go(consumer, at, self._positions.get(at, 0))
        async for batch in consumer.batches():
            note_batch(self._recorder, self._name, batch)
            self._positions[batch.at] = batch.end_offset
            if self._rng.random() < _REREAD:
                at = batch.at
                await self._go(consumer, at, self._rng.randint(0, self._positions[at]))

    async def _go(self, consumer: Consumer, at: TopicPartition, offset: int) -> None:
        await consumer.seek(at, Position.at(offset))
        self._positions[at] = offset
        self._recorder.say(events.Seek(self._recorder.t, self._name, str(at), offset))


def note_batch(recorder: Recorder, reader: str, batch: ConsumedBatch) -> None:
    """A reader was given a batch."""
    runs = runs_of([record.value for record in batch.records()])
    epoch = batch.header.leader_epoch
    recorder.say(events.Read(recorder.t, reader, str(batch.at), batch.first_offset, epoch, runs))


async def read_everything(
    client: Client, topic: str, recorder: Recorder, going_on: Callable[[], None]
) -> None:
    """Note all that a healed and quiet topic holds; ``going_on`` is called for every batch. Raises
    PacelineError."""
    async with client.consumer(topic, stop=Position.LATEST) as consumer:
        starts = consumer.positions()
        ends = await consumer.end_offsets()
        for at, start in starts.items():
            recorder.say(events.Final(recorder.t, str(at), start, ends[at]))
        async for batch in consumer.batches():
            going_on()
            runs = runs_of([record.value for record in batch.records()])
            epoch = batch.header.leader_epoch
            recorder.say(
                events.FinalRead(recorder.t, str(batch.at), batch.first_offset, epoch, runs)
            )
