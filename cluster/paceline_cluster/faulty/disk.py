"""The real disk, failing on command. What a fault does is what the kernel does: a failed append
leaves the file as it was, a failed sync fails and the next seems to work again."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

import trio

from paceline_cluster.faulty.control import ControlPage
from paceline_node.env import Bytes, File
from paceline_node.storage.disk import RealDisk, RealFile


class FaultyFile:
    """A :class:`RealFile` whose writes can be made to fail, and the reads of a log that was there
    when it was opened: what is written anew goes to other sectors."""

    def __init__(
        self, real: RealFile, page: ControlPage, files: set[FaultyFile], *, is_new: bool
    ) -> None:
        self.real = real
        self._can_be_bad = not is_new and real.path.endswith(".log")
        self._page = page
        self._files = files
        files.add(self)

    def __repr__(self) -> str:
        return f"<Faulty {self.real!r}>"

    @property
    def path(self) -> str:
        return self.real.path

    def size(self) -> int:
        return self.real.size()

    def append(self, chunks: Sequence[Bytes]) -> int:
        _check_write(self._page, self.path)
        return self.real.append(chunks)

    def pwrite(self, data: Bytes, position: int) -> None:
        _check_write(self._page, self.path)
        self.real.pwrite(data, position)

    def pread(self, size: int, position: int) -> bytes:
        self._check_read(size, position)
        return self.real.pread(size, position)

    async def read(self, size: int, position: int) -> bytes:
        self._check_read(size, position)
        return await self.real.read(size, position)

    def truncate(self, size: int) -> None:
        self.real.truncate(size)

    def fileno(self) -> int | None:
        # The kernel's own copying would not fail where reads do.
        bad = self._can_be_bad and self._page.unreadable is not None
        return None if bad else self.real.fileno()

    def close(self) -> None:
        self._files.discard(self)
        self.real.close()

    def _check_read(self, size: int, position: int) -> None:
        bad = self._page.unreadable if self._can_be_bad else None
        if bad is not None and position < bad[1] and bad[0] < min(position + size, self.size()):
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)


class FaultyDisk(RealDisk):
    """A :class:`RealDisk` whose files and syncs obey a :class:`ControlPage`. Closing it closes all
    its files, as the kernel does when a process dies: a killed node has no time to."""

    def __init__(self, root: str, page: ControlPage) -> None:
        super().__init__(root)
        self._page = page
        self._files: set[FaultyFile] = set()

    def create(self, path: str) -> FaultyFile:  # type: ignore[override]  # both are a File
        return FaultyFile(super().create(path), self._page, self._files, is_new=True)

    async def open(self, path: str) -> FaultyFile:  # type: ignore[override]  # both are a File
        return FaultyFile(await super().open(path), self._page, self._files, is_new=False)

    async def sync(self, files: Sequence[File]) -> None:
        if self._page.sync_failures:
            self._page.sync_failures -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self._page.sync_delay_s:
            await trio.sleep(self._page.sync_delay_s)
        await super().sync([_real(file) for file in files])

    def close(self) -> None:
        super().close()
        for file in tuple(self._files):
            file.close()

    def free_bytes(self) -> int:
        pretended = self._page.free_bytes
        return super().free_bytes() if pretended is None else pretended


def _check_write(page: ControlPage, path: str) -> None:
    number = page.write_errno
    if number:
        raise OSError(number, os.strerror(number), path)


def _real(file: File) -> File:
    return file.real if isinstance(file, FaultyFile) else file
