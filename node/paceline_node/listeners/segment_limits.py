"""Bounds of segment connections, of each and of all together (spec segment 9)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from paceline.wire.segment.server import ServerLimits
from paceline_node.listeners.segment_requests import RequestTimes


class Paused(Protocol):
    """A connection, as far as its bounds concern it."""

    @property
    def inflight_bytes(self) -> int:
        """Bytes received and neither committed nor given up."""

    def look_again(self) -> None:
        """Something that the connection may wait for has changed."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of one connection (spec segment 9); sizes in bytes, times in seconds.

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
    most of them waits."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._connections: dict[Paused, None] = {}

    def join(self, connection: Paused) -> None:
        self._connections[connection] = None

    def leave(self, connection: Paused) -> None:
        self._connections.pop(connection, None)
        self.changed()

    @property
    def inflight_bytes(self) -> int:
        return sum(each.inflight_bytes for each in self._connections)

    def must_wait(self, connection: Paused) -> bool:
        """Whether this connection is to pause for the node's sake."""
        if self.inflight_bytes <= self._limit_bytes:
            return False
        return connection.inflight_bytes >= max(each.inflight_bytes for each in self._connections)

    def changed(self) -> None:
        """Bytes were committed or given up somewhere."""
        for each in self._connections:
            each.look_again()
