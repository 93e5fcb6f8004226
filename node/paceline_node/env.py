"""Everything a node may touch of the outside world, as constructor arguments.

A node gets one :class:`Env`: clock, randomness, disk, network, threads, exit. Production passes
the real ones (``storage/disk.py``, ``net/network.py``, :class:`RealHost`); the simulator passes a
virtual clock, a seeded generator, in-memory disks that lose unsynced bytes and an in-memory
network (DESIGN 1.1). No other module may call ``time``, module-level
``random``, ``os`` file functions or ``trio.open_tcp_*``.

Paths are ``str`` and relative to the data directory.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import NoReturn, Protocol, TypeVar
from uuid import UUID

import trio

from paceline.values import dataclass
from paceline_node.cluster_time import ClusterTime
from paceline_node.threads import in_thread

T = TypeVar("T")
Bytes = bytes | bytearray | memoryview

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE})


def is_full(error: OSError) -> bool:
    """Whether an operation of :class:`File` or :class:`Disk` was undone for want of room, or of
    file descriptors, and may be tried again once there are (DESIGN 1.2). Never
    true of a failed sync: what it was to keep may be gone, whatever the reason."""
    return error.errno in _FULL


class SyncFailed(OSError):
    """A sync of a file or a directory failed: what it was to keep may be gone."""


class ReadableFile(Protocol):
    """What may be sent to others: a file of the data directory, or what stands for one that lies
    elsewhere. All methods raise OSError."""

    @property
    def path(self) -> str: ...

    def pread(self, size: int, position: int) -> bytes | None:
        """As :meth:`read`, inline; None where there is no reading without waiting."""

    async def read(self, size: int, position: int) -> bytes:
        """Up to ``size`` bytes at ``position``: for large or cold reads. Of the data directory's
        files a thread reads."""

    def fileno(self) -> int | None:
        """Descriptor for ``sendfile``, or None where there is none (in-memory disks)."""


class File(ReadableFile, Protocol):
    """One open file of the data directory.

    Reads and writes that may sit between a role check and an append are synchronous and go to the
    page cache (DESIGN 1.2); syncing (:meth:`Disk.sync`) and large reads are async and run in
    threads. All methods raise OSError.
    """

    def size(self) -> int:
        """Current length in bytes."""

    def append(self, chunks: Sequence[Bytes]) -> int:
        """Write all chunks at the end, in order; return the position of the first byte.

        On ENOSPC or a short write the file is truncated back to its former length before the
        OSError is raised, so no half-written batch stays behind.
        """

    def pwrite(self, data: Bytes, position: int) -> None:
        """Overwrite bytes at ``position``; may extend the file."""

    def pread(self, size: int, position: int) -> bytes:
        """Inline, never None: for reads of at most about 1 MiB that the page cache likely holds."""

    def truncate(self, size: int) -> None:
        """Cut or extend to ``size`` bytes."""

    def close(self) -> None:
        """Release the file; idempotent; does not sync."""


class Disk(Protocol):
    """The data directory. ``create``, ``remove``, ``rename``, ``list`` and ``exists`` are single
    small system calls and synchronous; what may take long is async."""

    def create(self, path: str) -> File:
        """Create a new file (fails with FileExistsError) and open it."""

    async def open(self, path: str) -> File:
        """Open an existing file for reading and writing (FileNotFoundError)."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory of this name. Raises OSError where the disk does not
        tell: never False for want of an answer."""

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty when it does not exist."""

    def mkdir(self, path: str) -> None:
        """Create a directory and its parents; fine when it exists."""

    def remove(self, path: str) -> None:
        """Unlink a file; fine when it is missing."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all below it; fine when it is missing."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory, replacing a file at ``new``."""

    async def sync(self, files: Sequence[File]) -> None:
        """``fdatasync`` every file, in one thread hop: return when all bytes written to them before
        the call are on stable storage.

        After an OSError no file of the group may be used again: the kernel may have dropped the
        pages, so a second sync may lie (storage/DESIGN 2.2). Its errno is EIO even where
        the disk ran out of room while writing back.
        """

    async def fsync_dir(self, path: str) -> None:
        """Make creations, renames and removals in ``path`` durable."""

    def free_bytes(self) -> int:
        """Bytes an unprivileged process may still write to this file system."""

    def total_bytes(self) -> int:
        """Size of this file system."""

    def device_id(self) -> int:
        """``st_dev`` of the data directory (part of the boot identity)."""

    def lock(self) -> None:
        """Take the exclusive lock of the directory for the life of this object.

        Raises BlockingIOError when another process holds it; its text names the holder's pid.
        """

    def close(self) -> None:
        """Release the lock."""


