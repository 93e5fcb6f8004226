"""What a segment connection has to say: replies in order, acknowledgements coalesced.

Of an appender's acknowledgements only the newest waits, so they never pile up; replies are bounded
by whoever makes them asking for room first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from paceline.wire.segment.messages import DataAppended, SegmentMessage, encode
from paceline.wire.segment.partials import cut
from paceline_node.client_memory import Holding, Portion
from paceline_node.net.outbox import Outbox

_PIECE_BYTES = 256 * 1024


class SegmentOutbox(Outbox):
    """``limit_bytes``: unsent bytes above which no more is to be made. ``cut_bytes`` above 0 sends
    every message in pieces of so many."""

    def __init__(
        self, memory: Holding, *, limit_bytes: int, stall_s: float, cut_bytes: int
    ) -> None:
        super().__init__(
            Portion(memory), stall_s=stall_s, max_bytes=limit_bytes, piece_bytes=_PIECE_BYTES
        )
        self._reading = Portion(memory)
        self._cut_bytes = cut_bytes
        self._levels: dict[UUID, int] = {}

    @property
    def is_empty(self) -> bool:
        """Whether everything was sent."""
        return super().is_empty and not self._levels

    def send(self, message: SegmentMessage) -> None:
        """Queue a reply. Never waits: ask :meth:`room` before making large ones."""
        self.place().put(self._encoded(message))

    def acknowledge(self, connection_id: UUID, level: int) -> None:
        """Tell an appender its newest level."""
        self._levels[connection_id] = level
        self._work.set()

    def forget(self, connection_id: UUID) -> None:
        """The id is bound anew: a level of its former binding must not be told any more."""
        self._levels.pop(connection_id, None)

    @asynccontextmanager
    async def reading(self, size: int) -> AsyncIterator[None]:
        """Around the making of a reply out of ``size`` bytes of log, once there is room for it
        beside what is unsent and what others read."""
        while self._is_full(self._reading.held_bytes):
            await self._move()
        self._reading.set(self._reading.held_bytes + size)
        try:
            yield
        finally:
            self._reading.give(size)
            self._tell()

    @property
    def _is_ready(self) -> bool:
        return bool(self._levels or self._places)  # a reply is put as soon as it has its place

    def _ahead(self) -> Sequence[bytes]:
        """Acknowledgements: they are short and release memory over there."""
        if not self._levels:
            return ()
        levels, self._levels = self._levels, {}
        return [
            part
            for connection_id, level in levels.items()
            for part in self._encoded(DataAppended(connection_id, level))
        ]

    def _encoded(self, message: SegmentMessage) -> Sequence[bytes]:
        data = encode(message)
        return tuple(cut(data, self._cut_bytes)) if self._cut_bytes else (data,)
