"""Answers of a Kafka connection, sent in the order of the requests.

A request takes its place when it is read; the answer is put there when it is known. Produces of a
connection are thus committed side by side, and still answered one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import trio

from paceline_node.peers.transport import FilePart, Transport

Part = bytes | bytearray | memoryview | FilePart


class Place:
    """Where one answer belongs."""

    __slots__ = ("_outbox", "parts")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.parts: Sequence[Part] | None = None

    def put(self, parts: Sequence[Part]) -> None:
        """Give the answer; empty for a request that gets none."""
        assert self.parts is None, "a request is answered once"
        self.parts = parts
        self._outbox.look()


class Outbox:
    """``max_unsent``: places taken and not sent yet, above which no request is read. ``stall_s``: a
    client that takes nothing for so long is given up."""

    def __init__(self, *, max_unsent: int, stall_s: float) -> None:
        self._max_unsent = max_unsent
        self._stall_s = stall_s
        self._places: deque[Place] = deque()
        self._work = trio.Event()
        self._moved = trio.Event()

    @property
    def is_empty(self) -> bool:
        """Whether every answer was sent."""
        return not self._places

    def place(self) -> Place:
        """The place of the next answer."""
        place = Place(self)
        self._places.append(place)
        return place

    def look(self) -> None:
        """An answer was given."""
        if self._places and self._places[0].parts is not None:
            self._work.set()

    async def room(self) -> None:
        """Return once another request may be read."""
        while len(self._places) >= self._max_unsent:
            self._moved = trio.Event()
            await self._moved.wait()

    async def emptied(self) -> None:
        """Return once every answer was sent."""
        while self._places:
            self._moved = trio.Event()
            await self._moved.wait()

    async def run(self, transport: Transport) -> None:
        """Send until cancelled. Raises what the transport raises, and TooSlowError."""
        while True:
            while not (self._places and self._places[0].parts is not None):
                self._work = trio.Event()
                await self._work.wait()
            with trio.fail_after(self._stall_s):
                await self._send(transport)
            self._moved.set()

    async def _send(self, transport: Transport) -> None:
        """Send what is ready, joined as far as it lies in memory."""
        chunks: list[bytes | bytearray | memoryview] = []
        while self._places and (parts := self._places[0].parts) is not None:
            for part in parts:
                if isinstance(part, FilePart):
                    if chunks:
                        await transport.send(chunks)
                        chunks = []
                    await transport.send_file(part)
                else:
                    chunks.append(part)
            self._places.popleft()
        if chunks:
            await transport.send(chunks)
