"""A data directory in memory that loses what was not synced: the simulator's Disk.

Behaves as :class:`~paceline_node.storage.disk.RealDisk` (one driver test-suite runs against both)
and can fail in the ways of sim/DESIGN 2: power cut, kill, any call that fails, full disk, no
descriptor left, slow or hanging syncs; and its files can rot, vanish, age and become unreadable.
No threads: a slow sync sleeps on trio's clock, so virtual time may drive it.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator, Sequence

import trio

from paceline_node.env import Bytes, File, SyncFailed, is_full
from paceline_node.storage.memory_file import MemoryNode
from paceline_node.storage.memory_tree import MemoryDirectory

_TOTAL = 1 << 40
_SHORTAGE_S = 0.1  # between two looks for a descriptor, as on the real disk
CALLS = (
    "create",
    "exists",
    "free_bytes",
    "fsync_dir",
    "list",
    "lock",
    "mkdir",
    "open",
    "read",
    "remove",
    "remove_tree",
    "rename",
    "sync",
    "truncate",
    "write",
)
"""Every operation that can be made to fail; ``sync`` also stands for syncs of directories."""


class MemoryFile:
    """A handle on a file of a MemoryDisk; it dies with the process that opened it."""

    def __init__(self, disk: MemoryDisk, path: str, node: MemoryNode) -> None:
        self._disk = disk
        self._path = path
        self.node = node
        self._life = disk.life
        self._size = len(node.content)
        self._closed = False

    def __repr__(self) -> str:
        return f"<MemoryFile {self._path} {self._size} bytes>"

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return self._size

    def append(self, chunks: Sequence[Bytes]) -> int:
        position = self._size
        self._write(chunks, position)
        return position

    def pwrite(self, data: Bytes, position: int) -> None:
        self._write([data], position)

    def pread(self, size: int, position: int) -> bytes:
        self.check()
        return self._read(size, position)

    async def read(self, size: int, position: int) -> bytes:
        self.check()
        delay = self._disk.read_delay_s
        # Shielded as the real thing: a thread in pread cannot be called back, nor does it mind when
        # the file is closed meanwhile.
        with trio.CancelScope(shield=delay is not None):
            await trio.sleep(0.0 if delay is None else delay())
        if self._life != self._disk.life:
            raise OSError(errno.EIO, "the machine went down during a read")
        return self._read(size, position)

    def truncate(self, size: int) -> None:
        self.check()
        self._disk.raise_fault("truncate", self._path)
        self._disk.charge(max(0, size - len(self.node.content)), self._path)
        self.node.truncate(size)
        self._size = size

    def fileno(self) -> int | None:
        self.check()
        return None

    def close(self) -> None:
        self._closed = True

    def check(self) -> None:
        """Raise OSError when this handle was closed or its process has died."""
        if self._closed or self._life != self._disk.life:
            raise OSError(errno.EBADF, "file is closed", self._path)

    def _read(self, size: int, position: int) -> bytes:
        self._disk.raise_fault("read", self._path)
        if size < 0 or position < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self._path)
        size = min(size, max(0, len(self.node.content) - position))
        found = self.node.readable(position, size)
        if size and not found:
            raise OSError(errno.EIO, os.strerror(errno.EIO), self._path)
        return bytes(memoryview(self.node.content)[position : position + found])

    def _write(self, chunks: Sequence[Bytes], position: int) -> None:
        self.check()
        self._disk.raise_fault("write", self._path)
        if self.node.is_unwritable:
            self._disk.has_failed = True
            raise OSError(errno.EIO, os.strerror(errno.EIO), self._path)
        end = position + sum(len(chunk) for chunk in chunks)
        self._disk.charge(max(0, end - len(self.node.content)), self._path)
        self.node.write(chunks, position)
        self._size = max(self._size, end)


class MemoryDisk:
    """One machine's data directory, across the lives of the processes that use it."""

    def __init__(self) -> None:
        self.life = 0
        self.capacity_bytes: int | None = None
        """Size of the file system; None: no limit."""
        self.sync_delay_s: Callable[[], float] | None = None
        """How long each sync takes, asked once per sync."""
        self.read_delay_s: Callable[[], float] | None = None
        """How long each :meth:`MemoryFile.read` takes, asked once per read."""
        self.starves: Callable[[], bool] | None = None
        """Whether a call that needs a descriptor finds none, asked at each such call."""
        self.sync_count = 0
        self.has_failed = False
        """Whether a planned fault that is not for want of room has struck the process that uses it
        now, or the one before if none does."""
        self._root = MemoryDirectory()
        self._locked = False
        self._faults: list[tuple[str, str, int]] = []
        self._healed: trio.Event | None = None

    # --- the Disk protocol ---------------------------------------------------------------------

    def create(self, path: str) -> MemoryFile:
        parent, name = self._parent(path)
        if name in parent.entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._descriptor("create", path)
        self.charge(1, path)
        node = MemoryNode()
        parent.link(name, node)
        return MemoryFile(self, path, node)

    async def open(self, path: str) -> MemoryFile:
        await trio.lowlevel.checkpoint()
        await self._await_descriptor()
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, MemoryDirectory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self.raise_fault("open", path)
        return MemoryFile(self, path, node)

    def exists(self, path: str) -> bool:
        self.raise_fault("exists", path)
        return self._find(path) is not None

    def list(self, path: str) -> list[str]:
        node = self._find(path)
        if node is not None:
            self._descriptor("list", path)
        return sorted(node.entries) if isinstance(node, MemoryDirectory) else []

    def mkdir(self, path: str) -> None:
        node = self._root
        for name in _parts(path):
            child = node.entries.get(name)
            if child is None:
                self.raise_fault("mkdir", path)
                self.charge(1, path)
                child = MemoryDirectory()
                node.link(name, child)
            if not isinstance(child, MemoryDirectory):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            node = child

    def remove(self, path: str) -> None:
        found = self._find(path)
        if isinstance(found, MemoryDirectory):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if found is not None:
            self.raise_fault("remove", path)
            parent, name = self._parent(path)
            parent.unlink(name)

    def remove_tree(self, path: str) -> None:
        if self._find(path) is not None:
            self._descriptor("remove_tree", path)
            parent, name = self._parent(path)
            parent.unlink(name)

    def rename(self, old: str, new: str) -> None:
        parent, old_name = self._parent(old)
        target, new_name = self._parent(new)
        if old_name not in parent.entries:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        taken = target.entries.get(new_name)
        if isinstance(taken, MemoryDirectory) and isinstance(parent.entries[old_name], MemoryNode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), new)
        self.raise_fault("rename", new)
        if new_name not in target.entries:
            self.charge(1, new)  # a directory may have to grow
        if parent is target:
            parent.rename(old_name, new_name)
        else:
            target.link(new_name, parent.entries[old_name])
            parent.unlink(old_name)

    async def sync(self, files: Sequence[File]) -> None:
        handles = []
        for file in files:
            if not isinstance(file, MemoryFile):
                raise TypeError(f"{file!r} is not a file of this disk")
            file.check()
            handles.append((file, file.node.pending()))
        life = self.life
        await self._sync_pause()
        if life != self.life:
            raise SyncFailed(errno.EIO, "the machine went down during a sync")
        for file, changes in handles:
            try:
                self.raise_fault("sync", file.path)
            except OSError:
                file.node.sync_failed(changes)
                raise
            file.node.synced(changes)

    async def fsync_dir(self, path: str) -> None:
        await self._await_descriptor()
        node = self._find(path)
        if not isinstance(node, MemoryDirectory):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self.raise_fault("fsync_dir", path)
        count, life = node.pending(), self.life
        await self._sync_pause()
        if life != self.life:
            raise SyncFailed(errno.EIO, "the machine went down during a sync")
        self.raise_fault("sync", path)
        node.synced(count)

    def free_bytes(self) -> int:
        self.raise_fault("free_bytes", "")
        return self._room()

    def total_bytes(self) -> int:
        return _TOTAL if self.capacity_bytes is None else self.capacity_bytes

    def device_id(self) -> int:
        return 1

    def lock(self) -> None:
        self._descriptor("lock", "LOCK")
        if self._locked:
            raise BlockingIOError(errno.EAGAIN, "data directory is in use by process 1")
        self._locked = True
        self.has_failed = False

    def close(self) -> None:
        self._locked = False

    # --- what a simulator does to it -----------------------------------------------------------

    def kill(self) -> None:
        """The process dies: its handles and its lock are gone, the page cache stays."""
        self.life += 1
        self._locked = False

    def power_cut(self, rng: random.Random) -> None:
        """The machine loses power: only synced state and a random part of the rest survive."""
        self.kill()
        self._root.power_cut(rng)

    def wipe(self) -> None:
        """The disk is replaced by an empty one, on which no fault has been planned."""
        self.kill()
        self._faults.clear()
        self.starves = None
        self._root = MemoryDirectory()

    def fail_next(self, operation: str, *, code: int = errno.EIO, path: str = "") -> None:
        """Let the next ``operation`` (one of :data:`CALLS`) on a path that contains ``path`` raise
        OSError ``code``; once."""
        if operation not in CALLS:
            raise ValueError(f"{operation!r} is no call of a disk: expected one of {CALLS}")
        self._faults.append((operation, path, code))

    def hang(self) -> None:
        """Syncs wait until :meth:`heal`."""
        if self._healed is None:
            self._healed = trio.Event()

    def heal(self) -> None:
        """End a hang, let descriptors be had again and files be written, forget faults that have
        not struck yet."""
        if self._healed is not None:
            self._healed.set()
            self._healed = None
        self.starves = None
        self._faults.clear()
        for _, node in self.files():
            node.is_unwritable = False

    def rot(self, path: str, rng: random.Random, *, start: int = 0, bits: int = 1) -> None:
        """Flip random bits of the file at or behind byte ``start``; found only by reading."""
        node = self._node(path)
        for _ in range(bits):
            node.flip(rng.randrange(start, len(node.content)), 1 << rng.randrange(8))

    def make_unreadable(self, path: str, start: int, end: int) -> None:
        """Let reads of these bytes fail with EIO until they are written anew."""
        self._node(path).unreadable.append((start, end))

    def make_unwritable(self, path: str) -> None:
        """Let every write of the file fail with EIO until :meth:`heal`; reads show what it has."""
        self._node(path).is_unwritable = True

    def lose(self, path: str) -> None:
        """A file, or a directory with all below it, is not there any more; whoever has a file open
        goes on with it. Fine when it is missing."""
        if self._find(path) is not None:
            parent, name = self._parent(path)
            parent.lose(name)

    def node(self, path: str) -> MemoryNode | None:
        """The file of this name, as it is on this disk now."""
        found = self._find(path)
        return found if isinstance(found, MemoryNode) else None

    def will_fail(self, operation: str) -> bool:
        """Whether a planned fault has not struck yet."""
        return any(planned == operation for planned, _, _ in self._faults)

    def files(self) -> Iterator[tuple[str, MemoryNode]]:
        """All files, by path."""
        return self._root.walk()

    def content(self, path: str) -> bytes:
        """What a read of the whole file gives."""
        return bytes(self._node(path).content)

    def overwrite(self, path: str, content: bytes) -> None:
        """Replace a file's bytes behind everybody's back, on the medium as in the cache."""
        self._node(path).overwrite(content)

    # --- inside --------------------------------------------------------------------------------

    def raise_fault(self, operation: str, path: str) -> None:
        """Raise the first planned fault that fits, and forget it."""
        for index, (planned, part, code) in enumerate(self._faults):
            if planned == operation and part in path:
                del self._faults[index]
                kind = SyncFailed if operation in ("sync", "fsync_dir") else OSError
                self.has_failed |= not is_full(OSError(code, ""))
                raise kind(code, os.strerror(code), path)

    def charge(self, count: int, path: str) -> None:
        """Raise ENOSPC when ``count`` more bytes do not fit."""
        if self.capacity_bytes is not None and count > self._room():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def _room(self) -> int:
        return self.total_bytes() - self._root.used_bytes()

    def _descriptor(self, operation: str, path: str) -> None:
        """As :meth:`raise_fault`, for a call that needs a descriptor."""
        if self.starves is not None and self.starves():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        self.raise_fault(operation, path)

    async def _await_descriptor(self) -> None:
        """As the real disk does, for calls that may wait."""
        life = self.life
        while self.starves is not None and self.starves():
            await trio.sleep(_SHORTAGE_S)
            if life != self.life:
                raise OSError(errno.EIO, "the machine went down while a call waited")

    async def _sync_pause(self) -> None:
        self.sync_count += 1
        # Shielded as the real thing: a thread in fdatasync cannot be called back.
        with trio.CancelScope(shield=True):
            while self._healed is not None:
                await self._healed.wait()
            delay = self.sync_delay_s() if self.sync_delay_s is not None else 0.0
            if delay > 0:
                await trio.sleep(delay)
            else:
                await trio.lowlevel.checkpoint()

    def _node(self, path: str) -> MemoryNode:
        node = self._find(path)
        if not isinstance(node, MemoryNode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _find(self, path: str) -> MemoryNode | MemoryDirectory | None:
        node: MemoryNode | MemoryDirectory | None = self._root
        for name in _parts(path):
            if not isinstance(node, MemoryDirectory):
                return None
            node = node.entries.get(name)
        return node

    def _parent(self, path: str) -> tuple[MemoryDirectory, str]:
        *above, name = _parts(path)
        parent = self._find("/".join(above))
        if not isinstance(parent, MemoryDirectory):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return parent, name


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]
