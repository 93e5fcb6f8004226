"""Latency of single acks=all writes, each a request of its own: native protocol and V1 sockets.

No producer is between: the native figures post one-record batches on a connection to the leader,
the V1 figures write lines to the leader's socket, one outstanding per connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

from paceline.client import Client, ClientSettings
from paceline.client.connection import Answer, Connection
from paceline.client.endpoint import Endpoint
from paceline.client.transport import dial_tcp
from paceline.errors import PacelineError, RemoteProtocolError, error_for
from paceline.types import Acks, TopicPartition
from paceline.wire.batch import build_batch
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import Produce, ProducePartition, ProduceReply
from paceline.wire.records import Record
from paceline_cluster.bench import cpu
from paceline_cluster.bench.figures import Aim, Figure, latency
from paceline_cluster.bench.rig import Rig
from paceline_cluster.bench.throughput import REPLICATION_FACTOR, leader_of

SINGLE_AIM = Aim(1.0, at_least=False)
WARM_UP = 200
VALUE_BYTES = 100
TIMEOUT_MS = 10_000
SETTLE_S = 0.5


async def _topic(client: Client, name: str) -> int:
    """Make a one-partition topic; returns its leader."""
    await client.admin.create_topic(
        name, partitions=1, replication_factor=REPLICATION_FACTOR, if_not_exists=True
    )
    await trio.sleep(SETTLE_S)
    return await leader_of(client, TopicPartition(name, 0))


class _Window:
    """Keeps ``in_flight`` one-record requests outstanding until ``count`` are answered."""

    def __init__(self, connection: Connection, topic: str, count: int) -> None:
        self._connection = connection
        self._count = count
        self._sent = 0
        record = Record(value=b"x" * VALUE_BYTES)
        self._batch = build_batch([record], timestamp_ms=time.time_ns() // 1_000_000)
        part = ProducePartition(topic, 0, len(self._batch))
        self._body = Produce(TIMEOUT_MS, Acks.ALL, (part,)).pack()
        self.seconds: list[float] = []
        self.error: PacelineError | None = None
        self.done = trio.Event()

    def post(self) -> None:
        self._sent += 1
        begin = time.monotonic()
        self._connection.post(
            NativeApi.PRODUCE,
            self._body,
            self._handler(begin),
            wait_s=TIMEOUT_MS / 1000,
            payload=(self._batch,),
        )

    def _handler(self, begin: float) -> Callable[[Answer], None]:
        def answered(answer: Answer) -> None:
            self.seconds.append(time.monotonic() - begin)
            if self.error is None:
                self.error = _failure(answer)
            if self.error is not None or len(self.seconds) == self._count:
                self.done.set()
            elif self._sent < self._count:
                self.post()

        return answered


def _failure(answer: Answer) -> PacelineError | None:
    if isinstance(answer, PacelineError):
        return answer
    [part] = ProduceReply.unpack(answer.body).partitions
    return error_for(part.error, part.message) if part.error else None


async def native(client: Client, rig: Rig, *, in_flight: int, count: int) -> Figure:
    """Posts at the leader's native listener."""
    topic = "latency-native"
    leader = await _topic(client, topic)
    address = rig.state.node(leader).listeners["native"]
    connection = Connection(
        Endpoint.parse(address),
        ClientSettings(client_id="bench"),
        dial_tcp,
        cluster_id=None,
        on_change=_ignore,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(connection.run)
        await _run(_Window(connection, topic, WARM_UP), in_flight)
        used = cpu.sample(rig)
        begin = time.monotonic()
        window = await _run(_Window(connection, topic, count), in_flight)
        wall_s = time.monotonic() - begin
        costs = cpu.since(used, rig, leader=leader, writes=count)
        connection.close()
    aim = SINGLE_AIM if in_flight == 1 else None
    figure = latency(f"native acks=all, {in_flight} in flight", window.seconds, wall_s, aim)
    figure.details.update(costs)
    return figure


def _ignore() -> None:
    """The window posts whatever the connection's state is; a lost one answers with an error."""


async def _run(window: _Window, in_flight: int) -> _Window:
    for _ in range(in_flight):
        window.post()
    await window.done.wait()
    if window.error is not None:
        raise window.error
    return window


async def v1(client: Client, rig: Rig, *, in_flight: int, count: int) -> Figure:
    """Lines to the leader's V1 listener, one outstanding on each of ``in_flight`` connections."""
    topic = "latency-v1"
    leader = await _topic(client, topic)
    host, _, port = rig.state.node(leader).listeners["v1"].rpartition(":")
    line = f"V1|1|PRODUCE|{topic} key:{'x' * VALUE_BYTES} acks=all\n".encode()
    seconds: list[float] = []
    timeouts = 0
    left = count + WARM_UP

    async def write() -> None:
        nonlocal left, timeouts
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            while left > 0:
                left -= 1
                begin = time.monotonic()
                await stream.send_all(line)
                reply = await _line(stream)
                seconds.append(time.monotonic() - begin)
                if reply.startswith(b"V1|1|ERR|REPLICATION_TIMEOUT|"):
                    timeouts += 1  # the machine stalled: it shows as latency, and is counted
                elif not reply.startswith(b"V1|1|OK|"):
                    raise RemoteProtocolError(f"V1 answered {reply!r}")

    used = cpu.sample(rig)
    begin = time.monotonic()
    async with trio.open_nursery() as nursery:
        for _ in range(in_flight):
            nursery.start_soon(write)
    wall_s = time.monotonic() - begin
    share = count / (count + WARM_UP)
    aim = SINGLE_AIM if in_flight == 1 else None
    name = f"V1 acks=all, {in_flight} in flight"
    figure = latency(name, seconds[WARM_UP:], wall_s * share, aim)
    figure.details["timeouts"] = timeouts
    figure.details.update(cpu.since(used, rig, leader=leader, writes=count + WARM_UP))
    return figure


async def _line(stream: trio.SocketStream) -> bytes:
    data = await stream.receive_some(65536)
    while data and not data.endswith(b"\n"):
        data += await stream.receive_some(65536)
    return bytes(data)
