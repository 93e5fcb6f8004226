"""Connections that end, some in each round of the loop.

A program with a thousand connections that dies ends all of them at once. What it takes to unwind
one is little (its tasks, its part of accounts and tables, some 0.2 ms), but trio would run it for
all of them before it looks at anybody else. So whoever finds a connection at its end takes a turn
here, and a few go on in each round of the loop.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

Look = Callable[[trio.SocketStream, bytes | bytearray], None]
_AT_ONCE = 4
_ROUNDS = 256
"""In about so many rounds the half of any crowd is gone: rounds may be slow, and until then its
places are taken."""


class Disconnects:
    """The way out of one server."""

    def __init__(self) -> None:
        self._waiting = trio.lowlevel.ParkingLot()
        self._is_taken = False
        self._passing = 0

    async def turn(self) -> None:
        """Return in a round of the loop in which few others do. Always a checkpoint; cancelled
        while waiting, it has changed nothing."""
        if self._is_taken:
            await self._waiting.park()
        else:
            self._is_taken, self._passing = True, 1
            await trio.lowlevel.cancel_shielded_checkpoint()
        # From here on nothing is awaited: who was let through is counted in any case.
        self._passing -= 1
        if not self._passing:
            self._passing = len(self._waiting.unpark(count=self._next_count()))
            self._is_taken = self._passing > 0

    def _next_count(self) -> int:
        return max(_AT_ONCE, len(self._waiting) // _ROUNDS)


class ClientStream(trio.abc.HalfCloseableStream):
    """A client's connection, which tells its end when it may go. ``look`` is shown what is received
    first this way."""

    def __init__(
        self, plain: trio.SocketStream, leaving: Disconnects, look: Look | None = None
    ) -> None:
        self.plain = plain
        self.leaving = leaving
        self._look = look

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        broken: trio.BrokenResourceError | None = None
        data: bytes | bytearray = b""
        try:
            data = await self.plain.receive_some(max_bytes)
        except trio.BrokenResourceError as error:
            broken = error.with_traceback(None)
        if self._look is not None:
            look, self._look = self._look, None
            look(self.plain, data)
        if not data:
            await self.leaving.turn()
        if broken is not None:
            try:
                raise broken
            finally:
                del broken  # a cycle otherwise (``bare_errors.py``)
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.plain.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.plain.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self.plain.send_eof()

    async def aclose(self) -> None:
        await self.plain.aclose()


def plain_of(stream: trio.abc.Stream) -> trio.SocketStream | None:
    """The TCP connection that ``stream`` is, or goes through where it is encrypted; None where it
    is another's."""
    if isinstance(stream, trio.SSLStream):
        stream = stream.transport_stream
    if isinstance(stream, ClientStream):
        return stream.plain
    return stream if isinstance(stream, trio.SocketStream) else None
