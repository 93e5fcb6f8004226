"""A producer of the workload: counters through the production client, each outcome noted."""

from __future__ import annotations

import random
from functools import partial

import trio

from paceline.client import Client, Portion, ProducerSettings
from paceline.errors import Outcome, PacelineError
from paceline.types import Acks
from paceline.values import dataclass
from paceline_cluster.chaos.recorder import Recorder
from paceline_cluster.chaos.values import value_of
from paceline_cluster.checker import events

DELIVERY_S = 20.0
"""After so long without acknowledgement a write is given up, its outcome unknown."""
_WINDOW = 40
"""Portions of a writer that may be under way; a slow cluster slows the workload."""


@dataclass(frozen=True, slots=True)
class WriterSpec:
    """``rate``: records a second. ``batch`` and ``size``: from and to, records and bytes."""

    topic: str
    acks: Acks
    rate: float
    batch: tuple[int, int]
    size: tuple[int, int]

    @property
    def is_idempotent(self) -> bool:
        return self.acks is Acks.ALL


@dataclass(slots=True)
class _Stream:
    number: int
    key: bytes
    next_counter: int = 0
    is_broken: bool = False


class Writer:
    """Writes until told to stop; what is under way then is waited for."""

    def __init__(
        self, name: str, spec: WriterSpec, client: Client, recorder: Recorder, rng: random.Random
    ) -> None:
        self._name = name
        self._spec = spec
        self._client = client
        self._recorder = recorder
        self._rng = rng
        self._streams: dict[int, _Stream] = {}
        self._under_way = 0
        self._landed = trio.Event()

    async def run(self, stop: trio.Event) -> None:
        """Write until ``stop``. Cancelling is a crash of the producer."""
        spec = self._spec
        settings = ProducerSettings(
            acks=spec.acks, delivery_timeout_s=DELIVERY_S, buffer_bytes=8 * 1024 * 1024
        )
        async with self._client.producer(settings) as producer:
            partitions = await producer.partition_count(spec.topic)
            due = trio.current_time()
            while not stop.is_set():
                partition = self._rng.randrange(partitions)
                count = self._rng.randint(*spec.batch)
                stream, first, values = self._invoke(partition, count)
                try:
                    portions = await producer.submit_many(
                        spec.topic, values, keys=[stream.key] * count, partition=partition
                    )
                except PacelineError as error:
                    self._unknown(stream, first, count, error)
                    portions = []
                for portion in portions:
                    self._under_way += 1
                    portion.when_done(partial(self._done, stream, first, portion))
                # A cluster that was away is not paid back all at once.
                due = max(due + count / spec.rate, trio.current_time() - 0.1)
                await trio.sleep_until(due)
                await self._room()

    def _invoke(self, partition: int, count: int) -> tuple[_Stream, int, list[bytes | None]]:
        stream = self._streams.get(partition)
        if stream is None or stream.is_broken:
            stream = self._streams[partition] = self._open(partition)
        first = stream.next_counter
        stream.next_counter += count
        size = self._rng.randint(*self._spec.size)
        values: list[bytes | None] = [
            value_of(stream.number, first + step, size) for step in range(count)
        ]
        self._recorder.say(events.Invoke(self._recorder.t, stream.number, first, count))
        return stream, first, values

    def _open(self, partition: int) -> _Stream:
        spec = self._spec
        number, key = self._recorder.open_stream(
            self._name,
            f"{spec.topic}/{partition}",
            acks=spec.acks.name.lower(),
            idempotent=spec.is_idempotent,
        )
        return _Stream(number, key.encode())

    def _done(self, stream: _Stream, first: int, portion: Portion) -> None:
        self._under_way -= 1
        self._landed.set()
        start, count = first + portion.positions[0], len(portion.positions)
        try:
            told = portion.result()
        except PacelineError as error:
            if error.outcome is Outcome.UNKNOWN:
                self._unknown(stream, start, count, error)
            else:
                self._recorder.say(
                    events.Fail(self._recorder.t, stream.number, start, count, repr(error))
                )
            return
        self._recorder.say(
            events.Ok(
                self._recorder.t, stream.number, start, count, told.base_offset, told.leader_epoch
            )
        )

    def _unknown(self, stream: _Stream, first: int, count: int, error: PacelineError) -> None:
        stream.is_broken = True
        self._recorder.say(
            events.Unknown(self._recorder.t, stream.number, first, count, repr(error))
        )

    async def _room(self) -> None:
        while self._under_way >= _WINDOW:
            self._landed = trio.Event()
            await self._landed.wait()
