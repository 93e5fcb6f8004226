"""Frames of the Kafka family off a connection: a size of four bytes, then that many.

A frame is memory of its own, because batches are stamped in place where they were received. What a
client announces is not believed: memory grows with what arrives, at most to twice of it. Large
frames of all connections share one budget, of which a frame gets its whole size before it is read:
connections that each held a part of theirs could wait for each other for ever.
"""

from __future__ import annotations

import trio

from paceline.errors import RemoteProtocolError
from paceline_node.listeners.byte_budget import ByteBudget, ByteShare
from paceline_node.peers.transport import Transport

_SIZE_BYTES = 4
_CHUNK_BYTES = 64 * 1024
_SMALLEST = 2
_SLOWEST_BYTES_S = 64 * 1024


def frame_share(budget: ByteBudget) -> ByteShare:
    """What a connection holds of the budget for frames; those up to 64 KiB are free."""
    return ByteShare(budget, free_bytes=_CHUNK_BYTES)


class FrameReader:
    """``max_bytes`` bounds the size a frame may announce; ``chunk_bytes`` are received at once. A
    frame that has begun must arrive within ``stall_s`` and a second for every 64 KiB."""

    def __init__(
        self,
        transport: Transport,
        share: ByteShare,
        *,
        max_bytes: int,
        stall_s: float,
        chunk_bytes: int = _CHUNK_BYTES,
    ) -> None:
        self._transport = transport
        self._share = share
        self._max_bytes = max_bytes
        self._stall_s = stall_s
        self._buffer = bytearray(chunk_bytes)
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
        if not _SMALLEST <= size <= self._max_bytes:
            raise RemoteProtocolError(
                f"a frame of {size} bytes: expected {_SMALLEST} to {self._max_bytes}"
            )
        self._start += _SIZE_BYTES
        await self._share.take(size)
        with trio.fail_after(self._stall_s + size / _SLOWEST_BYTES_S):
            frame = await self._body(size)
        self._is_within = False
        return frame

    async def _body(self, size: int) -> memoryview:
        taken = min(size, self._end - self._start)
        frame = self._buffer[self._start : self._start + taken]
        self._start += taken
        while taken < size:
            frame += bytes(min(size - taken, max(_CHUNK_BYTES, taken)))
            with memoryview(frame) as view:
                while taken < len(frame):
                    count = await self._transport.receive_into([view[taken:]])
                    if not count:
                        raise RemoteProtocolError(
                            f"the connection ended {size - taken} bytes before a frame's end"
                        )
                    taken += count
        return memoryview(frame)

    async def _fill(self) -> bool:
        """Receive more; False at the end of the stream."""
        waiting = self._end - self._start
        self._buffer[:waiting] = self._buffer[self._start : self._end]
        self._start, self._end = 0, waiting
        with memoryview(self._buffer) as view:
            count = await self._transport.receive_into([view[waiting:]])
        self._end += count
        return count > 0
