"""A whole node in memory: a disk that is memory, streams instead of sockets, virtual time.

What a client says goes through the real listener, the real services and the real log. Clients are
as thin as can be: a message of the codec out, one in.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from uuid import UUID

import trio

from paceline.errors import PacelineError
from paceline.types import NodeId
from paceline.wire.batch import build_batch
from paceline.wire.cursus.frames import FrameReader as CursusReader
from paceline.wire.cursus.frames import framed
from paceline.wire.frame import Frame, FrameReader, Kind, encode_head
from paceline.wire.kafka import apis
from paceline.wire.kafka.apis import APIS, RequestHeader
from paceline.wire.kafka.layout import Struct
from paceline.wire.message import Message
from paceline.wire.native.api import PROTOCOL_VERSION, NativeApi
from paceline.wire.native.data import Hello, HelloReply
from paceline.wire.records import Record
from paceline.wire.segment import messages as segment
from paceline.wire.segment import pravega_messages as pravega
from paceline.wire.segment.client import ReplyReader
from paceline.wire.segment.framing import HEADER, HEADER_BYTES, Direction, check_in, decode_payload
from paceline.wire.segment.framing import encode as encode_pravega
from paceline_node.app.boot import format_node
from paceline_node.app.node import Node
from paceline_node.controller.raft_types import Member
from paceline_node.env import Env, RealHost, RunBlocking
from paceline_node.security.principals import Policy
from paceline_node.settings import load
from paceline_node.storage.layout import DirectoryMeta
from paceline_node.storage.memory_disk import MemoryDisk
from tests.unit.peers.memory_network import MemoryNetwork

PORTS = {
    "v1": 9092,
    "native": 7400,
    "peer": 7401,
    "segment": 12345,
    "cursus": 9000,
    "kafka": 9192,
    "http": 8080,
}
_SETTINGS = {
    "node.id": "0",
    "node.data_dir": "nowhere",
    "cluster.timing": "local",
    "disk.min_free_bytes": "0",
    "groups.partitions": "2",
    "topics.partitions": "1",
    "topics.replication_factor": "1",
    "topics.min_insync_replicas": "1",
}
M = TypeVar("M", bound=Message)
T = TypeVar("T")


class Host(RealHost):
    """The machine, without its threads and its end."""

    async def run_blocking(self, work: Callable[[], T]) -> T:
        await trio.lowlevel.checkpoint()
        return work()

    def apart(self) -> RunBlocking:
        return self.run_blocking

    def exit(self, code: int) -> NoReturn:
        raise AssertionError(f"the node ended itself with {code}")


def batch(value: bytes = b"v", *, timestamp_ms: int = 1_700_000_000_000, **more: Any) -> bytes:
    """A batch of one record."""
    return bytes(build_batch([Record(-1, timestamp_ms, b"k", value)], **more))


class LoneNode:
    """A node that serves, and the ways to it; every connection is closed with the node."""

    def __init__(self, node: Node, network: MemoryNetwork, disk: MemoryDisk) -> None:
        self.node = node
        self.disk = disk
        self._network = network

    async def connect(self, kind: str, source: str = "") -> trio.abc.Stream:
        """``source``: from which address."""
        return await self._network.connect("node", PORTS[kind], source)

    async def native(self) -> NativeClient:
        client = NativeClient(await self.connect("native"))
        await client.ask(
            NativeApi.HELLO, Hello(PROTOCOL_VERSION, PROTOCOL_VERSION, "t"), HelloReply
        )
        return client

    async def kafka(self) -> KafkaClient:
        return KafkaClient(await self.connect("kafka"))

    async def cursus(self) -> CursusClient:
        return CursusClient(await self.connect("cursus"))

    async def v1(self) -> V1Client:
        return V1Client(await self.connect("v1"))

    async def segment(self) -> SegmentClient:
        return SegmentClient(await self.connect("segment"))

    async def pravega(self) -> PravegaClient:
        client = PravegaClient(await self.connect("segment"))
        await client.ask(pravega.Hello(15, 5))
        return client


@asynccontextmanager
async def lone_node(
    directory: Path, settings: Mapping[str, str] | None = None, *, policy: Policy | None = None
) -> AsyncIterator[LoneNode]:
    """A cluster of one; ``directory`` is for its secret. On trio's clock, which should be one that
    jumps."""
    secret = directory / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef")
    secret.chmod(0o600)
    voter = Member(NodeId(0), UUID(int=0xD0), "node", PORTS["peer"])
    disk = MemoryDisk()
    await format_node(disk, DirectoryMeta(UUID(int=0xC1), NodeId(0), voter.directory_id), [voter])
    words = {
        **_SETTINGS,
        "cluster.secret_file": str(secret),
        "listeners": ",".join(f"{kind}://node:{port}" for kind, port in PORTS.items()),
        **(settings or {}),
    }
    network = MemoryNetwork()
    node = Node(
        load(flags=[f"{key}={value}" for key, value in words.items()]),
        Env(Host(), disk, network, random.Random(1)),
        policy=policy,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        yield LoneNode(node, network, disk)
        for port in PORTS.values():
            await network.cut(port)
        node.stop_with_cluster()
        node.stop()


# --- clients --------------------------------------------------------------------------------------


class NativeClient:
    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._reader = FrameReader()
        self._numbers = count(1)

    async def ask(self, api: int, body: Message, reply: type[M], payload: bytes = b"") -> M:
        """The answer. Raises the typed error of an ERROR frame."""
        frame = await self._frame(api, body, payload)
        frame.raise_for_error()
        return reply.unpack(frame.body)

    async def code(self, api: int, body: Message) -> int:
        """The number of the error that all of a request is answered with, or 0."""
        try:
            (await self._frame(api, body)).raise_for_error()
        except PacelineError as error:
            return error.code
        return 0

    async def _frame(self, api: int, body: Message, payload: bytes = b"") -> Frame:
        await self.send(api, body, payload)
        frame = await self.next()
        assert frame is not None, "the node closed the connection"
        return frame

    async def send(self, api: int, body: Message, payload: bytes = b"") -> int:
        """Send without reading; the number that the answer will have."""
        number = next(self._numbers)
        head = encode_head(Kind.REQUEST, api, number, body.pack(), len(payload))
        await self._stream.send_all(head + payload)
        return number

    async def close(self) -> None:
        await self._stream.aclose()

    async def next(self) -> Frame | None:
        """The next answer, None at the end of the stream."""
        while (frame := self._reader.next_frame()) is None:
            data = await self._stream.receive_some()
            if not data:
                return None
            self._reader.feed(data)
        return frame


class KafkaClient:
    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._numbers = count(1)

    async def ask(self, request: Struct, version: int) -> Any:
        """The response."""
        response = await self.read(await self.send(request, version), version)
        assert response is not None, "the node closed the connection"
        return response

    async def send(self, request: Struct, version: int) -> int:
        """Send without reading; which API it is."""
        [key] = [key for key, api in APIS.items() if api.request is type(request)]
        header = RequestHeader(key, version, next(self._numbers), "c1")
        await self._stream.send_all(apis.request_frame(header, request))
        return key

    async def read(self, key: int, version: int) -> Any:
        """The next response, which is one of that API; None at the end of the stream."""
        size = await self._read(4)
        if not size:
            return None
        frame = await self._read(int.from_bytes(size, "big"))
        return apis.read_response(memoryview(frame), 4, APIS[key], version)

    async def _read(self, size: int) -> bytes:
        """Empty at the end of the stream, which is between frames."""
        data = b""
        while len(data) < size:
            more = await self._stream.receive_some(size - len(data))
            if not more:
                assert not data, "the node closed the connection within a frame"
                break
            data += more
        return data


class CursusClient:
    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._reader = CursusReader()

    async def ask(self, body: bytes) -> bytes:
        """The next frame after ``body``."""
        await self._stream.send_all(framed(body))
        return await self.next()

    async def next(self) -> bytes:
        """The next frame; of a stream, empty ones say that it goes on."""
        while (answer := self._reader.next_frame()) is None:
            data = await self._stream.receive_some()
            assert data, "the node closed the connection"
            self._reader.feed(data)
        return bytes(answer)

    async def say(self, line: str) -> str:
        return (await self.ask(line.encode())).decode()


class V1Client:
    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream

    async def say(self, command: str, args: str = "") -> str:
        """The reply without its number."""
        await self._stream.send_all(f"V1|7|{command}|{args}\n".encode())
        line = b""
        while not line.endswith(b"\n"):
            line += await self._stream.receive_some()
        return line.decode().strip().removeprefix("V1|7|")


class SegmentClient:
    """The seed dialect."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._reader = ReplyReader()
        self._replies: deque[segment.SegmentMessage] = deque()

    async def ask(self, *parts: segment.SegmentMessage | bytes) -> segment.SegmentMessage:
        """The next reply."""
        data = [each if isinstance(each, bytes) else segment.encode(each) for each in parts]
        await self._stream.send_all(b"".join(data))
        while not self._replies:
            self._replies.extend(self._reader.receive(await self._stream.receive_some()))
        return self._replies.popleft()


class PravegaClient:
    """The Pravega segment dialect."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._buffer = bytearray()

    async def ask(self, *requests: segment.SegmentMessage) -> segment.SegmentMessage:
        """The next reply."""
        await self._stream.send_all(b"".join(map(encode_pravega, requests)))
        await self._fill(HEADER_BYTES)
        kind, length = HEADER.unpack_from(self._buffer)
        await self._fill(HEADER_BYTES + length)
        cls = check_in(pravega.MESSAGES, kind, length, Direction.SERVER)
        payload = bytes(self._buffer[HEADER_BYTES : HEADER_BYTES + length])
        del self._buffer[: HEADER_BYTES + length]
        return decode_payload(cls, payload)

    async def is_ended_by(self, request: segment.SegmentMessage) -> bool:
        """Whether the connection is closed upon it, without a word."""
        await self._stream.send_all(encode_pravega(request))
        return not await self._stream.receive_some()

    async def _fill(self, size: int) -> None:
        while len(self._buffer) < size:
            self._buffer += await self._stream.receive_some()
