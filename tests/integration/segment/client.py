"""A raw client of the segment protocol: sends what it is told, hands over what comes back."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar
from uuid import UUID, uuid4

import trio

from paceline.wire.segment import messages as m
from paceline.wire.segment.client import ReplyReader, closed_block
from paceline.wire.segment.events import frame_events
from tests.integration.node.machines import open_stream

M = TypeVar("M", bound=m.SegmentMessage)
HANG_S = 30.0
Address = tuple[str, int]


class Raw:
    """One connection."""

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self.stream = stream
        self._reader = ReplyReader()
        self._replies: deque[m.SegmentMessage] = deque()

    async def send(self, *parts: m.SegmentMessage | bytes) -> None:
        data = b"".join(each if isinstance(each, bytes) else m.encode(each) for each in parts)
        await self.stream.send_all(data)

    async def reply(self) -> m.SegmentMessage | None:
        """The next reply; None when the server has closed."""
        with trio.fail_after(HANG_S):
            while not self._replies:
                data = await self.stream.receive_some()
                if not data:
                    return None
                self._replies.extend(self._reader.receive(data))
            return self._replies.popleft()

    async def expect(self, kind: type[M]) -> M:
        """The next reply, which must be of that kind; acknowledgements on the way are skipped."""
        while True:
            reply = await self.reply()
            if isinstance(reply, kind):
                return reply
            assert isinstance(reply, m.DataAppended), f"{reply}, expected {kind.__name__}"

    async def ask(self, request: m.SegmentMessage, kind: type[M]) -> M:
        await self.send(request)
        return await self.expect(kind)

    # --- appending and reading ------------------------------------------------------------------

    async def create(self, name: str) -> None:
        await self.ask(m.CreateSegment(name), m.SegmentCreated)

    async def set_up(self, writer: UUID, name: str) -> int:
        reply = await self.ask(m.SetupAppend(writer, name), m.AppendSetup)
        assert (reply.connection_id, reply.segment) == (writer, name)
        return reply.level

    async def append(self, writer: UUID, offset: int, *events: bytes) -> int:
        """Append a block and wait until all of it is acknowledged; the new level."""
        await self.send(closed_block(writer, offset, list(events)))
        return await self.acked(writer, offset + len(frame_events(events)))

    async def acked(self, writer: UUID, level: int) -> int:
        """Wait for an acknowledgement of at least ``level``."""
        seen = -1
        while True:
            reply = await self.reply()
            assert isinstance(reply, m.DataAppended), reply
            if reply.connection_id == writer:
                assert reply.level >= seen, "levels never fall"
                seen = reply.level
                if seen >= level:
                    return seen

    async def read(self, name: str, offset: int, length: int) -> tuple[bytes, m.ReadFlags]:
        """One read request, all of its replies put together."""
        await self.send(m.ReadSegment(name, offset, length))
        data = b""
        while True:
            reply = await self.expect(m.SegmentRead)
            assert reply.offset == offset + len(data)
            data += reply.data
            if len(data) >= length or reply.flags:
                return data, reply.flags

    async def content(self, name: str) -> bytes:
        """Everything readable."""
        data = b""
        while True:
            part, flags = await self.read(name, len(data), 1 << 20)
            data += part
            if flags:
                return data


@asynccontextmanager
async def connect(address: Address) -> AsyncIterator[Raw]:
    stream = await open_stream(address)
    async with stream:
        yield Raw(stream)


@asynccontextmanager
async def leading(addresses: list[Address], name: str, *, hops: int = 5) -> AsyncIterator[Raw]:
    """A connection to the segment's leader, found as a client does: by following WrongHost; with
    one hop, only if it is one of ``addresses``."""
    with trio.fail_after(HANG_S):
        while True:
            for address in addresses:
                found = await _follow(address, name, hops)
                if found is not None:
                    async with found.stream:
                        yield found
                    return
            await trio.sleep(0.05)


async def _follow(address: Address, name: str, hops: int) -> Raw | None:
    for _ in range(hops):
        try:
            raw = Raw(await open_stream(address))
        except OSError:
            return None
        await raw.send(m.GetStreamSegmentInfo(name))
        try:
            reply = await raw.reply()
        except trio.BrokenResourceError:
            reply = None
        if isinstance(reply, m.StreamSegmentInfo) and reply.exists:
            return raw
        await raw.stream.aclose()
        if not isinstance(reply, m.WrongHost) or not reply.correct_host:
            return None
        host, _, port = reply.correct_host.rpartition(":")
        address = (host, int(port))
    return None


def writer_id() -> UUID:
    return uuid4()
