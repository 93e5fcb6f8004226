"""Two copies of the metadata directory, and one made good by the other.

What a voter has promised must survive the loss, the rot and the age of any file, and of a whole
directory. So everything under ``metadata/`` is kept a second time, byte for byte, under
``metadata.copy/``: written by the same calls, made durable by the same syncs, before anything is
promised. :class:`TwoCopies` is the disk that does so, for all that write there.

When the directory is opened, :func:`mend` compares the two and gives each file the better content:

* hard state: the newer one (a term and a vote are never taken back);
* snapshot: the one whose checksum holds;
* log segment: its frames one after the other, each from whichever copy holds it. Segments are only
  appended to and their numbers are not used again, so an older state of one is a beginning of it;
* a file that one copy lacks: the other's. A removed one may come back by this, which harms as
  little as a crash between removing two.

One bad copy is mended. Where both are bad in the same place the member no longer knows what it
promised (``MetadataCorrupt``). Bytes that cannot be read are no torn write: an end of the log that
neither copy can show is damage.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Sequence
from typing import NamedTuple

from paceline.errors import CorruptMessage, RemoteProtocolError
from paceline_node.controller import raft_log_segment
from paceline_node.controller.raft_hard_state import HARD_STATE, decode_hard_state
from paceline_node.controller.raft_snapshot import decode_snapshot
from paceline_node.env import Bytes, Disk, File
from paceline_node.storage import checkpoint
from paceline_node.storage.obstructing_entries import make_way

COPY_SUFFIX = ".copy"
UNREADABLE_SUFFIX = ".unreadable"
SNAPSHOT_SUFFIX = ".snapshot"
_SECTOR = 512
_FILLER = b"\xee"
"""Stands for bytes that cannot be read: no part of a frame."""
LOST = frozenset(
    {
        errno.ENOENT,
        errno.EIO,
        errno.EISDIR,
        errno.EBADMSG,
        getattr(errno, "EUCLEAN", errno.EIO),
    }
)
"""Errors of a file that is not there, or as good as not."""


def copy_of(path: str) -> str:
    """Where the second copy of the directory ``path`` lies."""
    return path + COPY_SUFFIX


# --- writing both -------------------------------------------------------------------------------


class _Pair:
    """One file in both directories."""

    def __init__(self, one: File, other: File) -> None:
        self.files = (one, other)

    @property
    def path(self) -> str:
        return self.files[0].path

    def size(self) -> int:
        return self.files[0].size()

    def append(self, chunks: Sequence[Bytes]) -> int:
        """As of a file: in both, or, after an OSError, in neither."""
        one, other = self.files
        start = one.append(chunks)
        try:
            other.append(chunks)
        except OSError:
            one.truncate(start)
            raise
        return start

    def pwrite(self, data: Bytes, position: int) -> None:
        for file in self.files:
            file.pwrite(data, position)

    def pread(self, size: int, position: int) -> bytes:
        return self.files[0].pread(size, position)

    async def read(self, size: int, position: int) -> bytes:
        return await self.files[0].read(size, position)

    def truncate(self, size: int) -> None:
        for file in self.files:
            file.truncate(size)

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        for file in self.files:
            file.close()


class TwoCopies:
    """A disk on which whatever is done below ``path`` is done to its copy, too. Anything else is
    left to the disk it wraps."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path

    def _other(self, path: str) -> str:
        assert path == self._path or path.startswith(f"{self._path}/"), path
        return copy_of(self._path) + path[len(self._path) :]

    def create(self, path: str) -> File:
        one = self._disk.create(path)
        try:
            return _Pair(one, self._disk.create(self._other(path)))
        except OSError:
            one.close()
            self._disk.remove(path)
            raise

    async def open(self, path: str) -> File:
        one = await self._disk.open(path)
        try:
            return _Pair(one, await self._disk.open(self._other(path)))
        except OSError:
            one.close()
            raise

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def list(self, path: str) -> list[str]:
        return self._disk.list(path)

    def mkdir(self, path: str) -> None:
        self._disk.mkdir(path)
        self._disk.mkdir(self._other(path))

    def remove(self, path: str) -> None:
        self._disk.remove(path)
        self._disk.remove(self._other(path))

    def remove_tree(self, path: str) -> None:
        self._disk.remove_tree(path)
        self._disk.remove_tree(self._other(path))

    def rename(self, old: str, new: str) -> None:
        self._disk.rename(old, new)
        self._disk.rename(self._other(old), self._other(new))

    async def sync(self, files: Sequence[File]) -> None:
        each: list[File] = []
        for file in files:
            each.extend(file.files if isinstance(file, _Pair) else (file,))
        await self._disk.sync(each)

    async def fsync_dir(self, path: str) -> None:
        await self._disk.fsync_dir(path)
        await self._disk.fsync_dir(self._other(path))

    def free_bytes(self) -> int:
        return self._disk.free_bytes()

    def total_bytes(self) -> int:
        return self._disk.total_bytes()

    def device_id(self) -> int:
        return self._disk.device_id()

    def lock(self) -> None:
        self._disk.lock()

    def close(self) -> None:
        self._disk.close()


