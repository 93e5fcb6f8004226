"""Answers on their way to one client: in the order of their places, charged until it has them.

A request takes its place when it is read; the answer is put there when it is known. Requests of a
connection are thus carried out side by side, and still answered one after the other. One task
writes. For answers only: where both sides speak when they like, and what is sent leaves within the
step that sends it, frames have an outbox of their own (``framestream.py``).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence

import trio

from paceline_node.client_memory import Portion
from paceline_node.net.transport import FilePart, Transport

Part = bytes | bytearray | memoryview | FilePart
_PIECE_BYTES = 1024 * 1024


class Place:
    """Where one answer belongs."""

    __slots__ = ("_outbox", "parts", "size_bytes")

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.parts: Sequence[Part] | None = None
        self.size_bytes = 0
        """Of the answer, in memory."""

    def put(self, parts: Sequence[Part]) -> None:
        """Give the answer; empty for a request that gets none."""
        assert self.parts is None, "a request is answered once"
        self.parts = parts
        self._outbox.answered(self)


class Outbox:
    """``max_unsent``: places taken and not sent yet, above which no request is to be carried out;
    ``max_bytes``: answers in memory, likewise (what lies in files costs none). ``share`` is charged
    with those; while memory is short, a connection that holds more than its share waits with
    anything unsent, while each may have one answer. ``piece_bytes`` are sent at once, at most: a
    client that does not take them in ``stall_s`` is given up."""

    def __init__(
        self,
        share: Portion,
        *,
        stall_s: float,
        max_unsent: float = math.inf,
        max_bytes: float = math.inf,
        piece_bytes: int = _PIECE_BYTES,
    ) -> None:
        self._share = share
        self._max_unsent = max_unsent
        self._max_bytes = max_bytes
        self._piece_bytes = piece_bytes
        self.stall_s = stall_s
        self.unsent_bytes = 0
        self._places: deque[Place] = deque()
        self._work = trio.Event()
        self._moved: trio.Event | None = None
        self._joined: list[bytes | bytearray | memoryview] = []
        self._joined_bytes = 0
        self._leaving_bytes = 0
        """Of answers without a place any more, the last of which is on its way."""
        self._is_closed = False

    @property
    def is_empty(self) -> bool:
        """Whether every answer was sent."""
        return not self._places and not self._joined

    def place(self) -> Place:
        """The place of the next answer."""
        place = Place(self)
        self._places.append(place)
        return place

    def answered(self, place: Place) -> None:
        """An answer was given."""
        if self._is_closed:
            return  # to nobody
        for part in place.parts or ():
            if not isinstance(part, FilePart):
                place.size_bytes += len(part)
        self.unsent_bytes += place.size_bytes
        self._share.set(self.unsent_bytes)
        if self._places and self._places[0].parts is not None:
            self._work.set()

    async def room(self) -> None:
        """Return once another request may be carried out."""
        while len(self._places) >= self._max_unsent or self._is_full():
            await self._move()

    def _is_full(self, besides: int = 0) -> bool:
        """Whether there is too much unsent, with so many bytes ``besides``."""
        size = self.unsent_bytes + besides
        return size >= self._max_bytes or (size > 0 and self._share.is_over_share)

    async def emptied(self) -> None:
        """Return once every answer was sent."""
        while not self.is_empty:
            await self._move()

    async def _move(self) -> None:
        if self._moved is None:
            self._moved = trio.Event()
        await self._moved.wait()

    def _tell(self) -> None:
        """Let whoever waits look again."""
        if self._moved is not None:
            self._moved.set()
            self._moved = None

    async def run(self, transport: Transport) -> None:
        """Send until cancelled. Raises what the transport raises, and TooSlowError."""
        while True:
            while not self._is_ready:
                self._work = trio.Event()
                await self._work.wait()
            await self._send(transport)
            self._tell()

    @property
    def _is_ready(self) -> bool:
        return bool(self._places) and self._places[0].parts is not None

    def _ahead(self) -> Sequence[Part]:
        """Take what goes ahead of the next answer, whenever that comes."""
        return ()

    async def _send(self, transport: Transport) -> None:
        """Send what is ready, joined as far as it lies in memory."""
        while self._is_ready:
            if ahead := self._ahead():
                await self._join(ahead, transport)
            if self._places and (parts := self._places[0].parts) is not None:
                await self._join(parts, transport)
                self._leaving_bytes += self._places.popleft().size_bytes
        await self._flush(transport)

    async def _join(self, parts: Sequence[Part], transport: Transport) -> None:
        for piece in self._pieces(parts):
            if isinstance(piece, FilePart):
                await self._flush(transport)
                with trio.fail_after(self.stall_s):
                    await transport.send_file(piece)
                continue
            if self._joined_bytes + len(piece) > self._piece_bytes:
                await self._flush(transport)
            self._joined.append(piece)
            self._joined_bytes += len(piece)

    def _pieces(self, parts: Sequence[Part]) -> Iterator[Part]:
        for part in parts:
            size = part.size if isinstance(part, FilePart) else len(part)
            if size <= self._piece_bytes:
                yield part
                continue
            for start in range(0, size, self._piece_bytes):
                piece_size = min(self._piece_bytes, size - start)
                if isinstance(part, FilePart):
                    yield FilePart(part.file, part.position + start, piece_size)
                else:
                    yield memoryview(part)[start : start + piece_size]

    async def _flush(self, transport: Transport) -> None:
        if self._joined:
            with trio.fail_after(self.stall_s):
                await transport.send(self._joined)
            self._joined, self._joined_bytes = [], 0
        leaving, self._leaving_bytes = self._leaving_bytes, 0
        self._forget(leaving)

    def _forget(self, size: int) -> None:
        self.unsent_bytes -= size
        self._share.set(self.unsent_bytes)

    def close(self) -> None:
        """What was not sent will not be, nor what is answered from now on. Nothing of it stays:
        whoever has a place here may be among the garbage for long."""
        self._is_closed = True
        self._places.clear()
        self._joined, self._joined_bytes = [], 0
        self._forget(self.unsent_bytes)
