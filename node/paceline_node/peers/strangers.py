"""Connections to the peer listener that have not proved yet to be a node's (DESIGN 1.1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from paceline_node.client_addresses import host_of, source_of

_ADDRESSES_MAX = 1024
_REASON = "too many connections that do not say who they are"


class Stranger(Protocol):
    """One of them; it ends soon after it was aborted."""

    def abort(self, reason: str) -> None: ...


class _Origin(NamedTuple):
    address: str
    source: str


class Strangers:
    """At most ``most`` of them: one more ends the oldest of the source that has most, and those of
    nodes' addresses only where there are no others. So nobody keeps a node out by coming often, or
    from many addresses: only who shares its address with a node could. A source is an address, of
    IPv6 the network of 64 bits, but for the nodes': each of them is one by itself.

    Nodes' addresses are those that the cluster says (:meth:`expect`), and those that nodes were
    reached at or have come from."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._members: dict[Stranger, _Origin] = {}  # in the order they came
        self._expected: frozenset[str] = frozenset()
        self._met: dict[str, None] = {}  # what was met last is last

    def expect(self, hosts: Iterable[str]) -> None:
        """Where nodes are; replaces what was said before. A name is no address: who reaches the
        node that has it tells which it is (:meth:`met`)."""
        self._expected = frozenset(map(host_of, hosts))

    def met(self, address: str) -> None:
        """A node has come from there, or was reached there."""
        host = host_of(address)
        self._met.pop(host, None)
        self._met[host] = None
        if len(self._met) > _ADDRESSES_MAX:
            del self._met[next(iter(self._met))]

    @contextmanager
    def entered(self, stranger: Stranger, address: str) -> Iterator[None]:
        """Around what it does until it has proved to be a node, or is gone."""
        while len(self._members) >= self._most:
            self._end_one()
        self._members[stranger] = _Origin(host_of(address), source_of(address))
        try:
            yield
        finally:
            self._members.pop(stranger, None)

    def _end_one(self) -> None:
        nodes: defaultdict[str, list[Stranger]] = defaultdict(list)
        others: defaultdict[str, list[Stranger]] = defaultdict(list)
        for stranger, origin in self._members.items():
            if origin.address in self._met or origin.address in self._expected:
                nodes[origin.address].append(stranger)
            else:
                others[origin.source].append(stranger)
        oldest = max((others or nodes).values(), key=len)[0]
        del self._members[oldest]
        oldest.abort(_REASON)
