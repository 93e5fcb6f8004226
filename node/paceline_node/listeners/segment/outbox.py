"""What a segment connection has to say: replies in order, acknowledgements coalesced.

One task writes. Of an appender's acknowledgements only the newest waits, so they never pile up;
replies are bounded by whoever makes them asking for room first. All are charged to the client until
the kernel has them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import trio

from paceline.wire.segment.messages import DataAppended, SegmentMessage, encode
from paceline.wire.segment.partials import cut
from paceline_node.memory import Holding, Portion

_PORTION_BYTES = 256 * 1024


class Outbox:
    """``limit_bytes``: unsent bytes above which no more is to be made; with any, none is while
    memory is short and the connection, whose part of it is ``memory``, holds more than its share.
    ``stall_s``: a client that takes nothing for so long is given up. ``piece_bytes`` above 0 sends
    every reply in pieces."""

    def __init__(
        self, memory: Holding, *, limit_bytes: int, stall_s: float, piece_bytes: int
    ) -> None:
        self._unsent = Portion(memory)
        self._reading = Portion(memory)
        self._limit_bytes = limit_bytes
        self._stall_s = stall_s
        self._piece_bytes = piece_bytes
        self._parts: deque[bytes] = deque()
        self._levels: dict[UUID, int] = {}
        self._sending = False
        self._changed = trio.Event()
        self._work = trio.lowlevel.ParkingLot()

    @property
    def size_bytes(self) -> int:
        """Unsent bytes of replies."""
        return self._unsent.held_bytes

    @property
    def is_empty(self) -> bool:
        """Whether everything has been handed to the connection."""
        return not (self._parts or self._levels or self._sending)

    def send(self, message: SegmentMessage) -> None:
        """Queue a reply. Never waits: ask :meth:`room` before making large ones."""
        data = encode(message)
        parts = cut(data, self._piece_bytes) if self._piece_bytes else (data,)
        self._parts.extend(parts)
        self._unsent.set(self._unsent.held_bytes + sum(map(len, parts)))
        self._work.unpark()

    def acknowledge(self, connection_id: UUID, level: int) -> None:
        """Tell an appender its newest level."""
        self._levels[connection_id] = level
        self._work.unpark()

    def forget(self, connection_id: UUID) -> None:
        """The id is bound anew: a level of its former binding must not be told any more."""
        self._levels.pop(connection_id, None)

    async def room(self) -> None:
        """Return once less than the limit is unsent."""
        while self.size_bytes >= self._limit_bytes or (
            self.size_bytes and self._unsent.is_over_share
        ):
            await self._changed.wait()

    @asynccontextmanager
    async def reading(self, size: int) -> AsyncIterator[None]:
        """Around the making of a reply out of ``size`` bytes of log, once there is room for it
        beside what is unsent and what others read."""
        while self.size_bytes + self._reading.held_bytes >= self._limit_bytes or (
            self.size_bytes + self._reading.held_bytes and self._unsent.is_over_share
        ):
            await self._changed.wait()
        self._reading.set(self._reading.held_bytes + size)
        try:
            yield
        finally:
            self._reading.give(size)
            self._tell()

    async def emptied(self) -> None:
        """Return once everything has been handed to the connection."""
        while not self.is_empty:
            await self._changed.wait()

    async def run(self, stream: trio.abc.SendStream) -> None:
        """Write until cancelled. Raises BrokenResourceError, and TooSlowError for a client that
        takes nothing."""
        while True:
            if not (self._parts or self._levels):
                await self._work.park()
            portion, taken = self._take()
            self._sending = True
            with trio.fail_after(self._stall_s):
                await stream.send_all(portion)
            self._sending = False
            self._unsent.give(taken)
            self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    def _take(self) -> tuple[bytes, int]:
        """The next bytes: acknowledgements first, they are short and release memory over there;
        and how many of them are charged."""
        parts: list[bytes] = []
        levels, self._levels = self._levels, {}
        for connection_id, level in levels.items():
            data = encode(DataAppended(connection_id, level))
            parts += cut(data, self._piece_bytes) if self._piece_bytes else (data,)
        taken = 0
        while self._parts and taken < _PORTION_BYTES:
            part = self._parts.popleft()
            parts.append(part)
            taken += len(part)
        return b"".join(parts), taken
