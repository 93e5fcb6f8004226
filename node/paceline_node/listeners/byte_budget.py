"""Bytes of memory that all connections of a listener share."""

from __future__ import annotations

import trio


class ByteBudget:
    """Bytes that connections hold together, whoever asks first being served first.

    Who needs more than the whole budget gets it for itself.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._turn = trio.StrictFIFOLock()
        self._freed = trio.Event()
        self.held_bytes = 0

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return self.held_bytes >= self._limit_bytes

    async def take(self, size: int) -> None:
        """Return once ``size`` bytes are the caller's; cancelled, none are."""
        async with self._turn:
            while self.held_bytes and self.held_bytes + size > self._limit_bytes:
                self._freed = trio.Event()
                await self._freed.wait()
            self.held_bytes += size

    def add(self, size: int) -> None:
        """Count bytes that are there already, which may be more than were left."""
        self.held_bytes += size

    def give(self, size: int) -> None:
        """Give bytes back."""
        self.held_bytes -= size
        self._freed.set()


class ByteShare:
    """What one connection holds of a budget. What takes ``free_bytes`` or less is not counted, so
    that no amount of large requests keeps heartbeats out."""

    def __init__(self, budget: ByteBudget, *, free_bytes: int = 0) -> None:
        self._budget = budget
        self._free_bytes = free_bytes
        self._held_bytes = 0

    async def take(self, size: int) -> None:
        """Return once ``size`` bytes may be used."""
        if size > self._free_bytes:
            await self._budget.take(size)
            self._held_bytes += size

    def give(self, size: int) -> None:
        """``size`` bytes, as taken, are done with; without effect after :meth:`give_all`."""
        if size > self._free_bytes:
            given = min(size, self._held_bytes)
            self._held_bytes -= given
            self._budget.give(given)

    def give_all(self) -> None:
        """All of them are done with; idempotent."""
        held, self._held_bytes = self._held_bytes, 0
        self._budget.give(held)
