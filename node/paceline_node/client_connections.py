"""Which connections of clients are open, for operators: whose, since when, what they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import trio

from paceline_node.client_addresses import source_of
from paceline_node.client_memory import Holding
from paceline_node.fair_line import ASKER, Asker


class Connection:
    """One of them. Whoever serves it says what it learns of it."""

    __slots__ = ("address", "began", "is_encrypted", "memory", "number", "principal", "protocol")

    def __init__(self, number: int, protocol: str, address: str) -> None:
        self.number = number
        """Never given again in the life of the process; larger ones came later."""
        self.protocol = protocol
        self.address = address
        """Of the client, with its port."""
        self.principal = ""
        """As whom requests are judged so far; empty: nobody has asked yet."""
        self.is_encrypted = False
        self.memory: Holding | None = None
        self.began = trio.current_time()

    @property
    def held_bytes(self) -> int:
        """What the node's memory holds on its behalf."""
        return 0 if self.memory is None else self.memory.held_bytes

    @property
    def age_s(self) -> float:
        """How long it has been open."""
        return trio.current_time() - self.began


class Connections:
    """Of a node: the oldest first."""

    def __init__(self) -> None:
        self._open: dict[int, Connection] = {}
        self._accepted = 0

    @contextmanager
    def entered(self, protocol: str, address: str) -> Iterator[Connection]:
        """A connection, which is open while the block lasts. Tasks work for it that are made in the
        block."""
        self._accepted += 1
        made = self._open[self._accepted] = Connection(self._accepted, protocol, address)
        source = source_of(address.rpartition(":")[0] or address)
        former = ASKER.set(Asker(source, made.number))
        try:
            yield made
        finally:
            ASKER.reset(former)
            del self._open[made.number]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._open)

    def numbers(self) -> Iterable[int]:
        """Of those that are open now, in order."""
        return tuple(self._open)

    def find(self, number: int) -> Connection | None:
        """The one of that number, if it is still open."""
        return self._open.get(number)
