"""Reading one segment from end to end with every check there is.

What belongs here: telling good batches, damage and torn tails apart (DESIGN 2.5, 3.1).
The CRC covers a batch from its attributes on; base offset and leader epoch lie outside it and
are checked by continuity, by order, and against the epoch table. What to do about a finding is
decided by ``recovery.py`` and ``verify.py``.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable

import trio

from paceline.errors import CorruptMessage
from paceline.types import NO_EPOCH
from paceline.values import dataclass
from paceline.wire.batch_header import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAX_STORED_BATCH_BYTES,
    BatchHeader,
    TruncatedBatch,
    batch_crc,
    read_header,
)
from paceline.wire.checksum import crc32c
from paceline_node.env import File
from paceline_node.storage.durability import Marked
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.index import MAX_RELATIVE
from paceline_node.storage.log_file import Salvage
from paceline_node.storage.log_segment import Boundary, Hole
from paceline_node.storage.torn_tail import Tail, has_unwritten_sector

_WINDOW = 1024 * 1024
SLICE_BATCHES = 256
"""Batches looked at between two checkpoints: some 3 ms of work."""
_MAGIC_AT = 16
_PEEK = struct.Struct(">qi")
_LENGTH_AT = 8
_LENGTH = struct.Struct(">i")
_CRC_AT = CRC_START - 4
_CRC = struct.Struct(">I")

Visit = Callable[[BatchHeader, int], None]
VisitHole = Callable[[Hole, str], None]


@dataclass(frozen=True, slots=True)
class ScanRules:
    """What a scan may take for granted.

    ``mark``: every offset below it was durable once, so a bad batch there is damage; at or above
    it, a torn write as far as ``tail`` allows that. ``epochs`` is the checksummed table and binds
    below ``epochs_until``. ``end`` is the base offset of the next segment, None for the last one; a
    file may go on behind it when a truncation had not reached the disk, and those bytes are not
    looked at. ``marked`` knows the newest epoch, which may have begun behind the table's end;
    ``mark_lost``: nothing beside the log but the table does.
    """

    mark: int
    epochs: EpochCache
    epochs_until: int
    end: int | None
    tail: Tail = Tail.ALL
    marked: Marked | None = None
    mark_lost: bool = False


@dataclass(frozen=True, slots=True)
class ScanEnd:
    """Where a scan stopped.

    ``torn`` says why the bytes from ``position`` on are not part of the log; None when the file
    ended with a whole batch. ``discarded_valid_bytes`` counts good batches behind a torn one.
    """

    position: int
    next_offset: int
    torn: str | None
    discarded_valid_bytes: int = 0


class _Window:
    """A file read in large pieces; ``at`` moves it so that a whole batch is in memory."""

    def __init__(self, file: File, size: int) -> None:
        self.file = Salvage(file)
        self.size = size
        self.data = b""
        self.start = 0

    async def load(self, position: int, count: int) -> None:
        count = min(max(count, _WINDOW), self.size - position)
        self.data = await self.file.read(count, position)
        self.start = position
        if len(self.data) < count:
            raise OSError(errno.EIO, "the file is shorter than it was", self.file.path)


class SegmentScan:
    """One pass over a segment file, from ``start`` to byte ``size``.

    Calls ``visit(header, position)`` for each good batch and ``visit_hole(hole, reason)`` for each
    damaged range, in the order of the file.
    """

    def __init__(
        self,
        file: File,
        size: int,
        start: Boundary,
        rules: ScanRules,
        *,
        last_epoch: int,
        visit: Visit,
        visit_hole: VisitHole,
    ) -> None:
        self._window = _Window(file, size)
        self._size = size
        self._start = start.position
        self._expected = start.offset
        self._highest = start.offset + MAX_RELATIVE
        self._rules = rules
        self._last_epoch = last_epoch
        self._visit = visit
        self._visit_hole = visit_hole

    async def run(self) -> ScanEnd:
        """Scan. Raises OSError. Cancel-safe: nothing is changed on disk."""
        position, seen = self._start, 0
        while position < self._size and self._expected != self._rules.end:
            header, fault = await self._fetch(position)
            if header is not None:
                fault = fault or self._fault(header, self._expected)
                fault = fault or self._unproven(header, position)
                if fault is None:
                    self._accept(header, position)
                    position += header.size_bytes
                    seen += 1
                    if seen % SLICE_BATCHES == 0:
                        await trio.lowlevel.checkpoint()
                    continue
            found = await self._resync(position, header)
            bad_end = self._size if found is None else found[1]
            is_readable = self._window.file.why(position, bad_end) is None
            if (
                self._expected >= self._rules.mark
                and is_readable
                and await self._is_torn(position, found)
            ):
                discarded = 0 if found is None else self._size - found[1]
                return ScanEnd(position, self._expected, fault, discarded)
            end, next_position = found or (self._lost_end(header), self._size)
            self._hole(end, position, next_position, fault or "damaged")
            position = next_position
        end_offset = self._rules.end
        if end_offset is not None and self._expected < end_offset:
            below_mark = self._expected < self._rules.mark
            if below_mark or not self._rules.tail.may_lack_segments:
                why = "batches are missing at the segment's end"
                self._hole(end_offset, position, position, why)
        return ScanEnd(position, self._expected, None)

    async def _is_torn(self, position: int, found: tuple[int, int] | None) -> bool:
        """Whether the bad bytes at ``position``, behind which ``found`` lies, may be cut off."""
        tail = self._rules.tail
        if tail in (Tail.ALL, Tail.NOTHING):
            return tail is Tail.ALL
        window = self._window
        end = min(self._size if found is None else found[1], position + MAX_STORED_BATCH_BYTES)
        data = await window.file.read(end - position, position)
        if found is None and _is_cut_short(data):
            return True
        return tail is Tail.UNWRITTEN and has_unwritten_sector(data, position)

    async def _fetch(self, position: int) -> tuple[BatchHeader | None, str | None]:
        """The batch at ``position``, all of it in the window, and what its bytes alone tell
        against it."""
        window = self._window
        at = position - window.start
        while True:
            try:
                header = read_header(window.data, at)
                break
            except TruncatedBatch as cut:
                if position + cut.needed_bytes > self._size:
                    return None, f"the batch at byte {position} is cut short"
                await window.load(position, cut.needed_bytes)
                at = 0
            except CorruptMessage as error:
                return None, str(error)
        if batch_crc(window.data, at, header.size_bytes) != header.crc:
            return header, f"batch at byte {position}: the checksum does not hold"
        return header, None

    def _fault(self, header: BatchHeader, expected: int) -> str | None:
        """What is wrong with a batch whose CRC holds: the fields outside the CRC."""
        if header.base_offset != expected:
            return f"base offset {header.base_offset}, expected {expected}"
        if header.leader_epoch < self._last_epoch:
            return f"leader epoch {header.leader_epoch} behind {self._last_epoch}"
        end = self._rules.end
        if end is not None and header.next_offset > end:
            return f"batch up to offset {header.last_offset} reaches into the next segment"
        if header.base_offset < self._rules.epochs_until:
            # By its end: the table begins inside a batch that the log start lies in.
            known = self._rules.epochs.epoch_at(header.last_offset)
            if known not in (NO_EPOCH, header.leader_epoch):
                return f"leader epoch {header.leader_epoch}, the epoch table says {known}"
            if known == NO_EPOCH and 0 <= self._rules.epochs.first_epoch < header.leader_epoch:
                return f"leader epoch {header.leader_epoch}, an older one began behind it"
        marked = self._rules.marked
        if marked is not None and marked.speaks_against(header):
            return f"leader epoch {header.leader_epoch}, the mark says {marked.epoch}"
        return None

    def _unproven(self, header: BatchHeader, position: int) -> str | None:
        """The log's last batch must not be the only one to know of a newer leader epoch: one bit
        outside its checksum would make the log the longest."""
        rules = self._rules
        is_last = rules.end is None and position + header.size_bytes == self._size
        known = max(self._last_epoch, rules.epochs.last_epoch, 0)
        if not (rules.mark_lost and is_last) or header.leader_epoch <= known:
            return None
        return f"leader epoch {header.leader_epoch}, which nothing but this last batch knows"

    def _accept(self, header: BatchHeader, position: int) -> None:
        self._visit(header, position)
        self._expected = header.next_offset
        self._last_epoch = header.leader_epoch

    def _hole(self, end: int, position: int, end_position: int, reason: str) -> None:
        reason = self._window.file.why(position, end_position) or reason
        self._visit_hole(Hole(self._expected, end, position, end_position), reason)
        self._expected = end

    def _lost_end(self, header: BatchHeader | None) -> int:
        """Where a hole ends behind which nothing good was found in this file. The offsets of a bad
        batch are not given out again, as far as its own header names them."""
        if self._rules.end is not None:
            return self._rules.end
        end = self._expected + 1
        if (
            header is not None
            and header.base_offset == self._expected
            and header.record_count == header.last_offset_delta + 1
        ):
            end = header.next_offset
        return max(self._rules.mark, end)

    async def _resync(self, bad: int, header: BatchHeader | None) -> tuple[int, int] | None:
        """(base offset, position) of the first good batch behind the bad one at byte ``bad``.

        None when there is none. Usually the bad batch's own length leads there. Otherwise every
        byte that could be a magic number is tried.
        """
        if header is not None and bad + header.size_bytes < self._size:
            base_offset = await self._good_base(bad + header.size_bytes)
            if base_offset is not None:
                return base_offset, bad + header.size_bytes
        position = bad + 1
        while position + HEADER_BYTES <= self._size:
            data = await self._window.file.read(_WINDOW + HEADER_BYTES, position)
            at = data.find(b"\x02", _MAGIC_AT)
            while at >= 0:
                candidate = position + at - _MAGIC_AT
                if self._plausible(data, at - _MAGIC_AT, candidate):
                    base_offset = await self._good_base(candidate)
                    if base_offset is not None:
                        return base_offset, candidate
                at = data.find(b"\x02", at + 1)
            position += _WINDOW
        return None

    def _plausible(self, data: bytes, at: int, position: int) -> bool:
        if at + CRC_START > len(data):
            return False
        base_offset: int
        length: int
        base_offset, length = _PEEK.unpack_from(data, at)
        return (
            base_offset > self._expected
            and HEADER_BYTES <= length + LENGTH_OVERHEAD <= MAX_STORED_BATCH_BYTES
            and position + length + LENGTH_OVERHEAD <= self._size
        )

    async def _good_base(self, position: int) -> int | None:
        """The base offset of the batch at ``position`` if it could follow the damage."""
        header, fault = await self._fetch(position)
        if header is None or fault is not None or header.base_offset <= self._expected:
            return None
        if header.next_offset > self._highest:  # no segment holds that: the field has rotted
            return None
        end = self._rules.end
        if end is not None and header.next_offset > end:
            return None
        return header.base_offset if self._fault(header, header.base_offset) is None else None


def _is_cut_short(data: bytes) -> bool:
    """Whether the last bytes of a file are the beginning of a batch, as far as one can tell. A
    whole batch with a length that rotted is none: its CRC holds."""
    if len(data) < HEADER_BYTES:
        return True
    length: int
    (length,) = _LENGTH.unpack_from(data, _LENGTH_AT)
    if length + LENGTH_OVERHEAD <= len(data):
        return False
    (crc,) = _CRC.unpack_from(data, _CRC_AT)
    return bool(crc32c(memoryview(data)[CRC_START:]) != crc)
