"""Where the nodes of a test are: on this machine, or in memory.

They are in memory in tests marked ``virtual_time`` (``conftest.py``), whose waits cost nothing and
which no busy machine disturbs. All of a node is real there but its disk, sockets and threads.
"""

from __future__ import annotations

import itertools
import os
import random
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NoReturn, Protocol, TypeVar
from weakref import WeakValueDictionary

import trio
from trio.testing import MockClock

from paceline.client.client import connect as connect_by
from paceline.client.endpoint import Endpoint
from paceline_node.env import Disk, Host, Network, RealHost, RunBlocking
from paceline_node.net.network import RealNetwork
from paceline_node.storage.disk import RealDisk
from paceline_node.storage.memory_disk import MemoryDisk
from tests.unit.peers.memory_network import MemoryNetwork

Address = tuple[str, int]
LOOPBACK = "127.0.0.1"
"""Where all nodes are; ports tell them apart."""
T = TypeVar("T")


class NodeExited(BaseException):
    """The node ended its process at once; in a process of its own this would be the exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class SharedHost(RealHost):
    """The machine, except that a node's end does not take the test's process with it."""

    def exit(self, code: int) -> NoReturn:
        raise NodeExited(code)


class ThreadlessHost(SharedHost):
    """As where time is virtual, also that of the wall, and does not wait for threads."""

    def __init__(self) -> None:
        super().__init__()
        self._began_ms = super().wall_ms() - int(self.now() * 1000)

    def wall_ms(self) -> int:
        return self._began_ms + int(self.now() * 1000)

    async def run_blocking(self, work: Callable[[], T]) -> T:
        await trio.lowlevel.checkpoint()
        return work()

    def apart(self) -> RunBlocking:
        return self.run_blocking


class Machines(Protocol):
    """What a cluster's nodes run on."""

    host: Host
    network: Network

    def free_ports(self, count: int) -> list[int]: ...

    def data(self, directory: Path, number: int) -> Disk:
        """A node's disk: the same one for all its lives."""

    def killed(self, number: int) -> None:
        """A node's process is gone."""


def machines_at_hand() -> Machines:
    """Those of the running test."""
    is_virtual = isinstance(trio.lowlevel.current_clock(), MockClock)
    return MemoryMachines() if is_virtual else RealMachines()


class RealMachines:
    """Sockets and directories of this machine."""

    def __init__(self) -> None:
        self.host: Host = SharedHost()
        self.network: Network = RealNetwork()

    def free_ports(self, count: int) -> list[int]:
        return free_ports(count)

    def data(self, directory: Path, number: int) -> Disk:
        return RealDisk(str(data_dir(directory, number)))

    def killed(self, number: int) -> None:
        """The system has closed and unlocked what the node had."""


class MemoryMachines:
    """Disks and connections of memory. Nodes that are killed keep what they wrote."""

    def __init__(self) -> None:
        self.host: Host = ThreadlessHost()
        self.disks: dict[int, MemoryDisk] = {}
        self._network = MemoryNetwork()
        self.network: Network = self._network

    def free_ports(self, count: int) -> list[int]:
        ports = list(itertools.islice(_MEMORY_PORTS, count))
        _NETWORKS.update(dict.fromkeys(ports, self._network))
        return ports

    def data(self, directory: Path, number: int) -> Disk:
        return self.disks.setdefault(number, MemoryDisk())

    def killed(self, number: int) -> None:
        self.disks[number].kill()


_SENDING_S = 0.001
_MEMORY_PORTS = itertools.cycle(range(1, 10_000))
_NETWORKS: WeakValueDictionary[int, MemoryNetwork] = WeakValueDictionary()
"""By port, which no two of them share."""


async def open_stream(
    address: Address, *, source: str | None = None
) -> trio.abc.HalfCloseableStream:
    """A client's connection to a node, wherever that is; ``source``: the address that it comes
    from."""
    host, port = address
    network = _NETWORKS.get(port)
    if network is None:
        return await trio.open_tcp_stream(host, port, local_address=source)
    stream = await network.connect(host, port)
    assert isinstance(stream, trio.abc.HalfCloseableStream)
    return _UnhurriedStream(stream)


class _UnhurriedStream(trio.abc.HalfCloseableStream):
    """Sending takes a moment: who asks until something has happened must not ask for ever."""

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self._stream = stream

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.sleep(_SENDING_S)
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _dial(endpoint: Endpoint) -> trio.abc.Stream:
    return await open_stream((endpoint.host, endpoint.port))


connect = partial(connect_by, dial=_dial)
"""Paceline's client, wherever the nodes are."""


# --- this machine ---------------------------------------------------------------------------------


def data_dir(directory: Path, number: int) -> Path:
    return directory / f"node-{number}"


def _worker_ports() -> Iterator[int]:
    """Ports below those that ``paceline_cluster.ports`` chooses from, of this test worker alone:
    each once, round and round, so that nobody takes one whose node is down or not up yet."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    ports = list(range(10_000 + worker, 20_000, workers))
    random.SystemRandom().shuffle(ports)
    return itertools.cycle(ports)


_PORTS = _worker_ports()


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on, and that no other test is given."""
    return list(itertools.islice(filter(_is_free, _PORTS), count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
