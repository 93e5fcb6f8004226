"""Frames of the Kafka family off a connection: a size of four bytes, then that many.

A frame is memory of its own, because batches are stamped in place where they were received. What a
client announces is not believed: memory is taken by what arrives (``wire/frame_memory.py``), and
that is what the node's account of memory is charged (``client_memory.py``).
"""

from __future__ import annotations

import trio

from paceline.errors import RemoteProtocolError
from paceline.wire.frame_memory import RECEIVE_BYTES, memory_for, taken_bytes
from paceline_node.client_memory import Portion
from paceline_node.net.deadlines import arrival_s
from paceline_node.net.transport import Transport

_SIZE_BYTES = 4
_CHUNK_BYTES = 64 * 1024
_FIRST_BYTES = 4 * 1024
"""Enough for heartbeats: most connections are idle."""
_SMALLEST = 2
_TLS_HANDSHAKE = 0x1603  # how a TLS record of version 3.x begins


class FrameReader:
    """``max_bytes`` bounds the size a frame may announce, and may change between two;
    ``chunk_bytes`` are received at once, where 4 KiB were not enough before. A frame that has begun
    must arrive within ``stall_s`` and a second for every 64 KiB. ``share`` is charged with a frame
    that is whole, and its connection with what arrives."""

    def __init__(
        self,
        transport: Transport,
        share: Portion,
        *,
        max_bytes: int,
        stall_s: float,
        chunk_bytes: int = _CHUNK_BYTES,
    ) -> None:
        self._transport = transport
        self._share = share
        self.max_bytes = max_bytes
        self._stall_s = stall_s
        self._chunk_bytes = chunk_bytes
        self._buffer = bytearray(min(_FIRST_BYTES, chunk_bytes))
        self._is_busy = False
        self._start = 0
        self._end = 0
        self._is_within = False

    @property
    def is_between(self) -> bool:
        """Whether nothing was received that is not given out."""
        return self._end == self._start and not self._is_within

    async def begin(self) -> None:
        """Return once a frame has begun to arrive, or at the end of the stream. May be cancelled
        and called again."""
        if self._end == self._start:
            await self._fill()

    async def receive(self) -> memoryview | None:
        """The next frame without its size, None at the end of the stream. Give its bytes back to
        the share when it is done with.

        Raises RemoteProtocolError for an impossible size and for a stream that ends in a frame,
        TooSlowError, and what the transport raises. Cancelled, the reader is of no further use.
        """
        self._is_within = True
        with trio.fail_after(self._stall_s):
            while self._end - self._start < _SIZE_BYTES:
                if not await self._fill():
                    if self._end > self._start:
                        raise RemoteProtocolError("the connection ended within a frame's size")
                    return None
        at = self._start
        size = int.from_bytes(self._buffer[at : at + _SIZE_BYTES], "big", signed=True)
        if not _SMALLEST <= size <= self.max_bytes:
            raise RemoteProtocolError(
                "the client speaks TLS, and this port does not"
                if size >> 16 == _TLS_HANDSHAKE
                else f"a frame of {size} bytes: expected {_SMALLEST} to {self.max_bytes}"
            )
        self._start += _SIZE_BYTES
        with trio.fail_after(arrival_s(self._stall_s, size)):
            frame = await self._body(size)
        self._is_within = False
        self._share.holding.arriving(0)
        self._share.set(self._share.held_bytes + size)
        return frame

    async def _body(self, size: int) -> memoryview:
        taken = min(size, self._end - self._start)
        frame = memory_for(size, believed_bytes=_CHUNK_BYTES)
        with memoryview(self._buffer) as view:
            frame[:taken] = view[self._start : self._start + taken]
        self._start += taken
        memory = self._share.holding
        while taken < size:
            await memory.room()
            count = await self._transport.receive_into([frame[taken : taken + RECEIVE_BYTES]])
            if not count:
                raise RemoteProtocolError(
                    f"the connection ended {size - taken} bytes before a frame's end"
                )
            taken += count
            memory.arriving(taken_bytes(size, taken), taken)
        return frame

    async def _fill(self) -> bool:
        """Receive more; False at the end of the stream."""
        rest = self._buffer[self._start : self._end]
        size = self._chunk_bytes if self._is_busy else min(_FIRST_BYTES, self._chunk_bytes)
        if size != len(self._buffer):
            self._buffer = bytearray(size)
        self._buffer[: len(rest)] = rest
        self._start, self._end = 0, len(rest)
        with memoryview(self._buffer) as view:
            count = await self._transport.receive_into([view[len(rest) :]])
        self._end += count
        self._is_busy = self._end == size
        return count > 0
