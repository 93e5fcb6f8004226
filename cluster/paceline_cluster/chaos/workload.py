"""Producers and consumers around a run: started together, crashed and replaced, brought to rest."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import trio

from paceline.client import connect
from paceline.types import Acks
from paceline_cluster.chaos.member import Member, ask_offsets, keep_asking
from paceline_cluster.chaos.reader import Reader, read_everything
from paceline_cluster.chaos.recorder import Recorder
from paceline_cluster.chaos.writer import Writer, WriterSpec

SAFE_TOPIC = "orders"
WEAK_TOPIC = "clicks"


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """``writers`` write to ``orders`` with acks=all and idempotence, ``weak_writers`` to ``clicks``
    with acks=leader. ``readers`` read every topic; ``members`` share ``orders`` as one consumer
    group. ``rate`` is of each writer, records a second; ``batch`` and ``bytes`` from and to.
    ``crash_s``: how often, on average, a writer or member crashes and another takes its place;
    0: never."""

    partitions: int = 3
    writers: int = 2
    weak_writers: int = 0
    readers: int = 1
    members: int = 2
    rate: float = 300.0
    batch: tuple[int, int] = (1, 20)
    bytes: tuple[int, int] = (24, 400)
    crash_s: float = 0.0

    @property
    def topics(self) -> dict[str, Acks]:
        """The topics written to, with the acks of their writers."""
        counts = {SAFE_TOPIC: self.writers, WEAK_TOPIC: self.weak_writers}
        acks = {SAFE_TOPIC: Acks.ALL, WEAK_TOPIC: Acks.LEADER}
        return {topic: acks[topic] for topic, count in counts.items() if count}


class Workload:
    """The clients of a run. :meth:`run` in a nursery; :meth:`rest` when all is healed."""

    def __init__(
        self, spec: WorkloadSpec, bootstrap: list[str], recorder: Recorder, rng: random.Random
    ) -> None:
        self._spec = spec
        self._bootstrap = bootstrap
        self._recorder = recorder
        self._rng = rng
        self._stop = trio.Event()
        self._at_rest = trio.Event()

    async def create_topics(self) -> None:
        """Make the topics; once, before :meth:`run`."""
        async with connect(self._bootstrap) as client:
            for topic in self._spec.topics:
                await client.admin.create_topic(topic, partitions=self._spec.partitions)

    async def run(self) -> None:
        """Write and read until :meth:`rest`."""
        async with trio.open_nursery() as readers:
            for number in range(self._spec.readers):
                for topic in self._spec.topics:
                    readers.start_soon(self._read, f"r{number}.{topic}", topic)
            if self._spec.writers and self._spec.members:
                readers.start_soon(self._ask)
                for number in range(self._spec.members):
                    readers.start_soon(self._join, f"m{number}")
            async with trio.open_nursery() as writers:
                for topic, acks in self._spec.topics.items():
                    for number in range(self._count(acks)):
                        writers.start_soon(self._write, f"{topic}-w{number}", topic, acks)
            self._at_rest.set()
            readers.cancel_scope.cancel()

    def _count(self, acks: Acks) -> int:
        return self._spec.writers if acks is Acks.ALL else self._spec.weak_writers

    async def _read(self, name: str, topic: str) -> None:
        async with connect(self._bootstrap) as client:
            await Reader(name, topic, client, self._recorder, self._fork()).run()

    async def _join(self, name: str) -> None:
        life = 0
        while True:
            async with connect(self._bootstrap) as client:
                life += 1
                member = Member(f"{name}.{life}", SAFE_TOPIC, client, self._recorder, self._fork())
                await self._live(member.run)

    async def _ask(self) -> None:
        async with connect(self._bootstrap) as client:
            await keep_asking(client, SAFE_TOPIC, self._spec.partitions, self._recorder)

    async def _write(self, name: str, topic: str, acks: Acks) -> None:
        spec = self._spec
        writer_spec = WriterSpec(topic, acks, spec.rate, spec.batch, spec.bytes)
        life = 0
        while not self._stop.is_set():
            async with connect(self._bootstrap) as client:
                life += 1
                writer = Writer(f"{name}.{life}", writer_spec, client, self._recorder, self._fork())
                await self._live(partial(writer.run, self._stop))

    async def _live(self, run: Callable[[], Awaitable[None]]) -> None:
        """Run a client until its end, or until it crashes."""
        if not self._spec.crash_s:
            await run()
            return
        with trio.move_on_after(self._rng.expovariate(1 / self._spec.crash_s)):
            await run()

    def _fork(self) -> random.Random:
        return random.Random(self._rng.getrandbits(64))  # noqa: S311 - a workload, no secret

    async def acknowledge(self, count: int) -> None:
        """Wait until ``count`` more records are acknowledged."""
        wanted = self._recorder.acknowledged + count
        # Acknowledgements come by the hundred; an event for each would cost more than looking.
        while self._recorder.acknowledged < wanted:  # noqa: ASYNC110
            await trio.sleep(0.01)

    async def rest(self) -> None:
        """Stop writing, wait for what is under way, and read everything."""
        self._stop.set()
        await self._at_rest.wait()
        async with connect(self._bootstrap) as client:
            for topic in self._spec.topics:
                await read_everything(client, topic, self._recorder)
            if self._spec.writers and self._spec.members:
                await ask_offsets(client, SAFE_TOPIC, self._spec.partitions, self._recorder)