class Network(Protocol):
    """Byte streams to addresses ``host:port``."""

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        """Open a stream. Raises OSError; ConnectionRefusedError proves that nobody listens."""

    async def listen(self, host: str, port: int) -> list[trio.abc.Listener[trio.abc.Stream]]:
        """Bind; port 0 picks a free one. Raises OSError (EADDRINUSE, EACCES...)."""

    def bound_port(self, listener: trio.abc.Listener[trio.abc.Stream]) -> int:
        """The port a listener of :meth:`listen` is bound to."""


class RunBlocking(Protocol):
    """:meth:`Host.run_blocking`, for who needs nothing else of the host."""

    async def __call__(self, work: Callable[[], T]) -> T: ...


class Host(Protocol):
    """Clock, threads, process."""

    def now(self) -> float:
        """Monotonic seconds (trio's clock). All timeouts use it."""

    @property
    def stopwatch(self) -> Callable[[], float] | None:
        """Seconds, to measure how long a task keeps the loop; None where that means nothing."""

    def wall_ms(self) -> int:
        """Wall-clock time in ms since 1970, for record timestamps only; it may jump."""

    def boot_id(self) -> str:
        """Identity of this kernel boot; empty where the system has none."""

    def pid(self) -> int: ...

    def environ(self) -> dict[str, str]: ...

    async def run_blocking(self, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread (CPU-heavy codecs, slow system calls); not abandoned on
        cancellation."""

    def apart(self) -> RunBlocking:
        """As :meth:`run_blocking`, in one more thread: for work that strangers can ask for, which
        keeps nothing else waiting then."""

    def exit(self, code: int) -> NoReturn:
        """End the process at once, without clean-up; for a node that must not act any more."""

    def buggify(self, site: str) -> bool:
        """Whether a fault site fires; always False outside simulation (DESIGN 1.4)."""


@dataclass(frozen=True, slots=True)
class Env:
    """The outside world of one node."""

    host: Host
    disk: Disk
    net: Network
    rng: random.Random
    times: ClusterTime = field(default_factory=ClusterTime)
    waits: list[str] = field(default_factory=list)
    """What this node waits for just now, for want of room (``storage/waiting_for_space.py``)."""

    def now(self) -> float:
        return self.host.now()

    def expiry_ms(self) -> int:
        """Wall-clock time by which to judge what has expired; 0: nothing yet."""
        return self.times.expiry_ms(self.host.wall_ms(), self.now())

    def cluster_ms(self) -> int:
        """Wall-clock time by most clocks of the cluster; by this node's while they are unknown."""
        known = self.times.cluster_ms(self.now())
        return self.host.wall_ms() if known is None else known

    def stamp_ms(self) -> int:
        """Wall-clock time for records."""
        return self.times.stamp_ms(self.host.wall_ms(), self.now())

    def uuid(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128), version=4)


_THREADS = 2
"""That do blocking work at a time. Most of it runs Python, of which one thread at a time does: more
of them make nothing quicker, and the loop wait for each."""


class RealHost:
    """The machine this process runs on."""

    def __init__(self, *, boot_id_path: str = "/proc/sys/kernel/random/boot_id") -> None:
        self._boot_id_path = boot_id_path
        self._threads = trio.CapacityLimiter(_THREADS)

    def now(self) -> float:
        return trio.current_time()

    @property
    def stopwatch(self) -> Callable[[], float] | None:
        return time.perf_counter

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def boot_id(self) -> str:
        try:
            with open(self._boot_id_path, encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""

    def pid(self) -> int:
        return os.getpid()

    def environ(self) -> dict[str, str]:
        return dict(os.environ)

    async def run_blocking(self, work: Callable[[], T]) -> T:
        return await in_thread(work, self._threads)

    def apart(self) -> RunBlocking:
        thread = trio.CapacityLimiter(1)

        async def run(work: Callable[[], T]) -> T:
            return await in_thread(work, thread)

        return run

    def exit(self, code: int) -> NoReturn:
        os._exit(code)

    def buggify(self, site: str) -> bool:
        return False
