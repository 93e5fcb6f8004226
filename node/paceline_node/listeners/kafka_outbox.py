"""Answers of a Kafka connection, sent in the order of the requests.

A request takes its place when it is read; the answer is put there when it is known. Produces of a
connection are thus committed side by side, and still answered one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import trio

from paceline_node.peers.transport import FilePart, Transport

Part = bytes | bytearray | memoryview | FilePart
_PIECE_BYTES = 1024 * 1024
"""Sent at once at most: a client that takes this much is not stalled."""


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
        self._outbox.answered(self)


class Outbox:
    """``max_unsent``: places taken and not sent yet, above which no request is carried out;
    ``max_bytes``: answers in memory, likewise (what lies in files costs none). ``stall_s``: a
    client that does not take a MiB in so long is given up."""

    def __init__(self, *, max_unsent: int, max_bytes: int, stall_s: float) -> None:
        self._max_unsent = max_unsent
        self._max_bytes = max_bytes
        self._stall_s = stall_s
        self.unsent_bytes = 0
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

    def answered(self, place: Place) -> None:
        """An answer was given."""
        self.unsent_bytes += _in_memory(place.parts)
        if self._places and self._places[0].parts is not None:
            self._work.set()

    async def room(self) -> None:
        """Return once another request may be carried out."""
        while len(self._places) >= self._max_unsent or self.unsent_bytes >= self._max_bytes:
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
            await self._send(transport)
            self._moved.set()

    async def _send(self, transport: Transport) -> None:
        """Send what is ready, joined as far as it lies in memory."""
        chunks: list[bytes | bytearray | memoryview] = []
        size = 0
        while self._places and (parts := self._places[0].parts) is not None:
            for piece in _pieces(parts):
                if isinstance(piece, FilePart) or size + len(piece) > _PIECE_BYTES:
                    await self._send_chunks(transport, chunks)
                    chunks, size = [], 0
                if isinstance(piece, FilePart):
                    with trio.fail_after(self._stall_s):
                        await transport.send_file(piece)
                else:
                    chunks.append(piece)
                    size += len(piece)
            self._places.popleft()
            self.unsent_bytes -= _in_memory(parts)
        await self._send_chunks(transport, chunks)

    async def _send_chunks(
        self, transport: Transport, chunks: Sequence[bytes | bytearray | memoryview]
    ) -> None:
        if chunks:
            with trio.fail_after(self._stall_s):
                await transport.send(chunks)


def _in_memory(parts: Sequence[Part] | None) -> int:
    return sum(len(part) for part in parts or () if not isinstance(part, FilePart))


def _pieces(parts: Sequence[Part]) -> Iterator[Part]:
    for part in parts:
        size = part.size if isinstance(part, FilePart) else len(part)
        if size <= _PIECE_BYTES:
            yield part
            continue
        for start in range(0, size, _PIECE_BYTES):
            piece_size = min(_PIECE_BYTES, size - start)
            if isinstance(part, FilePart):
                yield FilePart(part.file, part.position + start, piece_size)
            else:
                yield memoryview(part)[start : start + piece_size]
