"""Clients in the simulation: the production client over the simulated network.

Each client lives on a host of its own. Whatever it is told goes into the history; an error is
either a definite refusal or leaves the outcome open, as the error itself says.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence

import trio

from paceline.client.client import Client, connect
from paceline.client.consumed import ConsumedBatch
from paceline.client.position import Position
from paceline.client.producer import Delivery, Producer
from paceline.client.settings import ClientSettings, ConsumerSettings, ProducerSettings
from paceline.client.transport import Dial
from paceline.errors import ConnectionLost, Outcome, PacelineError, RequestTimedOut
from paceline.types import Acks, Isolation, TopicPartition
from paceline.values import dataclass
from paceline_cluster.sim.cluster import SimCluster
from paceline_cluster.sim.history import Recorder, Stream, at
from paceline_cluster.sim.machine import EPOCH_MS
from paceline_cluster.sim.plan import Plan, places_of

_CLIENT = ClientSettings(connect_timeout_s=1.0, request_timeout_s=2.0, operation_timeout_s=5.0)
AGAIN_S = 0.3
_DECIDED_S = 20.0
"""How long markers may take: one order to a node that leads on but does not answer is given up
after 11 s."""


@dataclass(frozen=True, slots=True)
class WriterKind:
    """How a writer wants its records kept."""

    acks: Acks
    idempotent: bool


KINDS = (
    WriterKind(Acks.ALL, True),
    WriterKind(Acks.ALL, True),
    WriterKind(Acks.ALL, False),
    WriterKind(Acks.LEADER, False),
    WriterKind(Acks.NONE, False),
)


async def while_connected(
    cluster: SimCluster,
    host: str,
    rng: random.Random,
    work: Callable[[Client], Awaitable[None]],
    *,
    dial: Dial | None = None,
) -> None:
    """Do ``work`` with a client on ``host``; begin anew when nobody answers any more."""
    dial = cluster.dial_from(host) if dial is None else dial
    while True:
        bootstrap = list(cluster.bootstrap)
        rng.shuffle(bootstrap)
        try:
            async with connect(
                bootstrap,
                _CLIENT,
                dial=dial,
                rng=random.Random(rng.getrandbits(64)),
                wall_ms=wall_ms,
            ) as client:
                await work(client)
                return
        except (ConnectionLost, RequestTimedOut):
            await trio.sleep(AGAIN_S)


def wall_ms() -> int:
    """The clients' wall clock."""
    return EPOCH_MS + int(trio.current_time() * 1000)


# --- writing --------------------------------------------------------------------------------------


class Writer:
    """Writes to random partitions until told to stop; one request at a time, of a few records."""

    def __init__(
        self, name: str, kind: WriterKind, plan: Plan, recorder: Recorder, rng: random.Random
    ) -> None:
        self.name = name
        self.kind = kind
        self._recorder = recorder
        self._rng = rng
        self._pause_s = plan.pause_s
        self._partitions = places_of(plan.written)
        self._streams: dict[tuple[str, int], Stream] = {}
        self.stopping = False
        self.ended = trio.Event()

    async def run(self, cluster: SimCluster, host: str) -> None:
        settings = ProducerSettings(
            acks=self.kind.acks,
            idempotent=self.kind.idempotent,
            ack_timeout_s=1.0,
            delivery_timeout_s=6.0,
            max_in_flight=None if self.kind.idempotent else 1,
        )

        async def write(client: Client) -> None:
            async with client.producer(settings) as producer:
                while not self.stopping:
                    await self._write(producer)
                    await trio.sleep(self._rng.uniform(0.0, self._pause_s))

        await while_connected(cluster, host, self._rng, write)
        self.ended.set()

    async def _write(self, producer: Producer) -> None:
        where = self._rng.choice(self._partitions)
        stream = self._streams.get(where)
        if stream is None:
            stream = self._streams[where] = self._recorder.open(
                self.name, at(*where), self.kind.acks, idempotent=self.kind.idempotent
            )
        count = self._rng.choice((1, 1, 2, 5, 12))
        first, values = self._recorder.invoke(stream, count, self._rng.choice((0, 20, 300)))
        deliveries: list[Delivery | PacelineError] = []
        for value in values:
            try:
                deliveries.append(await producer.submit(where[0], value, partition=where[1]))
            except PacelineError as error:
                deliveries.append(error)
        for number, delivery in enumerate(deliveries):
            await self._settle(where, stream, first + number, delivery)

    async def _settle(
        self,
        where: tuple[str, int],
        stream: Stream,
        counter: int,
        delivery: Delivery | PacelineError,
    ) -> None:
        try:
            if isinstance(delivery, PacelineError):
                raise delivery
            stored = await delivery.wait()
        except PacelineError as error:
            name = f"{type(error).__name__}: {error}"
            if error.outcome is Outcome.UNKNOWN:
                self._recorder.unknown_outcome(stream, counter, name)
                self._streams.pop(where, None)
            else:
                self._recorder.fail(stream, counter, name)
        else:
            self._recorder.ok(stream, counter, stored.offset, stored.leader_epoch)


