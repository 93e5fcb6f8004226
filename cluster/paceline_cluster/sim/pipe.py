"""One direction of a simulated connection, and the stream that a program sees.

Pure of time: what arrives when is the fabric's business. As in TCP, bytes of one direction are
never lost, doubled or reordered; they may be late, cut into other pieces, or end with a reset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import trio

WINDOW_BYTES = 1024 * 1024
"""Bytes under way or not yet read, beyond which a sender waits."""


class Pipe:
    """Bytes from one end to the other. ``queue`` is what is under way, in order, each with the
    earliest time at which it may arrive; nothing does before ``held_until``. All of it will have
    left at ``sent_at``."""

    def __init__(self, source: str, target: str) -> None:
        self.source = source
        self.target = target
        self.queue: deque[tuple[float, Callable[[], None]]] = deque()
        self.due = 0.0
        self.sent_at = 0.0
        self.held_until = 0.0
        self.stalled = False
        self.under_way = 0
        self.is_ended = False
        self.is_broken = False
        self.reader_gone = False
        self._arrived = bytearray()
        self._readers = trio.lowlevel.ParkingLot()
        self._writers = trio.lowlevel.ParkingLot()

    @property
    def unread(self) -> int:
        return len(self._arrived)

    # --- the network's side -----------------------------------------------------------------------

    def arrive(self, data: bytes) -> None:
        self.under_way -= len(data)
        self._arrived += data
        self._readers.unpark_all()

    def end(self) -> None:
        """The sender has closed its side."""
        self.is_ended = True
        self._readers.unpark_all()

    def break_off(self) -> None:
        """A reset: nothing more comes through, in this direction."""
        self.is_broken = True
        self._arrived.clear()
        self._readers.unpark_all()
        self._writers.unpark_all()

    # --- the programs' side -----------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        return self.under_way + len(self._arrived) >= WINDOW_BYTES

    async def wait_room(self) -> None:
        while self.is_full and not self.is_broken:
            await self._writers.park()

    async def take(self, size: int | None) -> bytes:
        """What has arrived, at most ``size`` bytes; empty at the end of the stream."""
        while not self._arrived:
            if self.is_broken:
                raise trio.BrokenResourceError("connection reset by peer")
            if self.reader_gone:
                raise trio.ClosedResourceError("the stream was closed")
            if self.is_ended:
                return b""
            await self._readers.park()
        if size is None or size >= len(self._arrived):
            data = bytes(self._arrived)
            self._arrived.clear()
        else:
            data = bytes(self._arrived[:size])
            del self._arrived[:size]
        self._writers.unpark_all()
        return data

    def stop_reading(self) -> None:
        self.reader_gone = True
        self._arrived.clear()
        self._readers.unpark_all()


class SimStream(trio.abc.HalfCloseableStream):
    """One end of a connection, as a program holds it.

    ``vanish`` is what a power cut does: the end is gone and tells nobody.
    """

    def __init__(
        self,
        out: Pipe,
        into: Pipe,
        send: Callable[[SimStream, bytes], None],
        finish: Callable[[SimStream], None],
        close: Callable[[SimStream], None],
    ) -> None:
        self.out = out
        self.into = into
        self._send = send
        self._finish = finish
        self._close = close
        self.is_closed = False
        self.has_vanished = False

    @property
    def peer_host(self) -> str:
        """Where the other end is."""
        return self.out.target

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._check()
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.out.is_full:
            await self.out.wait_room()
            self._check()
        self._send(self, bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        self._check()
        await trio.lowlevel.checkpoint()
        await self.out.wait_room()

    async def send_eof(self) -> None:
        self._check()
        await trio.lowlevel.checkpoint()
        self._finish(self)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if self.is_closed:
            raise trio.ClosedResourceError("the stream was closed")
        await trio.lowlevel.checkpoint()
        return await self.into.take(max_bytes)

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Close both directions, as the kernel does for a process that ends."""
        if not self.is_closed:
            self.is_closed = True
            self._close(self)
            self.into.stop_reading()

    def _check(self) -> None:
        if self.is_closed:
            raise trio.ClosedResourceError("the stream was closed")
        if self.out.is_broken:
            raise trio.BrokenResourceError("connection reset by peer")
