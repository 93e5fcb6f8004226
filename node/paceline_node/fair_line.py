"""Whose turn it is, of those who wait for the same: sources take turns, and their connections.

Whoever sends much stands behind himself, not before others: next comes the source that was
served longest ago, of it the connection that was, of that what came first.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Asker(NamedTuple):
    """For whom something is done: a source of requests, as an address, and one of its
    connections."""

    source: str = ""
    connection: int = 0


ASKER: ContextVar[Asker] = ContextVar("ASKER", default=Asker())  # noqa: B039  it cannot change
"""For whom a task works, and those that it starts; what a node does by itself is nobody's."""


class FairLine(Generic[T]):
    """Those who wait."""

    def __init__(self) -> None:
        self._sources: OrderedDict[str, OrderedDict[int, deque[T]]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, asker: Asker, waiter: T) -> None:
        """It stands behind what the same connection waits for already."""
        connections = self._sources.setdefault(asker.source, OrderedDict())
        connections.setdefault(asker.connection, deque()).append(waiter)
        self._count += 1

    def remove(self, asker: Asker, waiter: T) -> None:
        """It waits no longer."""
        connections = self._sources[asker.source]
        line = connections[asker.connection]
        line.remove(waiter)
        self._count -= 1
        if not line:
            del connections[asker.connection]
        if not connections:
            del self._sources[asker.source]

    def next(self, may: Callable[[str], bool] = lambda _: True) -> T | None:
        """Whose turn it is, of a source that ``may``; its source and its connection go to the end.
        None where there is nobody."""
        source = next((each for each in self._sources if may(each)), None)
        if source is None:
            return None
        connections = self._sources.pop(source)
        connection, line = connections.popitem(last=False)
        waiter = line.popleft()
        self._count -= 1
        if line:
            connections[connection] = line
        if connections:
            self._sources[source] = connections
        return waiter
