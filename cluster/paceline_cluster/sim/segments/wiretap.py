"""A client's connection to a segment listener, listened in on."""

from __future__ import annotations

from uuid import UUID

import trio

from paceline.client.endpoint import Endpoint
from paceline.client.transport import Dial
from paceline.wire.segment import messages as m
from paceline.wire.segment.client import ReplyReader
from paceline_cluster.sim.segments.judge import SegmentJudge


class TappedStream(trio.abc.Stream):
    """Passes everything on, and tells the judge what the node says before the client hears it.

    A set-up is recognised when it is sent by itself, as all our clients do.
    """

    def __init__(self, stream: trio.abc.Stream, judge: SegmentJudge) -> None:
        self._stream = stream
        self._judge = judge
        self._replies = ReplyReader()
        self._names: dict[UUID, str] = {}
        self._floors: dict[UUID, int] = {}

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if data[:4] == _SETUP:
            setup = m.decode_payload(m.SetupAppend, bytes(data[m.HEADER_BYTES :]))
            writer = setup.connection_id
            self._names[writer] = setup.segment
            self._floors[writer] = self._judge.last_told(setup.segment, writer)
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data = await self._stream.receive_some(max_bytes)
        for reply in self._replies.receive(data):
            self._hear(reply)
        return data

    def _hear(self, reply: m.SegmentMessage) -> None:
        match reply:
            case m.AppendSetup(_, writer, level) | m.DataAppended(writer, level):
                self._judge.told(self._names[writer], writer, level, self._floors[writer])
                self._floors[writer] = level
            case m.SegmentRead():
                self._judge.read(reply)
            case m.StreamSegmentInfo():
                self._judge.described(reply)
            case m.SegmentSealed(name):
                self._judge.sealed(name)

    async def aclose(self) -> None:
        await self._stream.aclose()


_SETUP = m.encode(m.SetupAppend(m.NO_ID, ""))[:4]


def tapped(dial: Dial, port: int, judge: SegmentJudge) -> Dial:
    """``dial``, with everything said over connections to ``port`` judged."""

    async def connect(endpoint: Endpoint) -> trio.abc.Stream:
        stream = await dial(endpoint)
        return TappedStream(stream, judge) if endpoint.port == port else stream

    return connect
