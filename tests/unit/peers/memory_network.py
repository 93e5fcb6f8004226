"""A network of memory streams: nodes by address, connections that can be cut."""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from typing import cast
from uuid import UUID

import trio
import trio.testing

from paceline.types import NodeId
from paceline_node.env import Disk, Env, RealHost
from paceline_node.peers.auth import Identity, Secret

CLUSTER = UUID(int=0xC1)
SECRET = Secret(b"0123456789abcdef0123456789abcdef")


def identity(
    node: int, *, cluster: UUID | None = CLUSTER, directory: int | None = None
) -> Identity:
    return Identity(NodeId(node), UUID(int=directory or 0xD0 + node), cluster)


class MemoryListener(trio.abc.Listener[trio.abc.Stream]):
    def __init__(self, network: MemoryNetwork, port: int) -> None:
        self.network = network
        self.port = port
        self.send_stream, self.streams = trio.open_memory_channel[trio.abc.Stream](math.inf)

    async def accept(self) -> trio.abc.Stream:
        try:
            return await self.streams.receive()
        except trio.EndOfChannel:
            raise trio.ClosedResourceError from None

    async def aclose(self) -> None:
        self.network.listeners.pop(self.port, None)
        self.send_stream.close()
        await trio.lowlevel.checkpoint()


class MemoryNetwork:
    """Refuses where nobody listens; ``cut(port)`` breaks every connection to a port."""

    def __init__(self) -> None:
        self.listeners: dict[int, MemoryListener] = {}
        self.connections: dict[int, list[trio.StapledStream]] = {}
        self.attempts: list[tuple[float, int]] = []
        self.black_holes: set[int] = set()
        self.latency_s = 0.0

    async def connect(self, host: str, port: int, source: str = "") -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        self.attempts.append((trio.current_time(), port))
        if port in self.black_holes:
            await trio.sleep_forever()
        await trio.sleep(self.latency_s)
        # Looked up on arrival: who closed meanwhile refuses as nobody would.
        listener = self.listeners.get(port)
        if listener is None:
            raise ConnectionRefusedError(f"nobody listens on {host}:{port}")
        near, far = trio.testing.memory_stream_pair()
        if source:
            vars(far)["peer_host"] = source  # as the simulator's streams have it
        self.connections.setdefault(port, []).append(far)
        listener.send_stream.send_nowait(far)
        return near

    async def listen(self, host: str, port: int) -> list[trio.abc.Listener[trio.abc.Stream]]:
        await trio.lowlevel.checkpoint()
        listener = MemoryListener(self, port)
        self.listeners[port] = listener
        return [listener]

    def bound_port(self, listener: trio.abc.Listener[trio.abc.Stream]) -> int:
        assert isinstance(listener, MemoryListener)
        return listener.port

    async def cut(self, port: int) -> None:
        for stream in self.connections.pop(port, []):
            await trio.aclose_forcefully(stream)

    def env(self, seed: int = 1) -> Env:
        return Env(RealHost(), cast(Disk, None), self, random.Random(seed))


class Task:
    """A component run in a nursery, with a way to end it and wait for the end."""

    def __init__(self, run: Callable[..., Awaitable[None]]) -> None:
        self._run = run
        self._scope = trio.CancelScope()
        self._ended = trio.Event()

    async def __call__(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        try:
            with self._scope:
                await self._run(task_status=task_status)
        finally:
            self._ended.set()

    async def end(self) -> None:
        self._scope.cancel()
        await self._ended.wait()
