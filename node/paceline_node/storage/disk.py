"""The data directory on a real file system: the production :class:`~paceline_node.env.Disk`.

What belongs here: system calls and nothing else. This is one of the few modules that may call
``os`` on files (env.py says why). Formats, recovery and policy live beside it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from functools import partial

import trio

from paceline_node.env import Bytes, File, SyncFailed
from paceline_node.storage.descriptors import Descriptors, is_short
from paceline_node.storage.sync_threads import THREADS, SyncThreads
from paceline_node.threads import in_thread

_IOV_MAX = 1024  # buffers in one pwritev (Linux UIO_MAXIOV; macOS has the same)
_READERS = 8  # threads for large or cold reads
_PID_BYTES = 10
_SHORTAGE_S = 0.1  # between two looks for a descriptor, when there is none


class RealFile:
    """One open file. See :class:`paceline_node.env.File` for the contract.

    It may rest without a descriptor (``descriptors.py``). A descriptor outlives :meth:`close` while
    a thread still works on it: closing it under an ``fdatasync`` could sync, or ``sendfile`` send,
    whatever file gets the number next.
    """

    def __init__(
        self,
        path: str,
        where: str,
        descriptor: int,
        readers: trio.CapacityLimiter,
        descriptors: Descriptors,
    ) -> None:
        self._path = path
        self.where = where
        self.used = True
        self._fd = descriptor
        self._readers = readers
        self._descriptors = descriptors
        self._size = os.fstat(descriptor).st_size
        self._pins = 0
        self._closed = False
        self._kept = False
        self.writes = 0
        """Counts what changes the file; ``synced`` is the count at the last sync."""
        self.synced = 0
        descriptors.opened(self)

    def __repr__(self) -> str:
        return f"<RealFile {self._path} {self._size} bytes>"

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return self._size

    def append(self, chunks: Sequence[Bytes]) -> int:
        self._descriptor()  # a closed file has nothing to undo
        self.writes += 1
        start = self._size
        try:
            end = self._write_all(chunks, start)
        except OSError as error:
            self._cut_back(start, error)
            raise
        self._size = end
        return start

    def pwrite(self, data: Bytes, position: int) -> None:
        self.writes += 1
        end = self._write_all([data], position)
        self._size = max(self._size, end)

    def pread(self, size: int, position: int) -> bytes:
        return _pread(self._descriptor(), size, position)

    async def read(self, size: int, position: int) -> bytes:
        descriptor = self.pin()
        try:
            return await in_thread(partial(_pread, descriptor, size, position), self._readers)
        finally:
            self.unpin()

    def truncate(self, size: int) -> None:
        self.writes += 1
        os.ftruncate(self._descriptor(), size)
        self._size = size

    def fileno(self) -> int | None:
        """The descriptor. Ask again after every await: OSError once the file is closed."""
        return self._descriptor()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._descriptors.closed(self)
            self._give_up()

    def pin(self) -> int:
        """Keep the descriptor open until :meth:`unpin`; for work in threads."""
        descriptor = self._descriptor()
        self._pins += 1
        return descriptor

    def unpin(self) -> None:
        self._pins -= 1
        if self._closed:
            self._give_up()

    def rest(self) -> bool:
        """Give the descriptor up while nobody uses it; whether it could."""
        if self._kept or self._pins or self.writes != self.synced:
            return False
        self._give_up()
        return True

    def keep(self) -> None:
        """Have a descriptor and keep it: the name goes. Without any left, readers get an error."""
        with contextlib.suppress(OSError):
            self._descriptor()
        self._kept = True

    def _give_up(self) -> None:
        if self._fd >= 0 and self._pins == 0:
            descriptor, self._fd = self._fd, -1
            self._descriptors.close(descriptor)

    def _descriptor(self) -> int:
        self.used = True
        if self._fd < 0 or self._closed:
            self._wake()
        return self._fd

    def _wake(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "file is closed", self._path)
        if self._kept:
            raise OSError(errno.EBADF, "file is gone", self._path)
        self._fd = self._descriptors.open(self.where, os.O_RDWR)
        self._descriptors.has(self)

    def _write_all(self, chunks: Sequence[Bytes], position: int) -> int:
        """Write all chunks at ``position``; return the end. Short writes are continued."""
        descriptor = self._descriptor()
        if len(chunks) == 1:  # the usual append: one produce request or one fetched slice
            data = chunks[0]
            written = os.pwrite(descriptor, data, position)
            if written == len(data):
                return position + written
            waiting = [memoryview(data)[written:]]
            position += written
        else:
            waiting = [memoryview(chunk) for chunk in chunks if len(chunk)]
        while waiting:
            written = os.pwritev(descriptor, waiting[:_IOV_MAX], position)
            if written == 0:
                raise OSError(errno.EIO, "the file system wrote nothing", self._path)
            position += written
            waiting = _without(waiting, written)
        return position

    def _cut_back(self, size: int, cause: OSError) -> None:
        """Remove what a failed append left. A file that cannot even be cut is broken: EIO, so that
        the caller does not take it for a full disk (DESIGN 2.2)."""
        try:
            os.ftruncate(self._descriptor(), size)
        except OSError as error:
            raise OSError(
                errno.EIO, f"cannot undo a failed append ({error.strerror})", self._path
            ) from cause


def _without(chunks: list[memoryview], count: int) -> list[memoryview]:
    """``chunks`` less their first ``count`` bytes."""
    for index, chunk in enumerate(chunks):
        if count < len(chunk):
            return [chunk[count:], *chunks[index + 1 :]]
        count -= len(chunk)
    return []


class RealDisk:
    """A directory of the machine's file system. ``close`` ends its threads and frees its lock."""

    def __init__(self, root: str, *, most_open: int = 1 << 30, reserve: int = 0) -> None:
        """``most_open`` bounds the files that have a descriptor at a time, ``reserve`` keeps some
        for what is short."""
        self.root = root
        os.makedirs(root, exist_ok=True)
        self._syncs = SyncThreads("paceline")
        self._readers = trio.CapacityLimiter(_READERS)
        self._lock_fd: int | None = None
        self._descriptors = Descriptors(most_open, reserve=reserve)

    def __repr__(self) -> str:
        return f"<RealDisk {self.root}>"

    def create(self, path: str) -> RealFile:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
        return self._file(path, self._descriptors.open(self._at(path), flags))

    async def open(self, path: str) -> RealFile:
        # Inline: opening costs a few microseconds on a local disk, a thread hop seventy.
        await trio.lowlevel.checkpoint()
        return self._file(path, await self._open_patiently(path, os.O_RDWR))

    def _file(self, path: str, descriptor: int) -> RealFile:
        return RealFile(path, self._at(path), descriptor, self._readers, self._descriptors)

    async def _open_patiently(self, path: str, flags: int) -> int:
        return await self._patiently(path, partial(self._descriptors.open, self._at(path), flags))

    async def _patiently(self, path: str, get: Callable[[], int]) -> int:
        """A descriptor, waited for as long as there is none."""
        told = False
        while True:
            try:
                return get()
            except OSError as error:
                if not is_short(error):
                    raise
                if not told:
                    _tell_of_shortage(path, error)
                    told = True
            await trio.sleep(_SHORTAGE_S)

    def exists(self, path: str) -> bool:
        # Not os.path.exists: that says no where the disk gives no answer.
        try:
            os.stat(self._at(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def list(self, path: str) -> list[str]:
        try:
            descriptor = self._descriptors.open(self._at(path), os.O_RDONLY | os.O_DIRECTORY)
        except (FileNotFoundError, NotADirectoryError):
            return []
        try:
            return sorted(os.listdir(descriptor))
        finally:
            self._descriptors.close(descriptor)

    def mkdir(self, path: str) -> None:
        os.makedirs(self._at(path), exist_ok=True)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._descriptors.going(self._at(path))
            os.unlink(self._at(path))

    def remove_tree(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._descriptors.going(self._at(path))
            while True:
                try:
                    shutil.rmtree(self._at(path))
                    return
                except OSError as error:
                    if not (is_short(error) and self._descriptors.make_room()):
                        raise

    def rename(self, old: str, new: str) -> None:
        self._descriptors.going(self._at(new))
        os.rename(self._at(old), self._at(new))
        self._descriptors.renamed(self._at(old), self._at(new))

    async def sync(self, files: Sequence[File]) -> None:
        pinned: list[RealFile] = []
        try:
            for file in files:
                if not isinstance(file, RealFile):
                    raise TypeError(f"{file!r} is not a file of this disk")
                await self._patiently(file.path, file.pin)
                pinned.append(file)
            descriptors = [file._fd for file in pinned]
            writes = [file.writes for file in pinned]
            lanes = min(THREADS, len(descriptors))
            parts = [partial(_sync_all, descriptors[lane::lanes]) for lane in range(lanes)]
            await self._syncs.run(parts)
            for file, count in zip(pinned, writes, strict=True):
                file.synced = max(file.synced, count)
        except OSError as error:
            raise _sync_failed(error) from error
        finally:
            for file in pinned:
                file.unpin()

    async def fsync_dir(self, path: str) -> None:
        descriptor = await self._open_patiently(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            await self._syncs.run([partial(os.fsync, descriptor)])
        except OSError as error:
            raise _sync_failed(error) from error
        finally:
            self._descriptors.close(descriptor)

    def free_bytes(self) -> int:
        stats = os.statvfs(self.root)
        return stats.f_bavail * stats.f_frsize

    def total_bytes(self) -> int:
        stats = os.statvfs(self.root)
        return stats.f_blocks * stats.f_frsize

    def device_id(self) -> int:
        return os.stat(self.root).st_dev

    def lock(self) -> None:
        descriptor = os.open(self._at("LOCK"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise
            raise BlockingIOError(
                errno.EAGAIN,
                f"data directory {self.root} is in use by process {holder or 'unknown'}",
            ) from None
        self._lock_fd = descriptor
        # It only says who holds it: on a full disk there may be no room for that.
        with contextlib.suppress(OSError):
            os.pwrite(descriptor, f"{os.getpid():<{_PID_BYTES}}\n".encode("ascii"), 0)

    def close(self) -> None:
        self._syncs.close()
        self._descriptors.end()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def _at(self, path: str) -> str:
        return os.path.join(self.root, path) if path else self.root


def _pread(descriptor: int, size: int, position: int) -> bytes:
    """As many bytes as there are: a read may give less before the end, which would look like a file
    that somebody cut."""
    data = os.pread(descriptor, size, position)
    while data and len(data) < size:
        more = os.pread(descriptor, size - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


def _sync_failed(error: OSError) -> SyncFailed:
    """A failed sync as callers see it: never for want of room alone, which could be waited for."""
    return SyncFailed(errno.EIO, f"sync failed ({error.strerror})", error.filename)


def _sync_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        _fdatasync(descriptor)


# macOS has no fdatasync; its fsync is what Python offers there.
_fdatasync = getattr(os, "fdatasync", os.fsync)


def _tell_of_shortage(path: str, error: OSError) -> None:
    # Loaded when it is needed: the command that makes directories writes no log, and starts sooner.
    import structlog

    log = structlog.get_logger(component="disk")
    log.error("waiting for a file descriptor", path=path, reason=str(error))
