"""``metadata.mark``: how far this member's promises went, outside both copies of them, and how far
it knew the log to be committed.

Both copies of the metadata directory may be as they were some time ago: restored, or on a disk that
lies. They agree then, and only something else can tell that a later vote, or entries that were
acknowledged, are missing. Segments are only appended to and their numbers are not used again, so
(number, synced bytes) only grows; so does the term.

One slot of 64 bytes, overwritten in place after each sync and before anybody is told; big-endian,
each CRC-32C over all before it, the rest zeros::

    0            8            16           24        28         44        48           56        60
    +------------+------------+------------+---------+----------+---------+------------+---------+--
    | i64 term   | i64 newest | i64 synced | i32     | its      | u32     | i64        | u32     |
    |            | segment    | bytes      | vote    | directory| crc     | committed  | crc     |
    +------------+------------+------------+---------+----------+---------+------------+---------+--

The vote is -1 for none. Everything up to ``committed`` is committed, and durable here: no leader
may have it replaced (RAFT 2.7). Earlier versions wrote zeros there. It costs no sync of its own:
after a kill the page cache has it; for a power cut it rides in one of :data:`RIDE` syncs of the
log. An older one says less and nothing wrong, as does one that is missing or rotten.

A second slot says how far the files of the logs, which know nothing of all this, had counted their
syncs (storage/DESIGN 6.2); zeros behind the CRC. News of it rides in the next sync of the log.
Earlier versions do not read it::

    64           72        76
    +------------+---------+--
    | i64 syncs  | u32 crc |
    +------------+---------+--
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Self

from paceline.types import NodeId
from paceline.wire.checksum import crc32c
from paceline_node.controller.raft_copies import LOST
from paceline_node.controller.raft_types import HardState, MemberId
from paceline_node.env import Disk, File, is_full
from paceline_node.storage import checkpoint
from paceline_node.storage.log_file import Salvage
from paceline_node.storage.obstructing_entries import make_way

MARK_SUFFIX = ".mark"
RIDE = 16
_SLOT = struct.Struct(">qqqi16s")
_CRC = struct.Struct(">I")
_COMMITTED = struct.Struct(">q")
_COMMITTED_AT = _SLOT.size + _CRC.size
_SLOT_BYTES = 64
_SYNCS = struct.Struct(">q")
_NO_VOTE = (-1, bytes(16))


def mark_of(path: str) -> str:
    """Where the mark of the directory ``path`` lies."""
    return path + MARK_SUFFIX


class Promised(NamedTuple):
    """What was made durable: the hard state, the newest segment, and that many bytes of it.
    ``committed`` is how far the log is known to be committed; -1: not known."""

    state: HardState
    segment: int
    synced: int
    committed: int = -1

    def forgotten(self, state: HardState, newest: int, size: int) -> str | None:
        """What is missing in a directory with this hard state, whose newest segment is ``newest``
        and whose segment of the mark has ``size`` bytes; None: nothing."""
        mine, its = self.state, state
        if its.term < mine.term:
            return f"it was in term {mine.term}, the directory is in term {its.term}"
        if its.term == mine.term and mine.vote not in (None, its.vote):
            return f"it voted in term {mine.term}, and the directory does not know for whom"
        if newest < self.segment:
            return f"it wrote segment {self.segment}, the newest there is {newest}"
        if newest == self.segment and size < self.synced:
            return f"it synced {self.synced} bytes of segment {newest}, {size} are there"
        return None


class PromiseMark:
    """The file. Writing raises OSError, since a directory is believed to be whole by it; but for
    want of room it does not, and the file is older until the next write."""

    def __init__(self, file: File, found: Promised | None, syncs: int = 0) -> None:
        self._file = file
        self.found = found
        self.syncs = syncs
        """How many syncs the files of the logs had counted; 0: not known."""
        self._written = found
        self._appends = 0
        self._has_news = False

    @classmethod
    async def open(cls, disk: Disk, path: str) -> Self:
        """Open or make the mark of the directory ``path``. Raises OSError."""
        name = mark_of(path)
        try:
            file = await disk.open(name)
        except OSError as error:
            if error.errno not in LOST:
                raise
            make_way(disk, name)
            file = disk.create(name)
            await disk.fsync_dir(checkpoint.parent(path))
        slots = await Salvage(file).read(min(file.size(), 2 * _SLOT_BYTES), 0)
        return cls(file, _decode(slots[:_SLOT_BYTES]), _decode_syncs(slots[_SLOT_BYTES:]))

    def write(self, promised: Promised) -> None:
        """All that is durable now."""
        if promised == self._written:
            return
        if self._has_written(_encode(promised), 0):
            self._written = promised

    def note_syncs(self, syncs: int) -> None:
        """So many are durable in the files of the logs."""
        self.syncs = syncs
        body = _SYNCS.pack(syncs)
        content = (body + _CRC.pack(crc32c(body))).ljust(_SLOT_BYTES, b"\0")
        self._has_news |= self._has_written(content, _SLOT_BYTES)

    def _has_written(self, content: bytes, position: int) -> bool:
        try:
            self._file.pwrite(content, position)
        except OSError as error:
            if not is_full(error):
                raise
            return False
        return True

    def to_ride(self) -> list[File]:
        """The files to add to a sync of the log that starts now: none, or this one."""
        self._appends += 1
        if self._appends % RIDE and not self._has_news:
            return []
        self._has_news = False
        return [self._file]

    def close(self) -> None:
        """Close the file; idempotent."""
        self._file.close()


def _encode(promised: Promised) -> bytes:
    state = promised.state
    vote = _NO_VOTE if state.vote is None else tuple(state.vote)
    body = _SLOT.pack(state.term, promised.segment, promised.synced, *vote)
    body += _CRC.pack(crc32c(body)) + _COMMITTED.pack(promised.committed)
    return (body + _CRC.pack(crc32c(body))).ljust(_SLOT_BYTES, b"\0")


def _decode(slot: bytes) -> Promised | None:
    if len(slot) < _SLOT_BYTES:
        return None
    body = slot[: _SLOT.size]
    if _CRC.unpack_from(slot, _SLOT.size) != (crc32c(body),):
        return None
    term, segment, synced, node, directory = _SLOT.unpack(body)
    vote = None if node == _NO_VOTE[0] else MemberId(NodeId(node), directory)
    return Promised(HardState(term, vote), segment, synced, _committed(slot))


def _decode_syncs(slot: bytes) -> int:
    if len(slot) < _SLOT_BYTES:
        return 0
    body = slot[: _SYNCS.size]
    if _CRC.unpack_from(slot, _SYNCS.size) != (crc32c(body),):
        return 0
    (syncs,) = _SYNCS.unpack(body)
    return max(0, int(syncs))


def _committed(slot: bytes) -> int:
    end = _COMMITTED_AT + _COMMITTED.size
    if _CRC.unpack_from(slot, end) != (crc32c(slot[:end]),):
        return -1
    committed: int = _COMMITTED.unpack_from(slot, _COMMITTED_AT)[0]
    return committed
