"""Bounds of segment connections, of each and of all together (DESIGN 8.1)."""

from __future__ import annotations

from dataclasses import field
from typing import Protocol

import trio

from paceline.values import dataclass
from paceline.wire.segment.server import ServerLimits
from paceline_node.client_memory import Holding


class Paused(Protocol):
    """A connection, as far as its bounds concern it."""

    def look_again(self) -> None:
        """Something that the connection may wait for has changed."""


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Longest waits in seconds: for a commit, for data at the tail."""

    append_s: float = 30.0
    read_s: float = 5.0


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of one connection (DESIGN 8.1); sizes in bytes, times in seconds.

    Above ``inflight_high`` received and uncommitted bytes it is not read, until they are below
    ``inflight_low``. ``piece_bytes`` above 0 cuts every reply into pieces (a test switch).
    """

    protocol: ServerLimits = field(default_factory=ServerLimits)
    times: RequestTimes = field(default_factory=RequestTimes)
    reads: int = 64
    idle_s: float = 120.0
    inflight_high: int = 8 * 1024 * 1024
    inflight_low: int = 4 * 1024 * 1024
    reply_queue: int = 16 * 1024 * 1024
    piece_bytes: int = 0


class NodeBudget:
    """Received and uncommitted bytes of all connections; above the limit, the connection with the
    most of them waits. What happens on one connection costs no look at those that are idle.

    They are charged to the clients' memory as well (``client_memory.py``), which ends who holds
    most. Here nobody is at fault: the log takes them, sooner or later."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._open: set[Paused] = set()
        self._busy: dict[Paused, int] = {}
        self._waiting: set[Paused] = set()
        self.inflight_bytes = 0

    def join(self, connection: Paused) -> None:
        self._open.add(connection)

    def leave(self, connection: Paused) -> None:
        self._open.discard(connection)
        self._waiting.discard(connection)
        self.inflight_bytes -= self._busy.pop(connection, 0)
        self._tell_waiting()

    def must_wait(self, connection: Paused) -> bool:
        """Whether this connection is to pause for the node's sake; it is told when to ask again."""
        if self.inflight_bytes > self._limit_bytes:
            own = self._busy.get(connection, 0)
            if own >= max(self._busy.values()):
                self._waiting.add(connection)
                return True
        self._waiting.discard(connection)
        return False

    def changed(self, connection: Paused, size: int) -> None:
        """``connection`` has received so many bytes more, or fewer of its bytes are to be
        committed."""
        if connection in self._open:
            own = self._busy.get(connection, 0) + size
            if own:
                self._busy[connection] = own
            else:
                self._busy.pop(connection, None)
            self.inflight_bytes += size
        if size < 0:
            connection.look_again()
            self._tell_waiting()

    def _tell_waiting(self) -> None:
        for each in self._waiting:
            each.look_again()


class Inflight:
    """Bytes of one connection that were received and are neither committed nor given up."""

    def __init__(self, limits: ConnectionLimits, node: NodeBudget, memory: Holding) -> None:
        self._limits = limits
        self._node = node
        self._memory = memory
        self._moved = trio.Event()
        self.bytes = 0

    def change(self, size: int) -> None:
        """There are so many more, or fewer."""
        self.bytes += size
        self._memory.change(size)
        self._node.changed(self, size)

    async def capacity(self) -> None:
        """Return once the connection may be read."""
        if self.bytes > self._limits.inflight_high:
            while self.bytes >= self._limits.inflight_low:
                await self.moved()
        while self._node.must_wait(self):
            await self.moved()

    async def moved(self) -> None:
        """Return when there are fewer, or something else that is waited for has happened."""
        await self._moved.wait()

    def look_again(self) -> None:
        moved, self._moved = self._moved, trio.Event()
        moved.set()
