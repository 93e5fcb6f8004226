"""One file of a log: whole batches of consecutive offsets, and where to find them.

A ``.log`` file is batches back to back and nothing else (their layout:
``paceline/wire/batch_header.py``); its name is the offset it begins with, in 20 digits. What
belongs here: positions inside one file. Which file, and what may be read, is ``log.py``'s.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from paceline.errors import CorruptMessage
from paceline.values import dataclass
from paceline.wire.batch_header import HEADER_BYTES, LENGTH_OVERHEAD, BatchHeader, verify
from paceline_node.env import Disk, File
from paceline_node.storage.checkpoint import read_file
from paceline_node.storage.index import MAX_RELATIVE, OffsetIndex, TimeIndex
from paceline_node.storage.log_file import LogFile, Unreadable

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"

_WINDOW = 64 * 1024
_TAIL_BATCHES = 8192
_CURSORS = 64
# base offset, batch length, last offset delta: all that walking from batch to batch needs.
_STEP = struct.Struct(">qi11xi")


class Step(NamedTuple):
    """One batch as seen by a walk: its place, without its content."""

    position: int
    end: int
    base_offset: int
    next_offset: int


class Hole(NamedTuple):
    """Bytes ``position..end_position`` are damaged: offsets ``start..end`` cannot be read here.

    Both may be empty at the end of a file whose last batches are missing.
    """

    start: int
    end: int
    position: int
    end_position: int


class Boundary(NamedTuple):
    """A place between two batches."""

    position: int
    offset: int


def segment_name(base_offset: int) -> str:
    """The file name without suffix: 20 digits."""
    return f"{base_offset:020d}"


def parse_name(name: str) -> int | None:
    """The base offset of a ``.log`` file's name; None when it is something else."""
    stem = name.removesuffix(LOG_SUFFIX)
    if stem == name or len(stem) != 20 or not stem.isascii() or not stem.isdigit():
        return None
    return int(stem)


def is_orphan(name: str, bases: Sequence[int]) -> bool:
    """Whether a file is an index whose segment is gone."""
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        if name.endswith(suffix):
            return parse_name(name.removesuffix(suffix) + LOG_SUFFIX) not in bases
    return False


@dataclass(slots=True)
class OpenedTimes:
    """What of a time index came from its file: the first ``count`` entries, for the batches below
    ``end``. ``is_confirmed``: the last one was seen to be right."""

    count: int = 0
    end: int = 0
    is_confirmed: bool = False


