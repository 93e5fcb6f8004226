"""Links between nodes that can be cut, slowed and refused, on loopback.

Every ordered pair of nodes has a :class:`Link`: what one dials when it means the other. Bytes go
through a :class:`Flow` in each direction, shared by both links of a pair: cutting the flow from a
to b stops a's requests to b and a's answers to b.

A cut is silence: bytes already sent are kept and arrive after it is healed, ends of connections
too; new connections are taken by the kernel and hear nothing. A refusal is passed on as a refusal
(DESIGN 3): while nobody listens at a node, nobody listens at the links to it, and they stop
listening before any end of a connection of that node is passed on. Packets are never lost or
reordered within a connection, as TCP promises.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import field

import trio

from paceline.values import dataclass
from paceline_cluster.faulty.network import Address

HOST = "127.0.0.1"
_PROBE_S = 0.02
_BACKLOG = 128
_RESET = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class Flow:
    """Bytes from one node to another. ``delay_s`` holds back each chunk, and with it the next:
    a link of little bandwidth; ``bytes_per_s`` None is unbounded."""

    is_cut: bool = False
    delay_s: float = 0.0
    bytes_per_s: float | None = None
    _changed: trio.Event = field(default_factory=trio.Event)

    def set(
        self, *, cut: bool = False, delay_s: float = 0.0, bytes_per_s: float | None = None
    ) -> None:
        """Replace what is wrong with it; nothing by default."""
        self.is_cut, self.delay_s, self.bytes_per_s = cut, delay_s, bytes_per_s
        self._changed.set()
        self._changed = trio.Event()

    async def opened(self) -> None:
        """Wait until it is not cut."""
        while self.is_cut:
            await self._changed.wait()

    async def passed(self, size: int) -> None:
        """Wait until ``size`` bytes may arrive."""
        if self.delay_s or self.bytes_per_s:
            late = size / self.bytes_per_s if self.bytes_per_s else 0.0
            await trio.sleep(self.delay_s + late)
        await self.opened()


class _Door:
    """Where a node listens, as all links to it know it: open, or nobody is there."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.is_open = False
        self.links: list[Link] = []
        self._changed = trio.Event()

    async def look(self) -> None:
        """Find out by connecting. When nobody is there, all links refuse before this returns."""
        is_open = await self._answers()
        if is_open == self.is_open:
            return
        self.is_open = is_open
        if not is_open:
            for link in self.links:
                link.shut()
        self._changed.set()
        self._changed = trio.Event()

    async def _answers(self) -> bool:
        with trio.move_on_after(1):
            try:
                stream = await trio.open_tcp_stream(*self.address)
            except OSError:
                return False
            await trio.aclose_forcefully(stream)
        return True

    async def changed(self) -> None:
        """Wait until it opens or closes."""
        await self._changed.wait()

    async def watch(self) -> None:
        """While it is closed, look whether it has opened."""
        while True:
            while not self.is_open:
                await trio.sleep(_PROBE_S)
                await self.look()
            await self.changed()


class Link:
    """What ``source`` dials when it means ``target``."""

    def __init__(self, source: int, target: int, port: int, doors: Mapping[int, _Door]) -> None:
        self.source = source
        self.target = target
        self.address: Address = (HOST, port)
        self._doors = doors
        self._door = doors[target]
        self._door.links.append(self)
        self._listener: trio.SocketListener | None = None

    def shut(self) -> None:
        """Refuse from now on."""
        if self._listener is not None:
            self._listener.socket.close()
            self._listener = None

    async def run(self, there: Flow, back: Flow) -> None:
        """Carry connections until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    while not self._door.is_open:
                        await self._door.changed()
                    self._listener = _listening(self.address)
                    await self._accept(nursery, self._listener, there, back)
        finally:
            self.shut()

    async def _accept(
        self, nursery: trio.Nursery, listener: trio.SocketListener, there: Flow, back: Flow
    ) -> None:
        with contextlib.suppress(trio.ClosedResourceError):  # by shut()
            while True:
                nursery.start_soon(self._carry, await listener.accept(), there, back)

    async def _carry(self, near: trio.SocketStream, there: Flow, back: Flow) -> None:
        async with near:
            await there.opened()
            await back.opened()
            try:
                far = await trio.open_tcp_stream(*self._door.address)
            except OSError:
                await self._door.look()
                _reset(near)
                return
            async with far, trio.open_nursery() as nursery:
                for source, sink, flow, end in (
                    (near, far, there, self.source),
                    (far, near, back, self.target),
                ):
                    nursery.start_soon(self._pump, source, sink, flow, end, nursery.cancel_scope)

    async def _pump(
        self,
        source: trio.SocketStream,
        sink: trio.SocketStream,
        flow: Flow,
        end: int,
        connection: trio.CancelScope,
    ) -> None:
        """Carry one direction; when node ``end`` ends it, the connection ends."""
        was_reset = False
        try:
            async for data in source:
                await flow.passed(len(data))
                try:
                    await sink.send_all(data)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return  # the other direction learns of it, and tells
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            was_reset = True
        await flow.opened()
        await self._doors[end].look()
        if was_reset:
            _reset(sink)
        connection.cancel()


class Mesh:
    """All links among nodes whose peer listeners are at ``addresses``. ``ports`` are free ones, one
    for each ordered pair of nodes. ``run`` it, then fault it."""

    def __init__(self, addresses: Mapping[int, Address], ports: Iterable[int]) -> None:
        self.nodes = tuple(sorted(addresses))
        self._doors = {node: _Door(addresses[node]) for node in self.nodes}
        pairs = [(a, b) for a in self.nodes for b in self.nodes if a != b]
        self._flows = {pair: Flow() for pair in pairs}
        free = iter(ports)
        self._links = {pair: Link(*pair, next(free), self._doors) for pair in pairs}

    def routes(self, node: int) -> dict[Address, Address]:
        """What a node dials in place of the others' addresses."""
        return {
            self._doors[b].address: link.address
            for (a, b), link in self._links.items()
            if a == node
        }

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry everything until cancelled."""
        async with trio.open_nursery() as nursery:
            for door in self._doors.values():
                nursery.start_soon(door.watch)
            for (a, b), link in self._links.items():
                nursery.start_soon(link.run, self._flows[a, b], self._flows[b, a])
            task_status.started()

    def cut(self, source: int, target: int) -> None:
        """Let nothing pass from ``source`` to ``target``."""
        self._flows[source, target].set(cut=True)

    def slow(
        self, source: int, target: int, *, delay_s: float, bytes_per_s: float | None = None
    ) -> None:
        """Let bytes from ``source`` to ``target`` take longer."""
        self._flows[source, target].set(delay_s=delay_s, bytes_per_s=bytes_per_s)

    def mend(self, source: int, target: int) -> None:
        """Let bytes from ``source`` to ``target`` pass as they come."""
        self._flows[source, target].set()

    def isolate(self, node: int) -> None:
        """Cut a node off from all others, both ways."""
        self.split([node], [other for other in self.nodes if other != node])

    def split(self, one: Iterable[int], other: Iterable[int]) -> None:
        """Cut two groups of nodes off from each other, both ways."""
        others = list(other)
        for a in one:
            for b in others:
                self.cut(a, b)
                self.cut(b, a)

    def heal(self) -> None:
        """Mend everything."""
        for flow in self._flows.values():
            flow.set()


def _listening(address: Address) -> trio.SocketListener:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))


def _reset(stream: trio.SocketStream) -> None:
    """End a connection by a reset instead of an orderly end."""
    with contextlib.suppress(OSError):
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    stream.socket.close()
