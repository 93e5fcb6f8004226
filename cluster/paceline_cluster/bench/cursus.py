"""Records per second over the Cursus protocol, with its own benchmark's numbers: one idempotent
producer of batches of 1000 records of 100 bytes into 12 partitions, and readers that poll.

Everything that is sent is encoded before the clock starts, and of what is read only the heads of
the frames are looked at: what is measured is the broker and the sockets.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from paceline.types import Acks
from paceline.wire.cursus.batch import MAGIC, CursusBatch, CursusRecord, Dialect, encode_batch
from paceline.wire.cursus.frames import FrameReader, framed
from paceline_cluster.bench import cpu
from paceline_cluster.bench.figures import Aim, Figure
from paceline_cluster.bench.rig import Rig

PARTITIONS = 12
BATCH_RECORDS = 1000
RECORD_BYTES = 100
IN_FLIGHT = 5
READ_RECORDS = 5000
_ONE_NODE_AIM = Aim(60_000, at_least=True)
_THREE_NODES_AIM = Aim(40_000, at_least=True)
_RECEIVE_BYTES = 256 * 1024
_COUNT_BEHIND_TOPIC = struct.Struct(">xxxxxxxxxxxxxxxxxxxxxxxi")
"""Partition, acks "1", idempotence and both sequences: 23 bytes between topic and count."""


class BenchmarkFailed(Exception):
    """The broker refused what was to be measured; the text is its answer."""


class _Connection:
    """Frames over one socket."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._reader = FrameReader()

    async def send(self, frame: bytes) -> None:
        await self._stream.send_all(frame)

    async def receive(self) -> bytes:
        while (body := self._reader.next_frame()) is None:
            data = await self._stream.receive_some(_RECEIVE_BYTES)
            if not data:
                raise BenchmarkFailed("the broker closed the connection")
            self._reader.feed(data)
        return body

    async def say(self, line: str) -> str:
        await self.send(framed(line.encode()))
        answer = (await self.receive()).decode()
        if not answer.startswith("OK"):
            raise BenchmarkFailed(f"{line}: {answer}")
        return answer


@asynccontextmanager
async def _connected(address: str) -> AsyncIterator[_Connection]:
    host, _, port = address.rpartition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        yield _Connection(stream)


async def measure(rig: Rig, *, batches: int) -> list[Figure]:
    """Write ``batches`` batches to each partition with acks 1 and -1, and read them back."""
    addresses = rig.state.addresses("cursus")
    figures: list[Figure] = []
    for acks in (Acks.LEADER, Acks.ALL):
        topic = f"cursus-acks{acks.value}"
        leaders = await _leaders(addresses, topic)
        frames = [_frames(topic, number, acks, batches) for number in range(PARTITIONS)]
        aim = _ONE_NODE_AIM if len(addresses) == 1 else None
        if len(addresses) > 1 and acks is Acks.ALL:
            aim = _THREE_NODES_AIM
        what = f"produce, acks {acks.value}"
        async with _timed(rig, what, batches, aim, figures), trio.open_nursery() as nursery:
            for leader, mine in zip(leaders, frames, strict=True):
                nursery.start_soon(_produce, leader, mine)
    aim = _ONE_NODE_AIM
    async with _timed(rig, "consume", batches, aim, figures), trio.open_nursery() as nursery:
        for number, leader in enumerate(leaders):
            nursery.start_soon(_consume, leader, topic, number, batches * BATCH_RECORDS)
    return figures


@asynccontextmanager
async def _timed(
    rig: Rig, what: str, batches: int, aim: Aim | None, figures: list[Figure]
) -> AsyncIterator[None]:
    """Adds the figure of what is done inside."""
    records = batches * BATCH_RECORDS * PARTITIONS
    before, begin = cpu.sample(rig), time.monotonic()
    yield
    wall_s = time.monotonic() - begin
    nodes = len(before.by_node)
    details = {
        "seconds": round(wall_s, 2),
        "records": records,
        **cpu.a_record(before, rig, records),
    }
    name = f"cursus {what}, {nodes} {'node' if nodes == 1 else 'nodes'}"
    figures.append(Figure(name, round(records / wall_s), "records/s", aim, details))


async def _leaders(addresses: Sequence[str], topic: str) -> list[str]:
    """Make the topic; the address of each partition's leader, once all have one."""
    async with _connected(addresses[0]) as connection:
        await connection.say(f"CREATE topic={topic} partitions={PARTITIONS}")
        while True:
            answer = await connection.say(f"METADATA topic={topic}")
            fields = dict(word.partition("=")[::2] for word in answer.split()[1:])
            leaders = fields["leaders"].split(",")
            if all(leaders):
                return leaders
            await trio.sleep(0.05)


def _frames(topic: str, partition: int, acks: Acks, batches: int) -> list[bytes]:
    payload = bytes(RECORD_BYTES)
    frames = []
    for number in range(batches):
        first = number * BATCH_RECORDS + 1
        records = [
            CursusRecord(0, sequence, b"bench", epoch=1, payload=payload)
            for sequence in range(first, first + BATCH_RECORDS)
        ]
        batch = CursusBatch(Dialect.REAL, topic, partition, acks, True, records)
        frames.append(framed(encode_batch(batch)))
    return frames


async def _produce(address: str, frames: Sequence[bytes]) -> None:
    room = trio.Semaphore(IN_FLIGHT)
    async with _connected(address) as connection, trio.open_nursery() as nursery:

        async def send() -> None:
            for frame in frames:
                await room.acquire()
                await connection.send(frame)

        nursery.start_soon(send)
        for _ in frames:
            answer = json.loads(await connection.receive())
            if answer["status"] != "OK":
                raise BenchmarkFailed(answer["error"])
            room.release()


async def _consume(address: str, topic: str, partition: int, count: int) -> None:
    at = len(MAGIC) + 2 + len(topic)
    offset = 0
    async with _connected(address) as connection:
        while offset < count:
            line = (
                f"CONSUME topic={topic} partition={partition} offset={offset} member=bench "
                f"batch={READ_RECORDS} wait_ms=1000"
            )
            await connection.send(framed(line.encode()))
            body = await connection.receive()
            if not body.startswith(MAGIC):
                raise BenchmarkFailed(body.decode(errors="replace"))
            offset += _COUNT_BEHIND_TOPIC.unpack_from(body, at)[0]
