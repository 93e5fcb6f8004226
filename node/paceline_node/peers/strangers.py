"""Connections to the peer listener that have not proved yet to be a node's (DESIGN 1.1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

_ADDRESSES_MAX = 1024
_REASON = "too many connections that do not say who they are"


class Stranger(Protocol):
    """One of them; it ends soon after it was aborted."""

    def abort(self, reason: str) -> None: ...


class Strangers:
    """At most ``most`` of them: one more ends the oldest of the address that has most, and those of
    addresses that nodes came from only where there are no others. So nobody keeps a node out by
    coming often, or from many addresses: only who shares its address with a node could."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._by_address: defaultdict[str, dict[Stranger, None]] = defaultdict(dict)
        self._nodes: dict[str, None] = {}  # the address that proved it last is last

    def proved(self, address: str) -> None:
        """A node has come from there."""
        self._nodes.pop(address, None)
        self._nodes[address] = None
        if len(self._nodes) > _ADDRESSES_MAX:
            del self._nodes[next(iter(self._nodes))]

    @contextmanager
    def entered(self, stranger: Stranger, address: str) -> Iterator[None]:
        """Around what it does until it has proved to be a node, or is gone."""
        while self._count >= self._most:
            self._end_one()
        self._by_address[address][stranger] = None
        self._count += 1
        try:
            yield
        finally:
            if stranger in self._by_address.get(address, ()):
                self._leave(stranger, address)

    def _end_one(self) -> None:
        others = [each for each in self._by_address if each not in self._nodes]
        address = max(others or self._by_address, key=lambda each: len(self._by_address[each]))
        oldest = next(iter(self._by_address[address]))
        self._leave(oldest, address)
        oldest.abort(_REASON)

    def _leave(self, stranger: Stranger, address: str) -> None:
        of_address = self._by_address[address]
        del of_address[stranger]
        self._count -= 1
        if not of_address:
            del self._by_address[address]
