"""Real nodes in this process: real sockets and disks, one trio loop, ephemeral ports."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import trio

from paceline.types import NodeId
from paceline_node.app.boot import format_node
from paceline_node.app.node import Node
from paceline_node.controller.raft_types import Member
from paceline_node.env import Env, RealHost
from paceline_node.peers.network import RealNetwork
from paceline_node.settings import load
from paceline_node.storage.disk import RealDisk
from paceline_node.storage.layout import DirectoryMeta

Address = tuple[str, int]
START_S = 30.0


@dataclass(frozen=True)
class RunningNode:
    """A node that serves; ``stop`` ends it in order."""

    node: Node
    cluster_id: UUID
    addresses: Mapping[str, Address]
    directory: Path

    @property
    def v1(self) -> Address:
        return self.addresses["v1"]

    @property
    def native(self) -> str:
        host, port = self.addresses["native"]
        return f"{host}:{port}"

    def stop(self) -> None:
        self.node.stop()


def write_secret(directory: Path) -> Path:
    path = directory / "cluster.secret"
    path.write_text("0123456789abcdef0123456789abcdef")
    path.chmod(0o600)
    return path


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago; peers must know each other's before they start."""
    import socket

    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


async def format_nodes(directory: Path, ports: Sequence[int]) -> UUID:
    """Format node-0, node-1 ... as voters whose peer listeners are at ``ports``."""
    cluster_id = uuid4()
    write_secret(directory)
    voters = [
        Member(NodeId(number), uuid4(), "127.0.0.1", port) for number, port in enumerate(ports)
    ]
    for voter in voters:
        disk = RealDisk(str(directory / f"node-{voter.node_id}"))
        meta = DirectoryMeta(cluster_id, voter.node_id, voter.directory_id)
        await format_node(disk, meta, voters)
        disk.close()
    return cluster_id


def make_node(directory: Path, number: int, peer_port: int, flags: Mapping[str, str]) -> Node:
    data = directory / f"node-{number}"
    kinds = {"v1": 0, "native": 0, "http": 0, "peer": peer_port}
    listeners = ",".join(f"{kind}://127.0.0.1:{port}" for kind, port in kinds.items())
    words = [
        f"node.id={number}",
        f"node.data_dir={data}",
        f"listeners={listeners}",
        "cluster.timing=local",
        "disk.min_free_bytes=0",
        *(f"{key}={value}" for key, value in flags.items()),
    ]
    settings = load(flags=words)
    env = Env(RealHost(), RealDisk(str(data)), RealNetwork(), random.Random(number))
    return Node(settings, env)


@asynccontextmanager
async def running(node: Node, directory: Path) -> AsyncIterator[RunningNode]:
    """Run a node for the length of a block; it stops in order at its end."""
    async with trio.open_nursery() as nursery:
        with trio.fail_after(START_S):
            started = await nursery.start(node.run)
        try:
            yield RunningNode(node, started.cluster_id, started.by_listener, directory)
        finally:
            node.stop_with_cluster()
            node.stop()


@asynccontextmanager
async def lone_node(
    directory: Path, flags: Mapping[str, str] | None = None
) -> AsyncIterator[RunningNode]:
    """A cluster of one, formatted afresh."""
    (port,) = free_ports(1)
    await format_nodes(directory, [port])
    node = make_node(directory, 0, port, flags or {})
    async with running(node, directory) as up:
        yield up


class V1Client:
    """One raw V1 connection."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._buffer = b""
        self._stream: trio.SocketStream | None = None

    async def __aenter__(self) -> V1Client:
        self._stream = await trio.open_tcp_stream(*self._address)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._stream is not None
        await self._stream.aclose()

    async def send(self, data: bytes) -> None:
        assert self._stream is not None
        await self._stream.send_all(data)

    async def finish_sending(self) -> None:
        assert self._stream is not None
        await self._stream.send_eof()

    async def read_line(self) -> str | None:
        """The next reply without its LF; None at the end of the stream."""
        assert self._stream is not None
        with trio.fail_after(10):
            while b"\n" not in self._buffer:
                data = await self._stream.receive_some()
                if not data:
                    return None
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    async def ask(self, line: str) -> str:
        await self.send(line.encode() + b"\n")
        reply = await self.read_line()
        assert reply is not None, f"{line}: the connection was closed"
        return reply

    @classmethod
    async def ask_once(cls, address: Address, data: bytes) -> str:
        """Send bytes over a connection of its own; an unterminated line ends with our side."""
        async with cls(address) as client:
            await client.send(data)
            if not data.endswith(b"\n"):
                await client.finish_sending()
            reply = await client.read_line()
            assert reply is not None, f"{data!r}: the connection was closed"
            return reply
