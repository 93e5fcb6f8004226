"""Who makes room for a new connection where a listener has as many as it may have.

Idle connections cost a client nothing, so whoever opens them in thousands would shut everybody else
out. A full listener therefore ends one that has been silent both ways for a while, of the address
that has most of them, for each new one. Where nobody is silent, an address that has more than half
of all and more than twice as many as the newcomer's gives one up nevertheless. Everybody else is
left alone: a connection that is used is never ended for one of its own address. Of IPv6 an address
means a network of 64 bits, for whoever has one address has them all (``source_of``).

The kernel knows how long a connection has been silent (``TCP_INFO``); where it does not tell,
nobody counts as silent. A step looks at a bounded number of connections, those first that were not
looked at for longest.
"""

from __future__ import annotations

import socket
import struct

import trio

from paceline_node.client_addresses import source_of
from paceline_node.net.disconnects import plain_of

_LOOKED_AT = 64
_LEAVING_MAX = 4
_TCP_INFO_BYTES = 104
_LAST_DATA = struct.Struct("=44xI4xI")
"""Milliseconds since data was sent last, and since some was received last."""


class LimitedConnection:
    """One open connection."""

    __slots__ = ("address", "is_leaving", "scope", "stream")

    def __init__(self, stream: trio.abc.Stream, address: str) -> None:
        self.stream = stream
        self.address = address
        self.scope = trio.CancelScope()
        self.is_leaving = False


class ConnectionLimit:
    """The connections of one server. ``idle_s`` is what counts as silent; infinite: nobody is ever
    ended for another."""

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._members: dict[LimitedConnection, None] = {}  # whom to look at first, first
        self._by_address: dict[str, dict[LimitedConnection, None]] = {}
        self._leaving = 0
        self.displaced = 0
        """Connections ended for new ones since the server began."""

    def enter(self, stream: trio.abc.Stream, address: str) -> LimitedConnection:
        """A connection from ``address`` has its place; its service is to run in the member's
        scope."""
        member = LimitedConnection(stream, source_of(address))
        self._members[member] = None
        self._by_address.setdefault(member.address, {})[member] = None
        return member

    def leave(self, member: LimitedConnection) -> None:
        """It has ended."""
        del self._members[member]
        of_address = self._by_address[member.address]
        del of_address[member]
        if not of_address:
            del self._by_address[member.address]
        self._leaving -= member.is_leaving

    def displace(self, newcomer: str | None) -> bool:
        """Begin to end a connection so that there is room for one of the address ``newcomer`` (None
        where there are no descriptors to know it); whether one could be found, or is ending."""
        if self._leaving >= _LEAVING_MAX:
            return True
        if not self._by_address or self._idle_s == float("inf"):
            return False
        largest = max(self._by_address.values(), key=len)
        idle_s, member = self._most_silent(largest)
        if idle_s < self._idle_s:
            elsewhere_s, other = self._most_silent(self._members)
            if elsewhere_s >= self._idle_s:
                idle_s, member = elsewhere_s, other
            elif newcomer is None or not self._is_unfair(len(largest), newcomer):
                return False
        member.is_leaving = True
        self._leaving += 1
        self.displaced += 1
        member.scope.cancel("another client needs its place")
        return True

    def _is_unfair(self, largest: int, newcomer: str) -> bool:
        own = len(self._by_address.get(source_of(newcomer), ())) + 1
        return largest > len(self._members) // 2 and largest > 2 * own

    def _most_silent(
        self, members: dict[LimitedConnection, None]
    ) -> tuple[float, LimitedConnection]:
        """The one that was silent longest, of those that were not looked at for longest."""
        looked = [member for member, _ in zip(members, range(_LOOKED_AT), strict=False)]
        for member in looked:
            del members[member]
            members[member] = None
        staying = [member for member in looked if not member.is_leaving] or looked
        best = max(staying, key=_silent_s)
        return (-1.0 if best.is_leaving else _silent_s(best)), best


def _silent_s(member: LimitedConnection) -> float:
    """How long nothing came or went; 0 where nobody can tell."""
    plain = plain_of(member.stream)
    if plain is None or not hasattr(socket, "TCP_INFO"):
        return 0.0
    try:
        info = plain.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    except OSError:
        return 0.0  # it is ending
    if len(info) < _LAST_DATA.size:
        return 0.0
    sent_ms, received_ms = _LAST_DATA.unpack_from(info)
    return float(min(sent_ms, received_ms)) / 1000


def address_of(stream: trio.abc.Stream) -> str:
    """Whose connection it is; empty where the stream does not tell."""
    plain = plain_of(stream)
    if plain is not None:
        try:
            return str(plain.socket.getpeername()[0])
        except OSError:
            pass
    return ""


def name_of(stream: trio.abc.Stream) -> str:
    """The same with its port, for people."""
    plain = plain_of(stream)
    if plain is None:
        return str(getattr(stream, "peer_host", "memory"))
    try:
        host, port = plain.socket.getpeername()[:2]
    except OSError:
        return "gone"
    return f"{host}:{port}"
