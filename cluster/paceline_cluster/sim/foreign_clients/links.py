"""Connections of a client to any of the nodes: one exchange at a time on each.

Whatever ends an exchange early leaves its connection with an answer under way, so that it is of no
use any more: the outcome is open, and the client goes on over another connection.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, NamedTuple, Self, TypeVar

import trio

from paceline.errors import ConnectionLost, PacelineError
from paceline_cluster.sim.cluster import SimCluster

AGAIN_S = 0.2
CONNECT_S = 2.0
ANSWER_S = 6.0
"""Longer than a node may take to say that it does not know."""
READ_BYTES = 64 * 1024
T = TypeVar("T")


class Address(NamedTuple):
    """Where a node listens."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Of ``host:port``."""
        host, _, port = text.rpartition(":")
        return cls(host, int(port))


class Connection:
    """A connection to one node, for a protocol to be spoken over."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.is_usable = True

    async def exchange(
        self, what: str, talk: Callable[[], Awaitable[T]], *, within_s: float = ANSWER_S
    ) -> T:
        """Let ``talk`` send a request and read its answer. Raises ConnectionLost."""
        self.is_usable = False
        with trio.move_on_after(within_s):
            try:
                told = await talk()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                # Closed: it was of no use any more, and another was opened in its place.
                raise ConnectionLost(f"{what}: the connection broke") from None
            self.is_usable = True
            return told
        raise ConnectionLost(f"{what}: no answer within {within_s} s")

    async def receive(self) -> bytes:
        """Some bytes. Raises ConnectionLost at the end of the stream."""
        data = await self.stream.receive_some(READ_BYTES)
        if not data:
            raise ConnectionLost("the node closed the connection")
        return bytes(data)


L = TypeVar("L", bound=Connection)


class Links(Generic[L]):
    """All connections of one client, for ``async with``; those of no use are opened anew."""

    def __init__(
        self,
        cluster: SimCluster,
        host: str,
        port: int,
        make: Callable[[trio.abc.Stream], L],
        rng: random.Random,
    ) -> None:
        self._cluster = cluster
        self._host = host
        self._port = port
        self._make = make
        self._rng = rng
        self._open: dict[Address, L] = {}

    async def __aenter__(self) -> Self:
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for link in self._open.values():
            await trio.aclose_forcefully(link.stream)
        self._open.clear()

    def anywhere(self) -> Address:
        """One of the nodes."""
        return Address(self._rng.choice(self._cluster.members).host, self._port)

    async def to_any(self) -> L:
        """A connection to one of the nodes. Raises ConnectionLost, with nothing sent."""
        return await self.to(self.anywhere())

    async def to(self, address: Address) -> L:
        """A connection to a node. Raises ConnectionLost, with nothing sent."""
        link = self._open.get(address)
        if link is not None and link.is_usable:
            return link
        if link is not None:
            del self._open[address]
            await trio.aclose_forcefully(link.stream)
        with trio.move_on_after(CONNECT_S):
            try:
                stream = await self._cluster.fabric.connect(self._host, *address)
            except OSError as error:
                raise ConnectionLost(f"{address}: {error}", was_sent=False) from None
            link = self._open[address] = self._make(stream)
            return link
        raise ConnectionLost(f"{address} does not answer", was_sent=False)


async def keep_on(work: Callable[[], Awaitable[None]]) -> None:
    """Do ``work`` until it ends without an error."""
    while True:
        try:
            await work()
            return
        except PacelineError:
            await trio.sleep(AGAIN_S)
