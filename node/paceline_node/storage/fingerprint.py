"""How to tell a log's newest file from another log's.

Neither batches nor files say whose they are, and two logs of one node may have equal offsets. So
the mark of a log (``durable_marks.py``) remembers checksums of batches: of the first one in the
newest file, of the last one that was synced, and one over the last few. The few are at least
:data:`LEAST`, and reach back to a batch that is no marker: a transaction ends with the same
marker, byte for byte, in each of its partitions. Of sealed segments nothing is remembered, since
they are compacted.

What is kept here costs an append one entry, and an opening the headers behind the last index entry.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import trio

from paceline.errors import CorruptMessage
from paceline.wire.batch_header import CONTROL, HEADER_BYTES, LENGTH_OVERHEAD, verify
from paceline.wire.checksum import crc32c
from paceline_node.storage.log_segment import Boundary, Segment, Step
from paceline_node.storage.offset_assignment import Placed

LEAST = 4
MOST = 256
"""Batches that are looked back at, at most: more markers than that in a row tell nothing."""

_HEAD = struct.Struct(">qiibIhi")
_ENTRY = struct.Struct(">qI")
_FARTHEST = (1 << 32) - 1
_AT_ONCE = 256  # headers, without letting others run


class ForeignLog(CorruptMessage):
    """The newest file is not the one that this log wrote: it was exchanged with another log's."""


class Fingerprint(NamedTuple):
    """Checksums of batches in the newest file of a log that ends at some offset; 0: not known.
    ``trail``: over those from ``reach`` offsets before that end on."""

    last: int = 0
    reach: int = 0
    trail: int = 0
    first: int = 0


UNKNOWN = Fingerprint()


class _Head(NamedTuple):
    """What is asked of a batch without reading all of it."""

    base_offset: int
    length: int
    epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int

    @property
    def size_bytes(self) -> int:
        return self.length + LENGTH_OVERHEAD

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_delta + 1

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)


class _Seen(NamedTuple):
    offset: int
    crc: int
    is_marker: bool


class NewestFile:
    """What is known of the batches in the newest file of a log, as it grows. Pure."""

    def __init__(self) -> None:
        self.base_offset = -1
        """-1: not known, nor what it begins with."""
        self._first = 0
        self._last: deque[_Seen] = deque()
        self._telling = 0  # of those, how many are no markers

    def begun(self, base_offset: int) -> None:
        """Another file is the newest, an empty one."""
        self.base_offset, self._first = base_offset, 0
        self._forget()

    def appended(self, placed: Iterable[Placed]) -> None:
        """These batches lie at its end now."""
        for _, header, offset in placed:
            self._note(_Seen(offset, header.crc, header.is_control))

    def cut(self, end: int) -> None:
        """It ends at ``end`` now."""
        while self._last and self._last[-1].offset >= end:
            self._telling -= not self._last.pop().is_marker

    def told(self, end: int) -> Fingerprint:
        """Of the log, which ends at ``end``."""
        if not self._last:
            return Fingerprint(first=self._first)
        reach = end - self._last[0].offset
        trail = _checksum(self._last) if reach <= _FARTHEST else 0
        return Fingerprint(self._last[-1].crc, reach if trail else 0, trail, self._first)

    def read(self, segment: Segment, reach: int) -> None:
        """Begin with what lies in ``segment``, the newest: with its last ``reach`` offsets, or what
        is behind its last index entry. What cannot be read is not known."""
        self.begun(segment.base_offset)
        try:
            if segment.size and not (segment.holes and segment.holes[0].position == 0):
                self._first = _head(segment, 0).crc
            self._read_last(segment, reach)
        except CorruptMessage:
            self._forget()

    def _read_last(self, segment: Segment, reach: int) -> None:
        end = segment.next_offset
        begin = end - reach if reach else segment.offsets.floor(end - 1)[0]
        expected = begin = max(begin, segment.base_offset)
        for step in segment.walk(segment.boundary_at_offset(begin)):
            if step.base_offset != expected:  # behind damage
                self._forget()
            self._note(_seen(segment, step))
            expected = step.next_offset
        if expected != end:
            self._forget()

    def _note(self, seen: _Seen) -> None:
        if seen.offset == self.base_offset:
            self._first = seen.crc
        self._last.append(seen)
        self._telling += not seen.is_marker
        while len(self._last) > LEAST:
            oldest = self._last[0]
            if len(self._last) <= MOST and self._telling - (not oldest.is_marker) < 1:
                break
            self._last.popleft()
            self._telling -= not oldest.is_marker

    def _forget(self) -> None:
        self._last.clear()
        self._telling = 0


async def check(segment: Segment, end: int, expected: Fingerprint) -> None:
    """Look whether ``segment``, whose indexes were read if that was possible, is the newest file of
    the log whose mark at ``end`` says ``expected``. Raises ForeignLog; CorruptMessage where it is
    damaged, which says nothing."""
    if segment.size == 0 or end <= segment.base_offset:
        return
    first = _head(segment, 0)
    if expected.first and (first.base_offset, first.crc) != (segment.base_offset, expected.first):
        _verify(segment, 0, first)
        raise _foreign(segment, first, f"this log's first had checksum {expected.first:08x}")
    begin = max(segment.base_offset, end - max(1, expected.reach))
    found = await _steps(segment, begin, end)
    if expected.last == 0 or not found or found[-1].next_offset < end:
        return  # it ends below: it lost its tail
    last = _head(segment, found[-1].position)
    if (last.next_offset, last.crc) != (end, expected.last):
        _verify(segment, found[-1].position, last)
        raise _foreign(segment, last, f"this log's ended at {end} with {expected.last:08x}")
    if expected.reach and begin == end - expected.reach:
        seen = [_seen(segment, step) for step in found]
        if _checksum(seen) != expected.trail:
            for step in found:
                _verify(segment, step.position, _head(segment, step.position))
            raise _foreign(segment, last, "as this log's, but those before it are another's")


async def _steps(segment: Segment, begin: int, end: int) -> list[Step]:
    """The batches that reach into ``begin..end``."""
    found = []
    offset, position = segment.offsets.floor(begin)
    for count, step in enumerate(segment.walk(Boundary(position, offset)), 1):
        if step.base_offset >= end:
            break
        if step.next_offset > begin:
            found.append(step)
        if count % _AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
    return found


def _head(segment: Segment, position: int) -> _Head:
    data = segment.file.pread(HEADER_BYTES, position)
    if len(data) < HEADER_BYTES:
        raise CorruptMessage(f"{segment.path()}: no whole batch at byte {position}")
    return _Head._make(_HEAD.unpack_from(data))


def _verify(segment: Segment, position: int, head: _Head) -> None:
    verify(segment.file.pread(max(0, head.size_bytes), position))


def _seen(segment: Segment, step: Step) -> _Seen:
    head = _head(segment, step.position)
    return _Seen(step.base_offset, head.crc, head.is_control)


def _checksum(batches: Iterable[_Seen]) -> int:
    return crc32c(b"".join(_ENTRY.pack(each.offset, each.crc) for each in batches))


def _foreign(segment: Segment, head: _Head, why: str) -> ForeignLog:
    return ForeignLog(
        f"{segment.path()}: the batch at offset {head.base_offset} ends at {head.next_offset} "
        f"with checksum {head.crc:08x}, {why}"
    )
