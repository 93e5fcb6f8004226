"""Answers of a Kafka connection, sent in the order of the requests.

A request takes its place when it is read; the answer is put there when it is known. Produces of a
connection are thus committed side by side, and still answered one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import trio

from paceline_node.memory import Portion
from paceline_node.net.transport import FilePart, Transport

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
    ``max_bytes``: answers in memory, likewise (what lies in files costs none). ``share`` is charged
    with those; while memory is short, a connection that holds more than its share waits with
    anything unsent, while each may have one answer. ``stall_s``: a client that does not take a MiB
    in so long is given up."""

    def __init__(self, share: Portion, *, max_unsent: int, max_bytes: int, stall_s: float) -> None:
        self._share = share
        self._max_unsent = max_unsent
        self._max_bytes = max_bytes
        self._stall_s = stall_s
        self.unsent_bytes = 0
        self._places: deque[Place] = deque()
        self._work = trio.Event()
        self._moved = trio.Event()
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
        size = _in_memory(place.parts)
        self.unsent_bytes += size
        self._share.set(self.unsent_bytes)
        if self._places and self._places[0].parts is not None:
            self._work.set()

    async def room(self) -> None:
        """Return once another request may be carried out."""
        while (
            len(self._places) >= self._max_unsent
            or self.unsent_bytes >= self._max_bytes
            or (self.unsent_bytes and self._share.is_over_share)
        ):
            self._moved = trio.Event()
            await self._moved.wait()

    async def emptied(self) -> None:
        """Return once every answer was sent."""
        while not self.is_empty:
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
        while self._places and (parts := self._places[0].parts) is not None:
            for piece in _pieces(parts):
                if isinstance(piece, FilePart):
                    await self._flush(transport)
                    with trio.fail_after(self._stall_s):
                        await transport.send_file(piece)
                    continue
                if self._joined_bytes + len(piece) > _PIECE_BYTES:
                    await self._flush(transport)
                self._joined.append(piece)
                self._joined_bytes += len(piece)
            self._places.popleft()
            self._leaving_bytes += _in_memory(parts)
        await self._flush(transport)

    async def _flush(self, transport: Transport) -> None:
        if self._joined:
            with trio.fail_after(self._stall_s):
                await transport.send(self._joined)
            self._joined, self._joined_bytes = [], 0
        leaving, self._leaving_bytes = self._leaving_bytes, 0
        self._forget(leaving)

    def _forget(self, size: int) -> None:
        self.unsent_bytes -= size
        self._share.set(self.unsent_bytes)

    def close(self) -> None:
        """What was not sent will not be, nor what is answered from now on."""
        self._is_closed = True
        self._forget(self.unsent_bytes)


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
