"""Producers and consumers around a run: started together, crashed and replaced, brought to rest."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from paceline.client import Client, connect
from paceline.errors import PacelineError
from paceline.types import Acks
from paceline.values import dataclass
from paceline_cluster.chaos.copier import Copier
from paceline_cluster.chaos.copies import Copying, Judgement, judge_copies
from paceline_cluster.chaos.member import Member, ask_offsets, keep_asking
from paceline_cluster.chaos.reader import Reader, note_batch, read_everything
from paceline_cluster.chaos.recorder import Recorder
from paceline_cluster.chaos.writer import Writer, WriterSpec

SAFE_TOPIC = "orders"
WEAK_TOPIC = "clicks"
COPIES_TOPIC = "copies"
_PAUSE_S = 0.1
_DECIDED_S = 60.0


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """``writers`` write to ``orders`` with acks=all and idempotence, ``weak_writers`` to ``clicks``
    with acks=leader. ``readers`` read every topic; ``members`` share ``orders`` as one consumer
    group, ``copiers`` as another, which copies it to ``copies`` in transactions. ``rate`` is of
    each writer, records a second; ``batch`` and ``bytes`` from and to. ``crash_s``: how often, on
    average, a writer, member or copier crashes and another takes its place; 0: never."""

    partitions: int = 3
    writers: int = 2
    weak_writers: int = 0
    readers: int = 1
    members: int = 2
    copiers: int = 0
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

    @property
    def copying(self) -> Copying | None:
        """What the copiers do, if there are any."""
        if not self.writers or not self.copiers:
            return None
        return Copying(SAFE_TOPIC, self.partitions, "copiers", COPIES_TOPIC, self.partitions)


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
            topics = [*self._spec.topics, *([COPIES_TOPIC] if self._spec.copying else [])]
            for topic in topics:
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
                if self._spec.copying is not None:
                    for number in range(self._spec.copiers):
                        writers.start_soon(self._copy, f"copier-{number}", self._spec.copying)
            self._at_rest.set()
            readers.cancel_scope.cancel()

    def _count(self, acks: Acks) -> int:
        return self._spec.writers if acks is Acks.ALL else self._spec.weak_writers

    async def _read(self, name: str, topic: str) -> None:
        reader = Reader(name, topic, self._recorder, self._fork())
        await self._lives(lambda client, _life: reader.run(client))

    async def _join(self, name: str) -> None:
        async def be_member(client: Client, life: int) -> None:
            note = partial(note_batch, self._recorder)
            member = Member(
                f"{name}.{life}", SAFE_TOPIC, client, self._recorder, self._fork(), note
            )
            await self._until_crash(member.run)

        await self._lives(be_member)

    async def _ask(self) -> None:
        partitions = self._spec.partitions
        await self._lives(
            lambda client, _life: keep_asking(client, SAFE_TOPIC, partitions, self._recorder)
        )

    async def _write(self, name: str, topic: str, acks: Acks) -> None:
        spec = self._spec
        writer_spec = WriterSpec(topic, acks, spec.rate, spec.batch, spec.bytes)

        async def write(client: Client, life: int) -> None:
            producer = f"{name}.{life}"
            writer = Writer(producer, writer_spec, client, self._recorder, self._fork())
            await self._until_crash(partial(writer.run, self._stop))

        await self._lives(write)

    async def _copy(self, name: str, copying: Copying) -> None:
        async def copy(client: Client, _life: int) -> None:
            copier = Copier(name, copying, self._fork())
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tell_to_stop, copier)
                # What a crash at the very end leaves open is aborted by its coordinator.
                await self._until_crash(partial(copier.copy, client))
                nursery.cancel_scope.cancel()

        await self._lives(copy)

    async def _tell_to_stop(self, copier: Copier) -> None:
        await self._stop.wait()
        copier.stopping = True

    async def _lives(self, live: Callable[[Client, int], Awaitable[None]]) -> None:
        """One client after another, each with a number, until writing stops (readers are
        cancelled). A cluster that is away ends a life, not the workload."""
        life = 0
        while not self._stop.is_set():
            life += 1
            try:
                async with connect(self._bootstrap) as client:
                    await live(client, life)
            except PacelineError:
                await trio.sleep(_PAUSE_S)

    async def _until_crash(self, run: Callable[[], Awaitable[None]]) -> None:
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

    async def rest(self, going_on: Callable[[], None]) -> Judgement | None:
        """Stop writing, wait for what is under way, and read everything; ``going_on`` is called
        for all that is read. What the copiers did, if there were any. Raises PacelineError."""
        self._stop.set()
        await self._at_rest.wait()
        async with connect(self._bootstrap) as client:
            for topic in self._spec.topics:
                await read_everything(client, topic, self._recorder, going_on)
            if self._spec.writers and self._spec.members:
                await ask_offsets(client, SAFE_TOPIC, self._spec.partitions, self._recorder)
            if self._spec.copying is not None:
                return await judge_copies(
                    client, self._spec.copying, decided_s=_DECIDED_S, going_on=going_on
                )
        return None