# --- mending ------------------------------------------------------------------------------------


async def mend(disk: Disk, path: str) -> tuple[str, ...]:
    """Make both directories equal, each file as good as the two allow; the paths of what was
    written anew. What is bad in both is left for the reader to judge. Raises CorruptMessage where
    he could not: neither copy of a segment can be read to its end. Raises OSError."""
    copy = copy_of(path)
    for directory in (path, copy):
        _give_up_unreadable(disk, directory)
        disk.mkdir(directory)
    await disk.fsync_dir(checkpoint.parent(path))
    mended: list[str] = []
    for name in sorted({*disk.list(path), *disk.list(copy)}):
        places = (f"{path}/{name}", f"{copy}/{name}")
        if name.endswith(checkpoint.TEMPORARY):
            for place in places:
                make_way(disk, place)
            continue
        found = [await _read(disk, place) for place in places]
        if found[0] == found[1] and found[0] is not None and not found[0].lost_to:
            continue
        contents = [None if each is None else each.data for each in found]
        if name.endswith(raft_log_segment.SEGMENT_SUFFIX):
            chosen = better(name, *contents)
            whole = raft_log_segment.whole_bytes(chosen)
            if all(each is None or each.lost_to > whole for each in found):
                raise CorruptMessage(f"{places[0]}: it cannot be read beyond byte {whole}")
        else:
            contents = [None if each is None or each.lost_to else each.data for each in found]
            if contents == [None, None]:
                continue
            chosen = better(name, *contents)
        for place, each in zip(places, found, strict=True):
            if each is None or each.lost_to or each.data != chosen:
                await checkpoint.replace(disk, place, chosen)
                mended.append(place)
    return tuple(mended)


def _give_up_unreadable(disk: Disk, directory: str) -> None:
    """A directory that cannot be listed is as good as lost."""
    try:
        disk.list(directory)
    except OSError as error:
        if error.errno not in LOST:
            raise
        disk.remove_tree(directory + UNREADABLE_SUFFIX)
        disk.rename(directory, directory + UNREADABLE_SUFFIX)


class _Found(NamedTuple):
    """A file's bytes; filler stands for those that cannot be read, the last of which lies before
    ``lost_to``."""

    data: bytes
    lost_to: int


async def _read(disk: Disk, path: str) -> _Found | None:
    """None for what is not there."""
    try:
        file = await disk.open(path)
    except OSError as error:
        if error.errno in LOST:
            return None
        raise
    with contextlib.closing(file):
        size = file.size()
        data = await _piece(file, size, 0)
        if data is not None:
            return _Found(data, 0)
        pieces, lost_to = [], 0
        for at in range(0, size, _SECTOR):
            count = min(_SECTOR, size - at)
            piece = await _piece(file, count, at)
            if piece is None:
                piece, lost_to = count * _FILLER, at + count
            pieces.append(piece)
        return _Found(b"".join(pieces), lost_to)


async def _piece(file: File, count: int, position: int) -> bytes | None:
    """None where the disk cannot give all of it: it gives what lies before, or fails."""
    try:
        data = await file.read(count, position)
    except OSError as error:
        if error.errno in LOST:
            return None
        raise
    return data if len(data) == count else None


def better(name: str, one: bytes | None, other: bytes | None) -> bytes:
    """What the file ``name`` should hold, of two contents that differ."""
    if one is None or other is None:
        return (one if other is None else other) or b""
    if name.endswith(raft_log_segment.SEGMENT_SUFFIX):
        return raft_log_segment.merged(one, other)
    if name == HARD_STATE:
        return max((one, other), key=_age_of_hard_state)
    if name.endswith(SNAPSHOT_SUFFIX):
        return max((one, other), key=_holds_snapshot)
    return one


def _age_of_hard_state(content: bytes) -> tuple[int, bool, int]:
    try:
        kept = decode_hard_state(content)
    except CorruptMessage:
        return (-1, False, 0)
    return (kept.state.term, kept.state.vote is not None, kept.segment)


def _holds_snapshot(content: bytes) -> bool:
    try:
        decode_snapshot(content, None)
    except RemoteProtocolError:
        return False
    return True
