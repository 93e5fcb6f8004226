"""Bytes per second over the segment protocol: appending in blocks, reading by position."""

from __future__ import annotations

import os
import time
from uuid import UUID, uuid4

import trio

from paceline.client import Client, Segments
from paceline.client.segment_link import SegmentLink
from paceline.wire.segment import messages as m
from paceline.wire.segment.events import frame_events
from paceline_cluster.bench.figures import Figure, rate

BLOCK_BYTES = 64 * 1024
WINDOW_BYTES = 8 * 1024 * 1024
READ_BYTES = 2 * 1024 * 1024
_WARM_UP_S = 1.0


async def measure(client: Client, *, sizes: tuple[int, ...], seconds: float) -> list[Figure]:
    """Append Events of each size to a segment of their own; read the last one back."""
    figures = []
    async with client.segments() as segments:
        name = ""
        for size in sizes:
            name = f"bench/events-{size}/0"
            await segments.create(name)
            figures.append(await _append(segments, name, size, seconds))
        figures.append(await _read(segments, name, seconds))
    return figures


async def _append(segments: Segments, name: str, size: int, seconds: float) -> Figure:
    count = max(1, BLOCK_BYTES // (size + m.HEADER_BYTES))
    blocks = _Blocks(frame_events([os.urandom(size)] * count))

    async def use(link: SegmentLink) -> None:
        await blocks.run(link, name, seconds)

    await segments.serve(name, use, timeout_s=seconds + 30)
    stored = blocks.stored * size * count // len(blocks.payload)
    title = f"append {size} B Events in 64 KiB blocks to a segment, RF 3"
    return rate(title, stored, stored // size, blocks.wall_s)


class _Blocks:
    """The same Events again and again, a window of them under way; counts what is acknowledged."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.stored = 0
        self.wall_s = 0.0
        self._level = 0
        self._end = 0
        self._stopping = False
        self._sent = trio.Event()
        self._moved = trio.Event()

    async def run(self, link: SegmentLink, name: str, seconds: float) -> None:
        writer = uuid4()
        await link.ask(m.SetupAppend(writer, name), m.AppendSetup, timeout_s=30)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send, link, writer)
            nursery.start_soon(self._receive, link)
            await trio.sleep(_WARM_UP_S)
            before, begin = self._level, time.monotonic()
            await trio.sleep(seconds)
            self.stored, self.wall_s = self._level - before, time.monotonic() - begin
            self._stopping = True
            # The link is used again: no block may be left half sent.
            await self._sent.wait()
            while self._level < self._end:
                await self._moved.wait()
            nursery.cancel_scope.cancel()

    async def _send(self, link: SegmentLink, writer: UUID) -> None:
        size = len(self.payload)
        while not self._stopping:
            while self._end - self._level > WINDOW_BYTES:
                await self._moved.wait()
            head = m.encode(m.BeginAppendBlock(writer, self._end, size))
            self._end += size
            tail = m.encode(m.EndAppendBlock(writer, self._end, size))
            await link.send(head + self.payload + tail)
        self._sent.set()

    async def _receive(self, link: SegmentLink) -> None:
        while True:
            reply = await link.receive()
            assert isinstance(reply, m.DataAppended), reply
            self._level = reply.level
            moved, self._moved = self._moved, trio.Event()
            moved.set()


async def _read(segments: Segments, name: str, seconds: float) -> Figure:
    reader = segments.reader(name)
    begin = time.monotonic()
    size = 0
    while time.monotonic() - begin < seconds and not reader.at_tail:
        size += len(await reader.read(READ_BYTES))
    return rate("read a segment, 2 MiB a request", size, 0, time.monotonic() - begin)