class Segment:
    """An open segment. All methods are synchronous and raise OSError of the file; where its bytes
    cannot be read, that is CorruptMessage (``log_file.py``)."""

    def __init__(self, directory: str, base_offset: int, file: File) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.file = file if isinstance(file, LogFile) else LogFile(file)
        self.size = 0
        """Bytes that belong to the log; equal to the file's size once recovered."""
        self.offsets = OffsetIndex(base_offset)
        self.times = TimeIndex(base_offset)
        self.max_timestamp = -1
        self.created_ms = -1
        """Wall clock of the first append (after a restart: the first batch's timestamp)."""
        self.is_newest_proven = True
        """Whether ``max_timestamp`` is the word of batches whose checksum holds. Of a segment that
        was only opened it is an index's, which has none."""
        self.is_created_proven = True
        """The same of ``created_ms``."""
        self.opened_times = OpenedTimes()
        self._opened_ms: int | None = None
        self.holes: list[Hole] = []
        self.truncations = 0
        """How often the segment was cut; who works on it beside the log compares."""
        self._indexed_position = 0
        # The newest batches one by one: followers and consumers at the end of the log ask for
        # these, and find them without reading a header.
        self._tail_offsets = array("q")
        self._tail_positions = array("q")
        # Where fetches ended, and will go on.
        self._cursors: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<Segment {self.path()} {self.base_offset}..{self.next_offset}>"

    def path(self, suffix: str = LOG_SUFFIX) -> str:
        return f"{self.directory}/{segment_name(self.base_offset)}{suffix}"

    @property
    def is_empty(self) -> bool:
        return self.next_offset == self.base_offset

    @property
    def is_whole(self) -> bool:
        """Whether nothing in it is known to be damaged."""
        return not self.holes

    def has_room(self, count: int, last_offset: int, limit: int) -> bool:
        """Whether ``count`` bytes up to ``last_offset`` may be added; an empty one takes all."""
        if self.size == 0:
            return True
        return self.size + count <= limit and last_offset - self.base_offset <= MAX_RELATIVE

    # --- growing ------------------------------------------------------------------------------

    def note(self, header: BatchHeader, base_offset: int, position: int, interval: int) -> None:
        """Take over a batch that lies at ``position`` under ``base_offset`` now.

        ``interval`` is the distance of index entries in bytes.
        """
        last_offset = base_offset + header.last_offset_delta
        self.size = position + header.size_bytes
        self.next_offset = last_offset + 1
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
        if position - self._indexed_position >= interval:
            self.offsets.add(base_offset, position)
            self.times.add(self.max_timestamp, last_offset)
            self._indexed_position = position
        if len(self._tail_offsets) == _TAIL_BATCHES:
            del self._tail_offsets[: _TAIL_BATCHES // 2]
            del self._tail_positions[: _TAIL_BATCHES // 2]
        self._tail_offsets.append(base_offset)
        self._tail_positions.append(position)

    def skip(self, hole: Hole) -> None:
        """Take over damaged bytes: what follows them lies at ``hole.end_position``."""
        self.holes.append(hole)
        self.size = hole.end_position
        self.next_offset = hole.end
        # Positions before and behind a hole must not be joined by counting batches.
        del self._tail_offsets[:]
        del self._tail_positions[:]

    def opened(self, now_ms: int) -> None:
        """The log was opened at ``now_ms``: whatever clients say, no batch was written later."""
        self._opened_ms = now_ms
        self.created_ms = min(self.created_ms, now_ms)

    def believe_first(self) -> None:
        """Take the first batch's word, unread as it is, for when the segment was begun. Raises
        CorruptMessage."""
        self.created_ms = self.batch_timestamps(0)[1]
        self.is_created_proven = False

    def prove(self, read: Segment, *, is_sealed: bool) -> bool:
        """Take over what reading every batch, to the end of ``read``, told of this segment's times;
        whether its index files say something else."""
        if not self.is_created_proven and read.created_ms >= 0:
            opened = read.created_ms if self._opened_ms is None else self._opened_ms
            self.created_ms = min(read.created_ms, opened)
            self.is_created_proven = True
        if not is_sealed or read.size != self.size or self.is_newest_proven:
            return False
        read.times.add(read.max_timestamp, read.next_offset - 1)
        differs = read.times.to_bytes() != self.times.to_bytes()
        self.offsets, self.times = read.offsets, read.times
        self.max_timestamp, self.is_newest_proven = read.max_timestamp, True
        return differs

    def resume_at(self, step: Step) -> None:
        """Keep what the loaded indexes say of the batches before ``step``, and forget the rest, so
        that noting can go on with the batch of ``step``, which has an index entry."""
        self.offsets.truncate(step.position + 1)
        self.times.truncate(step.next_offset)
        self.times_opened(step.base_offset)
        self.max_timestamp = self.times.last[0]
        self.size = step.position
        self.next_offset = step.base_offset
        self._indexed_position = step.position

    def mark_holes(self, holes: Sequence[Hole]) -> None:
        """Damage was found in bytes that had been taken over as good."""
        self.holes = sorted(holes)
        self._cursors.clear()
        del self._tail_offsets[:]
        del self._tail_positions[:]

    def truncate(self, boundary: Boundary) -> None:
        """Cut file and indexes at a boundary between batches."""
        self.file.truncate(boundary.position)
        self.truncations += 1
        self.size = boundary.position
        self.next_offset = boundary.offset
        self.offsets.truncate(boundary.position)
        self.times.truncate(boundary.offset)
        if boundary.offset < self.opened_times.end:
            self.times_opened(boundary.offset)
        self.holes = [hole for hole in self.holes if hole.start < boundary.offset]
        self._cursors.clear()
        self._indexed_position = max(0, self.offsets.last_position)
        keep = len(self._tail_offsets)
        while keep and self._tail_offsets[keep - 1] >= boundary.offset:
            keep -= 1
        del self._tail_offsets[keep:]
        del self._tail_positions[keep:]
        self._forget_maximum(boundary)

    def _forget_maximum(self, boundary: Boundary) -> None:
        """The largest timestamp may have been cut off; find it among what is left behind the last
        time index entry."""
        self.max_timestamp, known = self.times.last
        try:
            for step in self.walk(Boundary(*self._floor(known))):
                if step.position >= boundary.position:
                    break
                header = verify(self.file.pread(step.end - step.position, step.position))
                self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
        except CorruptMessage:  # whoever reads there will tell
            self.is_newest_proven = False

    def write_indexes(self, disk: Disk) -> list[File]:
        """Write both index files anew; the caller syncs and closes them.

        The last time entry gets the segment's largest timestamp, as other readers expect.
        """
        if not self.is_empty:
            self.times.add(self.max_timestamp, self.next_offset - 1)
        written: list[File] = []
        for suffix, content in (
            (INDEX_SUFFIX, self.offsets.to_bytes()),
            (TIME_INDEX_SUFFIX, self.times.to_bytes()),
        ):
            disk.remove(self.path(suffix))
            try:
                written.append(disk.create(self.path(suffix)))
                written[-1].append([content])
            except OSError:
                for file in written:
                    file.close()
                self.remove_indexes(disk)
                raise
        return written

    def remove_indexes(self, disk: Disk) -> None:
        """Remove index files that no longer say what the log does."""
        for suffix in (TIME_INDEX_SUFFIX, INDEX_SUFFIX):
            disk.remove(self.path(suffix))

    def unlink(self, disk: Disk) -> None:
        """Remove the segment's files by name; the log itself last, so that no index outlives it."""
        self.remove_indexes(disk)
        disk.remove(self.path())

    async def read_indexes(self, disk: Disk) -> None:
        """Load both index files. Raises CorruptMessage when one is missing or cannot be true."""
        offsets = await read_file(disk, self.path(INDEX_SUFFIX))
        times = await read_file(disk, self.path(TIME_INDEX_SUFFIX))
        if offsets is None or times is None:
            raise CorruptMessage(f"{self.path()}: an index file is missing")
        self.offsets = OffsetIndex.from_bytes(self.base_offset, offsets, self.file.size())
        self.times = TimeIndex.from_bytes(self.base_offset, times)
        if self.file.size() and not len(self.times):
            raise CorruptMessage(f"{self.path()}: the time index is empty")
        self.max_timestamp = self.times.last[0]
        self.is_newest_proven = False
        self._indexed_position = max(0, self.offsets.last_position)

    def reindex(self, interval: int) -> None:
        """Build both indexes anew from the file, by lengths alone. Raises CorruptMessage."""
        self.offsets = OffsetIndex(self.base_offset)
        self.times = TimeIndex(self.base_offset)
        self._indexed_position = 0
        largest = -1
        for step in self.walk(Boundary(0, self.base_offset)):
            largest = max(largest, self.batch_timestamps(step.position)[1])
            if step.position - self._indexed_position >= interval:
                self.offsets.add(step.base_offset, step.position)
                self.times.add(largest, step.next_offset - 1)
                self._indexed_position = step.position
        self.max_timestamp = largest
        self.is_newest_proven = False
        self.times_opened(self.next_offset)

    def times_opened(self, end: int) -> None:
        """The time index is as nobody has seen it to be, for the batches below ``end``."""
        self.opened_times = OpenedTimes(len(self.times), end)

    # --- finding ------------------------------------------------------------------------------

    def find(self, offset: int) -> Step | None:
        """The batch that contains ``offset``, or the first one behind a hole that does; None at or
        beyond the end."""
        if self._tail_offsets and offset >= self._tail_offsets[0]:
            return self._find_in_tail(offset)
        for step in self.walk(Boundary(*self._floor(offset))):
            if step.next_offset > offset:
                return step
        return None

    def boundary_at_offset(self, offset: int) -> Boundary:
        """The end of the last batch that lies wholly below ``offset``."""
        if offset >= self.next_offset:
            return Boundary(self.size, self.next_offset)
        for hole in self.holes:
            if hole.start <= offset <= hole.end:
                return Boundary(hole.position, hole.start)
        step = self.find(offset)
        if step is None:
            return Boundary(self.size, self.next_offset)
        return Boundary(step.position, step.base_offset)

    def boundary_at_position(self, position: int) -> Boundary:
        """The end of the last batch that ends at or before ``position``."""
        if position >= self.size:
            return Boundary(self.size, self.next_offset)
        if self._tail_positions and position >= self._tail_positions[0]:
            at = bisect_right(self._tail_positions, position) - 1
            return Boundary(self._tail_positions[at], self._tail_offsets[at])
        offset, start = self.offsets.floor_position(position)
        found = Boundary(start, offset)
        for step in self.walk(found):
            if step.end > position:
                break
            found = Boundary(step.end, step.next_offset)
        return found

    def walk(self, start: Boundary) -> Iterator[Step]:
        """Every batch from a boundary on, by lengths alone; holes are stepped over.

        Raises CorruptMessage where the lengths lead to nonsense: an index that does not fit, or
        damage.
        """
        position, expected = start
        window = b""
        window_start = position
        while position < self.size:
            for hole in self.holes:
                if hole.position == position:
                    position, expected = hole.end_position, hole.end
            if position >= self.size:
                return
            at = position - window_start
            if at + HEADER_BYTES > len(window):
                # Behind a large batch the next one will be large too: fetch its header only.
                wanted = HEADER_BYTES if at > len(window) > 0 else _WINDOW
                window, window_start, at = self._read_ahead(wanted, position), position, 0
                if len(window) < HEADER_BYTES:
                    raise CorruptMessage(f"{self.path()}: no whole batch at byte {position}")
            base_offset, length, delta = _STEP.unpack_from(window, at)
            end = position + length + LENGTH_OVERHEAD
            if base_offset != expected or length <= 0 or delta < 0 or end > self.size:
                raise CorruptMessage(
                    f"{self.path()}: byte {position} says offset {base_offset}, "
                    f"{length} bytes; expected offset {expected}"
                )
            expected = base_offset + delta + 1
            yield Step(position, end, base_offset, expected)
            position = end

    def _read_ahead(self, size: int, position: int) -> bytes:
        try:
            return self.file.pread(size, position)
        except Unreadable:  # what can be read up to there is to be read all the same
            return self.file.pread(HEADER_BYTES, position)

    def remember(self, boundary: Boundary) -> None:
        """A reader will go on at this boundary: find it without walking."""
        if len(self._cursors) >= _CURSORS:
            del self._cursors[next(iter(self._cursors))]
        self._cursors[boundary.offset] = boundary.position

    def readable_from(self, offset: int) -> int:
        """``offset``, or the end of the hole that it lies in."""
        for hole in self.holes:
            if hole.start <= offset < hole.end:
                return hole.end
        return offset

    def batch_timestamps(self, position: int) -> tuple[int, int]:
        """(base, max) timestamp in the header of the batch at ``position``."""
        base, largest = struct.unpack_from(">qq", self.file.pread(HEADER_BYTES, position), 27)
        return base, largest

    def _floor(self, offset: int) -> tuple[int, int]:
        """(position, offset) of a batch start at or before ``offset`` from which to walk."""
        if (cursor := self._cursors.get(offset)) is not None:
            return cursor, offset
        known, position = self.offsets.floor(offset)
        for hole in self.holes:
            if hole.end <= offset and hole.end_position >= position:
                known, position = hole.end, hole.end_position
        return position, known

    def _find_in_tail(self, offset: int) -> Step | None:
        if offset >= self.next_offset:
            return None
        at = bisect_right(self._tail_offsets, offset) - 1
        position, base_offset = self._tail_positions[at], self._tail_offsets[at]
        if at + 1 < len(self._tail_offsets):
            return Step(
                position, self._tail_positions[at + 1], base_offset, self._tail_offsets[at + 1]
            )
        return Step(position, self.size, base_offset, self.next_offset)