# --- reading --------------------------------------------------------------------------------------


class Reader:
    """Reads all partitions from the start; begins anew now and then, and after every error."""

    def __init__(self, name: str, plan: Plan, recorder: Recorder, rng: random.Random) -> None:
        self.name = name
        self._topics = [topic.name for topic in plan.all_topics]
        self._recorder = recorder
        self._rng = rng
        self._lives = 0

    async def run(self, cluster: SimCluster, host: str) -> None:
        """Read until cancelled."""

        async def read(client: Client) -> None:
            while True:
                self._lives += 1
                try:
                    with trio.move_on_after(self._rng.uniform(2.0, 10.0)):
                        await self._read(client)
                except PacelineError:
                    await trio.sleep(AGAIN_S)

        await while_connected(cluster, host, self._rng, read)

    async def _read(self, client: Client) -> None:
        name = f"{self.name}.{self._lives}"
        settings = ConsumerSettings(max_wait_s=self._rng.choice((0.05, 0.2)))
        async with client.consumer(self._topics, settings=settings) as consumer:
            for where in consumer.assignment:
                self._recorder.seek(name, str(where), consumer.position(where))
            async for batch in consumer.batches():
                header = batch.header
                self._recorder.given(
                    name, str(batch.at), batch.first_offset, header.leader_epoch, values_of(batch)
                )


async def read_all(client: Client, partitions: Sequence[TopicPartition], to: Recorder) -> None:
    """Read everything that the partitions hold, for the judgement; tries again for as long as a
    leader has to be repaired first, or transactions are committed and not marked yet."""
    deadline = trio.current_time() + _DECIDED_S
    while True:
        try:
            is_decided = await _is_decided(client, partitions)
            starts, ends, batches = await _everything(client, partitions)
        except PacelineError:
            await trio.sleep(AGAIN_S)
            continue
        if not is_decided and trio.current_time() < deadline:
            await trio.sleep(AGAIN_S)
            continue
        for where in partitions:
            to.final(str(where), starts[where], ends[where])
        for batch in batches:
            epoch = batch.header.leader_epoch
            to.final_read(str(batch.at), batch.first_offset, epoch, values_of(batch))
        for where in partitions:
            to.final_end(str(where), ends[where])
        return


async def _is_decided(client: Client, partitions: Sequence[TopicPartition]) -> bool:
    """Whether no transaction is open, or without its markers, anywhere."""
    ends = []
    for isolation in (Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED):
        async with client.consumer(partitions, isolation=isolation) as consumer:
            ends.append(await consumer.end_offsets())
    return ends[0] == ends[1]


async def _everything(
    client: Client, partitions: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], list[ConsumedBatch]]:
    async with client.consumer(partitions, stop=Position.LATEST) as consumer:
        starts = {where: consumer.position(where) for where in partitions}
        ends = await consumer.end_offsets()
        return starts, ends, [batch async for batch in consumer.batches()]


def values_of(batch: ConsumedBatch) -> list[bytes | None]:
    return [record.value for record in batch.records()]
