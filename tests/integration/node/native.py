"""A raw native connection: frames by hand, so that a test can send what no client would."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import trio

from paceline.errors import error_for
from paceline.types import Acks
from paceline.wire.frame import Frame, FrameReader, Kind, encode_head
from paceline.wire.message import Message
from paceline.wire.native.api import PROTOCOL_VERSION, NativeApi
from paceline.wire.native.data import (
    DescribeTopic,
    Hello,
    HelloReply,
    MetadataReply,
    MetadataRequest,
    PartitionDescription,
    Produce,
    ProducedPartition,
    ProducePartition,
    ProduceReply,
    Status,
    StatusReply,
    TopicDescription,
)
from tests.integration.node.machines import Address, open_stream

ANSWER_S = 30.0
M = TypeVar("M", bound=Message)
HELLO = Hello(PROTOCOL_VERSION, PROTOCOL_VERSION, "test")


def request(api: int, body: Message, payload: bytes = b"", *, correlation: int = 1) -> bytes:
    """The bytes of one request frame."""
    return encode_head(Kind.REQUEST, api, correlation, body.pack(), len(payload)) + payload


class NativeConnection:
    """One connection; greeted on entering unless ``hello`` is None. ``source``: the address that
    it comes from."""

    def __init__(
        self, address: Address, *, hello: Hello | None = HELLO, source: str | None = None
    ) -> None:
        self._address = address
        self._source = source
        self._hello = hello
        self._reader = FrameReader()
        self._correlation = 0
        self._stream: trio.abc.HalfCloseableStream | None = None

    async def __aenter__(self) -> NativeConnection:
        self._stream = await open_stream(self._address, source=self._source)
        try:
            if self._hello is not None:
                await self.call(NativeApi.HELLO, self._hello, HelloReply)
        except BaseException:
            await trio.aclose_forcefully(self._stream)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await trio.aclose_forcefully(self.stream)

    @property
    def stream(self) -> trio.SocketStream:
        assert self._stream is not None
        return self._stream

    # --- frames -----------------------------------------------------------------------------------

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def receive(self) -> Frame | None:
        """The next frame; None at the end of the stream, also when it was reset."""
        with trio.fail_after(ANSWER_S):
            while (frame := self._reader.next_frame()) is None:
                try:
                    data = await self.stream.receive_some()
                except trio.BrokenResourceError:
                    return None
                if not data:
                    return None
                self._reader.feed(data)
        return frame

    async def call(self, api: int, body: Message, reply: type[M], payload: bytes = b"") -> M:
        """Ask and wait. Raises the typed error of an ERROR frame; ConnectionError when closed."""
        self._correlation += 1
        await self.send(request(api, body, payload, correlation=self._correlation))
        frame = await self.receive()
        if frame is None:
            raise ConnectionError("closed without an answer")
        assert frame.correlation == self._correlation, frame
        frame.raise_for_error()
        return reply.unpack(frame.body)

    # --- requests ---------------------------------------------------------------------------------

    async def metadata(self, topics: Sequence[str] | None) -> MetadataReply:
        names = None if topics is None else tuple(topics)
        return await self.call(NativeApi.METADATA, MetadataRequest(names), MetadataReply)

    async def status(self) -> StatusReply:
        return await self.call(NativeApi.STATUS, Status(), StatusReply)

    async def describe(self, topic: str, partition: int) -> PartitionDescription:
        """What the partition's leader knows; NotLeader from other nodes."""
        body = DescribeTopic(topic, (partition,))
        reply = await self.call(NativeApi.DESCRIBE_TOPIC, body, TopicDescription)
        [found] = reply.partitions
        if found.error:
            raise error_for(found.error, found.message)
        return found

    async def produce(
        self,
        topic: str,
        partition: int,
        batches: bytes | bytearray,
        *,
        acks: Acks = Acks.ALL,
        timeout_ms: int = 10_000,
    ) -> ProducedPartition:
        """The result for one partition; its ``error`` is 0 if the batches were appended."""
        part = ProducePartition(topic, partition, len(batches))
        reply = await self.call(
            NativeApi.PRODUCE, Produce(timeout_ms, acks, (part,)), ProduceReply, bytes(batches)
        )
        [result] = reply.partitions
        return result
