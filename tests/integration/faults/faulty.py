"""A cluster whose nodes have disks and clocks that go wrong on command.

The faults sit in the node's :class:`Env`, below everything of ours: real files, real syncs, real
sockets above them. What a fault promises is what the kernel does: a failed append leaves the file
as it was, a failed sync fails once and then seems to work again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from paceline_node.app.node import Node
from paceline_node.env import Bytes, Env, File
from paceline_node.storage.disk import RealDisk, RealFile
from tests.integration.node.machines import SharedHost
from tests.integration.node.nodes import (
    HANG_S,
    Cluster,
    RunningNode,
    _Life,
    format_nodes,
    make_node,
)


def everything(path: str) -> bool:
    """A full disk takes nothing, whatever the file."""
    return True


def is_log(path: str) -> bool:
    """Whether a path is that of records of a topic."""
    return path.startswith("topics/") and path.endswith(".log")


def is_checkpoint(path: str) -> bool:
    """Whether a path is that of an offsets checkpoint before it gets its name."""
    return path.endswith(".ckpt.tmp")


def is_metadata(path: str) -> bool:
    """Whether a path is that of the metadata quorum's log."""
    return path.startswith("metadata/") and path.endswith(".raft")


class FaultyFile:
    """A file of a :class:`FaultyDisk`; only appends and overwrites can be made to fail."""

    def __init__(self, disk: FaultyDisk, file: RealFile) -> None:
        self._disk = disk
        self.real = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def __repr__(self) -> str:
        return f"<Faulty {self.real!r}>"

    def append(self, chunks: Sequence[Bytes]) -> int:
        self._disk.check_write(self.real.path)
        return self.real.append(chunks)

    def pwrite(self, data: Bytes, position: int) -> None:
        self._disk.check_write(self.real.path)
        self.real.pwrite(data, position)


class FaultyDisk:
    """The real disk. ``sync_delay_s`` makes every sync slow; ``write_error`` is the errno of writes
    to the files that ``broken`` names; :meth:`fail_next_sync` loses one group."""

    def __init__(self, disk: RealDisk) -> None:
        self._disk = disk
        self.sync_delay_s = 0.0
        self.write_error = 0
        self.broken: Callable[[str], bool] = everything
        self.refused_writes: list[str] = []
        self.lost_group: tuple[str, ...] = ()
        self.synced_after_loss: list[str] = []
        self._lose: Callable[[str], bool] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def fail_next_sync(self, of: Callable[[str], bool]) -> None:
        """Let the next sync that covers such a file fail, and all others succeed."""
        self._lose = of

    def check_write(self, path: str) -> None:
        if self.write_error and self.broken(path):
            self.refused_writes.append(path)
            raise OSError(self.write_error, os.strerror(self.write_error), path)

    def create(self, path: str) -> FaultyFile:
        return FaultyFile(self, self._disk.create(path))

    async def open(self, path: str) -> FaultyFile:
        return FaultyFile(self, await self._disk.open(path))

    async def sync(self, files: Sequence[File]) -> None:
        paths = [file.path for file in files]
        if self.lost_group:
            self.synced_after_loss += paths
        if self._lose is not None and any(map(self._lose, paths)):
            self._lose = None
            self.lost_group = tuple(paths)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.sync_delay_s:
            await trio.sleep(self.sync_delay_s)
        await self._disk.sync([_real(file) for file in files])


def _real(file: File) -> RealFile:
    assert isinstance(file, FaultyFile), file
    return file.real


class FaultyHost(SharedHost):
    """The machine, with a wall clock that can be set."""

    def __init__(self) -> None:
        super().__init__()
        self.wall_offset_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.wall_offset_ms


class FaultyCluster(Cluster):
    """A cluster with a :class:`FaultyDisk` and a :class:`FaultyHost` under every node; a node that
    starts again gets new ones, without faults unless its disk is full from the start."""

    host_type: type[FaultyHost] = FaultyHost

    def __init__(self, directory: Path, nursery: trio.Nursery, flags: Mapping[str, str]) -> None:
        super().__init__(directory, nursery, flags)
        self.disks: dict[int, FaultyDisk] = {}
        self.hosts: dict[int, FaultyHost] = {}
        self.full_from_the_start: set[int] = set()

    async def start(self, number: int, **flags: str) -> RunningNode:
        extra = {key.replace("__", "."): value for key, value in flags.items()}
        settings = {"cluster.bootstrap": self.bootstrap, **self.flags, **extra}
        plain = make_node(self.directory, number, self.ports(number), settings)
        env = plain._env
        assert isinstance(env.disk, RealDisk)
        disk = self.disks[number] = FaultyDisk(env.disk)
        if number in self.full_from_the_start:
            disk.write_error = errno.ENOSPC
        host = self.hosts[number] = self.host_type()
        life = self._lives[number] = _Life(Node(plain._settings, Env(host, disk, env.net, env.rng)))
        with trio.fail_after(HANG_S):
            started = await self._nursery.start(self._run, number, life)
        up = RunningNode(life.node, started.cluster_id, started.by_listener, self.directory)
        self.up[number] = up
        return up


@asynccontextmanager
async def faulty_cluster(
    directory: Path, kind: type[FaultyCluster] = FaultyCluster, **flags: str
) -> AsyncIterator[FaultyCluster]:
    """Three voters, formatted afresh and serving. ``flags`` name settings with ``__``."""
    settings = {key.replace("__", "."): value for key, value in flags.items()}
    async with trio.open_nursery() as nursery:
        made = kind(directory, nursery, settings)
        await format_nodes(directory, [made.ports(number)["peer"] for number in range(3)])
        await made.start_all(range(3))
        try:
            yield made
        finally:
            made.stop_all()
