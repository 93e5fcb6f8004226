"""Accepting connections without running out of descriptors (DESIGN 1).

Client listeners and the peer listener share one process limit. The gate keeps the highest
descriptor numbers for what must go on: peers, log segments, the metadata log. The kernel always
gives the lowest free number, so a number at or above ``limit - reserve`` says that the rest is
used up, and a client connection that would need it waits in the listen backlog instead.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import structlog
import trio

from paceline_node.net.connection_limit import ConnectionLimit, address_of
from paceline_node.net.disconnects import ClientStream, Disconnects, Look
from paceline_node.observe.rate_limited_log import RateLimitedLog

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_PAUSE_S = 0.1


class Descriptors(Protocol):
    """What the gate asks of the process (``network.RealDescriptors``)."""

    def limit(self) -> int:
        """How many descriptors the process may have open."""

    def next_number(self) -> int:
        """The number the next opened descriptor would get; ``limit()`` when none is left."""


class AcceptGate:
    """Holds back client connections while fewer than ``reserve`` descriptors are left."""

    def __init__(self, descriptors: Descriptors, *, reserve: int) -> None:
        self._descriptors = descriptors
        self._first_reserved = max(1, descriptors.limit() - reserve)

    @property
    def is_open(self) -> bool:
        return self._descriptors.next_number() < self._first_reserved

    def admits(self, stream: trio.abc.Stream) -> bool:
        """Whether an accepted connection may stay: others may have come while it was awaited."""
        if not isinstance(stream, trio.SocketStream):
            return True
        return stream.socket.fileno() < self._first_reserved


class OpenConnections:
    """How many connections of a server are open now, and were accepted since it began."""

    __slots__ = ("accepted", "count")

    def __init__(self) -> None:
        self.count = 0
        self.accepted = 0


@asynccontextmanager
async def contained(protocol: str, client: str, log: RateLimitedLog) -> AsyncIterator[None]:
    """Around the service of one client's connection, which must not end the others': whatever it
    fails with is logged, a broken invariant too. (The simulator makes it end the run.)"""
    try:
        yield
    except* Exception as group:
        log.error(
            "connection failed", cause=protocol, protocol=protocol, client=client, exc_info=group
        )


class _Accepting:
    """One server: its connection count and what its listeners share."""

    def __init__(
        self,
        handle: Callable[[trio.abc.Stream], Awaitable[None]],
        nursery: trio.Nursery,
        max_connections: int,
        gate: AcceptGate | None,
        opened: OpenConnections,
        crowd: ConnectionLimit,
        look: Look | None,
    ) -> None:
        self._crowd = crowd
        self._look = look
        self._handle = handle
        self._nursery = nursery
        self._places = trio.Semaphore(max_connections)
        self._gate = gate
        self._opened = opened
        self._leaving = Disconnects()
        self._paused = False
        self._log = structlog.get_logger(component="accept")
        self._sparing = RateLimitedLog(component="accept")

    async def accept_from(self, listener: trio.abc.Listener[trio.abc.Stream]) -> None:
        async with listener:
            while True:
                try:
                    stream = await self._next(listener)
                except trio.ClosedResourceError:
                    return  # its owner closed it: stop accepting, serve what is open
                try:
                    await self._place_for(stream)
                except BaseException:
                    await trio.aclose_forcefully(stream)
                    raise
                self._nursery.start_soon(self._run, stream)

    async def _place_for(self, stream: trio.abc.Stream) -> None:
        """Wait until the connection may be served, which may cost another one its place."""
        while True:
            try:
                self._places.acquire_nowait()
            except trio.WouldBlock:
                made = self._crowd.displace(address_of(stream))
                self._sparing.warning(
                    "all places for connections are taken",
                    cause="ends another" if made else "waits",
                    newcomer=address_of(stream),
                )
            else:
                return
            with trio.move_on_after(_PAUSE_S):
                await self._places.acquire()
                return

    async def _next(self, listener: trio.abc.Listener[trio.abc.Stream]) -> trio.abc.Stream:
        while True:
            await self._room()
            try:
                stream = await listener.accept()
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._pause(str(error))
                await trio.sleep(_PAUSE_S)
                continue
            if self._gate is None or self._gate.admits(stream):
                self._paused = False
                return stream
            await trio.aclose_forcefully(stream)

    async def _room(self) -> None:
        if self._gate is not None and not self._gate.is_open:
            self._pause("only the descriptors reserved for peers and logs are left")
            while not self._gate.is_open:
                self._crowd.displace(None)
                await trio.sleep(_PAUSE_S)

    def _pause(self, reason: str) -> None:
        if not self._paused:
            self._paused = True
            self._log.warning("accepting paused", reason=reason)

    async def _run(self, stream: trio.abc.Stream) -> None:
        self._opened.count += 1
        self._opened.accepted += 1
        member = self._crowd.enter(stream, address_of(stream))
        try:
            with member.scope:
                await self._handle(self._orderly(stream))
        finally:
            self._crowd.leave(member)
            self._opened.count -= 1
            self._places.release()
            with trio.move_on_after(1, shield=True):
                await trio.aclose_forcefully(stream)

    def _orderly(self, stream: trio.abc.Stream) -> trio.abc.Stream:
        if isinstance(stream, trio.SocketStream):
            return ClientStream(stream, self._leaving, self._look)
        return stream  # the simulator's


async def serve(
    listeners: Sequence[trio.abc.Listener[trio.abc.Stream]],
    handle: Callable[[trio.abc.Stream], Awaitable[None]],
    *,
    max_connections: int,
    gate: AcceptGate | None = None,
    opened: OpenConnections | None = None,
    idle_s: float = float("inf"),
    look: Look | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Accept from the listeners and run ``handle`` on each connection, until cancelled, or until
    the listeners were closed (to stop accepting) and the last connection has ended.

    The listeners and every stream are closed at the end. ``handle`` must not raise for what a
    client does. While ``max_connections`` are open, while the gate is closed and after a shortage
    error, further connections wait, unless one that is open makes room: such as have been silent
    for ``idle_s``, and of an address that has most of all (``connection_limit.py``). Other errors
    of accept are raised. ``opened`` counts the connections; ``look`` is shown what a client says
    first.
    """
    async with trio.open_nursery() as nursery:
        accepting = _Accepting(
            handle,
            nursery,
            max_connections,
            gate,
            OpenConnections() if opened is None else opened,
            ConnectionLimit(idle_s),
            look,
        )
        for listener in listeners:
            nursery.start_soon(accepting.accept_from, listener)
        task_status.started()
