"""One Cursus connection: what it has negotiated, and the only place that writes to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import trio

from paceline.wire.cursus.frames import FrameReader, framed
from paceline_node.security.principals import Principal

Reply = Sequence[bytes]
"""The bodies of the frames that answer a request, in order; hardly ever more than one."""

MAX_UNREAD_ACKS_BYTES = 64 * 1024
"""A client that writes with acks=0 and does not read costs no more than this (spec cursus 4)."""
_RECEIVE_BYTES = 256 * 1024
_LAST_WORD_S = 2.0


def text(line: str) -> Reply:
    """A reply of one line."""
    return (line.encode("utf-8", "replace"),)


@dataclass(slots=True)
class CursusSession:
    """What one connection's requests are judged by. ``features`` are those it has negotiated."""

    principal: Principal
    features: frozenset[str] = frozenset()

    @property
    def classed(self) -> bool:
        """Whether errors carry their class."""
        return "structured_errors_v1" in self.features


@dataclass(frozen=True, slots=True)
class CursusCall:
    """One request under way. ``deadline`` is when its answer must be out; ``body`` is its frame, to
    be forwarded; ``forwarded`` tells that another node sent it here, so that it goes no further.
    ``redirects``: its client follows when it is told another address."""

    word: str
    session: CursusSession
    body: bytes
    deadline: float
    forwarded: bool
    redirects: bool = True

    @property
    def principal(self) -> Principal:
        return self.session.principal


class FrameSource:
    """The frames of a connection, one at a time."""

    def __init__(self, stream: trio.abc.Stream, *, max_frame_bytes: int) -> None:
        self._stream = stream
        self._reader = FrameReader(max_frame_bytes=max_frame_bytes)

    async def next(self) -> bytes | None:
        """The next body that is not empty, or None at the end of the stream. Raises
        RemoteProtocolError for a frame that is too large. Cancel-safe: nothing is lost."""
        while True:
            while (body := self._reader.next_frame()) is not None:
                if body:
                    return body
            data = await self._stream.receive_some(_RECEIVE_BYTES)
            if not data:
                return None
            self._reader.feed(data)


class FrameSink:
    """Writes frames, whole and in order, from a task of its own: whoever reads the connection can
    go on when the client does not take its answers."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._changed = trio.Event()
        self._closing = False

    @property
    def queued_bytes(self) -> int:
        """What the connection has not taken yet."""
        return self._queued_bytes

    async def run(self) -> None:
        """Send what is queued, until closed. A broken connection ends it with trio's error."""
        while True:
            while self._queue:
                frame = self._queue[0]
                await self._stream.send_all(frame)
                self._queue.popleft()
                self._queued_bytes -= len(frame)
                self._notify()
            if self._closing:
                return
            await self._changed.wait()

    async def send(self, reply: Reply) -> None:
        """Queue the frames of a reply and wait until all before and they are sent."""
        for body in reply:
            self._put(framed(body))
        await self.drained()

    def offer(self, reply: Reply) -> None:
        """Queue a reply that may be dropped when the client does not read."""
        if self._queued_bytes <= MAX_UNREAD_ACKS_BYTES:
            for body in reply:
                self._put(framed(body))

    async def send_raw(self, frame: bytes) -> None:
        """As :meth:`send`, for a whole frame."""
        self._put(frame)
        await self.drained()

    async def drained(self) -> None:
        """Return once nothing is queued."""
        while self._queue:
            await self._changed.wait()

    async def close(self) -> None:
        """Let what is queued be sent, but not for long."""
        self._closing = True
        self._notify()
        with trio.move_on_after(_LAST_WORD_S):
            await self.drained()

    def _put(self, frame: bytes) -> None:
        self._queue.append(frame)
        self._queued_bytes += len(frame)
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
