"""A segment's file as the rest of the node reads it: bytes that the disk cannot give are damage.

A read that fails with EIO says nothing about the disk as a whole; the bytes next to it may be fine,
and other replicas have those. So it is no reason to end the node, unlike a failed write or sync,
which leaves the node ignorant of what it holds (DESIGN 2.2). Every read of a segment goes
through :class:`LogFile`. It goes on where a read gave less than there is (so the kernel answers one
that reaches into a bad page), and turns a failure into :class:`Unreadable`, a CorruptMessage that
all readers know how to live with, and tells the log's owner, who has the segment scrubbed. The
scrub, and opening, read through :class:`Salvage`: page by page around what cannot be read. A file
that somebody else has cut has lost the bytes behind its new end.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from paceline.errors import CorruptMessage
from paceline_node.env import Bytes, Disk, File

_UNREADABLE = frozenset(
    getattr(errno, name)
    for name in ("EIO", "EISDIR", "ENODATA", "EBADMSG", "EUCLEAN", "EILSEQ", "EREMOTEIO")
    if hasattr(errno, name)
)
_PAGE = 4096
_NOWHERE = 1 << 63
_FILLER = b"\xee"
"""Stands for unreadable bytes: no part of a batch, and not what an unwritten sector holds."""


def is_unreadable(error: OSError) -> bool:
    """Whether a failed *read* says that the medium lost these bytes. (EIO for want of a whole
    device looks the same; then the next write fails.)"""
    return error.errno in _UNREADABLE


class Unreadable(CorruptMessage):
    """The disk cannot give these bytes of a log."""


async def open_file(disk: Disk, path: str) -> File:
    """Open a file; one that the disk cannot give is like one whose bytes it cannot give. Raises
    Unreadable, FileNotFoundError, OSError."""
    try:
        return await disk.open(path)
    except OSError as error:
        if not is_unreadable(error):
            raise
        raise _lost(path, error) from error


def list_directory(disk: Disk, path: str) -> list[str]:
    """The names in a directory. Raises Unreadable where the disk cannot give them, OSError."""
    try:
        return disk.list(path)
    except OSError as error:
        if not is_unreadable(error):
            raise
        raise _lost(path, error) from error


def _lost(path: str, error: OSError) -> Unreadable:
    return Unreadable(f"{path}: cannot be opened ({error.strerror})")


class LogFile:
    """``raw``, with failed reads as :class:`Unreadable`. ``on_unreadable`` is told of each, before
    it is raised; it must be quick, and must not read."""

    __slots__ = ("on_unreadable", "raw")

    def __init__(self, raw: File) -> None:
        self.raw = raw
        self.on_unreadable: Callable[[Unreadable], None] | None = None

    @property
    def path(self) -> str:
        return self.raw.path

    def size(self) -> int:
        return self.raw.size()

    def append(self, chunks: Sequence[Bytes]) -> int:
        return self.raw.append(chunks)

    def pwrite(self, data: Bytes, position: int) -> None:
        self.raw.pwrite(data, position)

    def pread(self, size: int, position: int) -> bytes:
        try:
            data = self.raw.pread(size, position)
            while left := _left(self.raw, data, size, position):
                data += (more := self.raw.pread(left, position + len(data)))
                if not more:
                    raise self._judged(_ends(position + len(data)), size, position)
            return data
        except OSError as error:
            if not is_unreadable(error):
                raise
            raise self._judged(error.strerror, size, position) from error

    async def read(self, size: int, position: int) -> bytes:
        try:
            data = await self.raw.read(size, position)
            while left := _left(self.raw, data, size, position):
                data += (more := await self.raw.read(left, position + len(data)))
                # The log itself may have been cut there meanwhile.
                if not more and _left(self.raw, data, size, position):
                    raise self._judged(_ends(position + len(data)), size, position)
            return data
        except OSError as error:
            if not is_unreadable(error):
                raise
            raise self._judged(error.strerror, size, position) from error

    def truncate(self, size: int) -> None:
        self.raw.truncate(size)

    def fileno(self) -> int | None:
        return self.raw.fileno()

    def close(self) -> None:
        self.raw.close()

    def _judged(self, reason: str | None, size: int, position: int) -> Unreadable:
        text = f"{self.path}: bytes {position}..{position + size - 1} cannot be read"
        found = Unreadable(f"{text} ({reason})")
        if self.on_unreadable is not None:
            self.on_unreadable(found)
        return found


def _left(file: File, data: bytes, size: int, position: int) -> int:
    """Bytes that a read has still to give. One that comes upon a bad page in its middle gives what
    lies before it and fails nowhere; only the next one tells. A handle knows how long its file is:
    one that was cut by its log while it was read, before where that began, has none left."""
    if len(data) >= size:
        return 0
    return max(0, min(position + size, file.size()) - position - len(data))


def _ends(position: int) -> str:
    return f"the file ends at byte {position}"


def raw(file: File) -> File:
    """The disk's own file, as :meth:`Disk.sync` wants it."""
    return file.raw if isinstance(file, LogFile) else file


class Salvage:
    """Reads what can be read of a file, a page at a time where a larger read fails; filler, which
    no checksum holds for, stands for the rest."""

    def __init__(self, file: File) -> None:
        self._file = raw(file)
        self._lost: dict[int, str] = {}
        self._reason = ""
        self._ends_at = _NOWHERE

    @property
    def path(self) -> str:
        return self._file.path

    async def read(self, size: int, position: int) -> bytes:
        """As :meth:`File.read`. Raises OSError for other failures than unreadable bytes."""
        data = await self._try(size, position)
        if data is not None:
            return data
        pieces = []
        end = min(position + size, self._file.size())
        while position < end:
            page = position // _PAGE
            count = min(end, (page + 1) * _PAGE) - position
            data = await self._try(count, position)
            if data is None:
                self._lost.setdefault(page, self._reason)
                data = _FILLER * count
            pieces.append(data)
            position += count
        return b"".join(pieces)

    async def _try(self, size: int, position: int) -> bytes | None:
        """The bytes, or None where one of them cannot be read."""
        try:
            data = await self._file.read(size, position)
            while left := _left(self._file, data, size, position):
                data += (more := await self._file.read(left, position + len(data)))
                if not more and (left := _left(self._file, data, size, position)):
                    self._ends_at = min(self._ends_at, position + len(data))
                    data += _FILLER * left
            return data
        except OSError as error:
            if not is_unreadable(error):
                raise
            self._reason = error.strerror or "unreadable"
            return None

    def why(self, start: int, end: int) -> str | None:
        """What the disk said of unreadable bytes within ``start..end``; None: all were read."""
        for page, reason in self._lost.items():
            if page * _PAGE < end and start < (page + 1) * _PAGE:
                return f"cannot be read ({reason})"
        if self._ends_at < end:
            return f"cannot be read ({_ends(self._ends_at)})"
        return None
