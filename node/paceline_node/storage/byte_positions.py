"""Finding a byte position of a segment (the protocol's) in its log.

Every batch of such a log says at which position it begins (``byte_segment_state.py``), and
positions never fall, so a position is searched for in the batches that the offset index points to:
some twenty small reads in a gigabyte, and no index that could be wrong or missing after a crash,
a truncation or on a new replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from paceline.errors import CorruptMessage
from paceline.wire.batch_header import (
    EXTENSION_BYTES,
    HEADER_BYTES,
    BatchExtension,
    BatchHeader,
    PayloadKind,
    read_head,
)
from paceline_node.storage.byte_segment_state import DATA_KINDS
from paceline_node.storage.log import Log
from paceline_node.storage.log_segment import Boundary, Segment

_HEAD_BYTES = HEADER_BYTES + EXTENSION_BYTES


class Found(NamedTuple):
    """A batch: its offsets, and the byte positions ``start..end`` that its payload covers."""

    base_offset: int
    next_offset: int
    start: int
    end: int
    kind: PayloadKind


def batch_at(log: Log, position: int) -> Found | None:
    """The data batch that holds byte ``position``; None at or beyond the log's last byte.

    A position below the first batch gives that one. Raises CorruptMessage where the log is damaged.
    """
    if position >= log.producers.marks.end_position:
        return None
    segments = [segment for segment in log.segments if segment.size]
    at = _last_at_or_before(segments, position)
    for segment in segments[at:]:
        for step in segment.walk(_floor(segment, position)):
            found = _read(segment, step.position)
            if found.kind in DATA_KINDS and found.end > position:
                return found
    return None


def batch_holding_offset(log: Log, offset: int) -> Found | None:
    """The batch that holds ``offset``; None at the log's end. Raises CorruptMessage."""
    if offset >= log.log_end_offset:
        return None
    for segment in log.segments:
        if offset < segment.next_offset:
            step = segment.find(offset)
            return None if step is None else _read(segment, step.position)
    return None


def first_position(log: Log) -> int:
    """The first byte position that the log still holds or has left to be written."""
    marks = log.producers.marks
    first = batch_holding_offset(log, log.log_start_offset)
    kept = marks.end_position if first is None else first.start
    return max(kept, marks.start_position)


def _last_at_or_before(segments: Sequence[Segment], position: int) -> int:
    """Index of the last file whose first batch begins at or before ``position``."""
    low, high = 0, len(segments)
    while high - low > 1:
        middle = (low + high) // 2
        if _read(segments[middle], 0).start <= position:
            low = middle
        else:
            high = middle
    return low


def _floor(segment: Segment, position: int) -> Boundary:
    """An indexed batch at or before ``position``, from which to walk."""
    index = segment.offsets
    low, high = -1, len(index)
    while high - low > 1:
        middle = (low + high) // 2
        if _read(segment, index.entry(middle)[1]).start <= position:
            low = middle
        else:
            high = middle
    if low < 0:
        return Boundary(0, segment.base_offset)
    offset, at = index.entry(low)
    return Boundary(at, offset)


def _read(segment: Segment, at: int) -> Found:
    """The heads of the batch at file position ``at``. Its CRC is not looked at: a wrong position
    leads to the wrong batch, which its reader notices."""
    header, extension = read_head(segment.file.pread(_HEAD_BYTES, at))
    if extension is None:
        raise CorruptMessage(f"{segment.path()}: byte {at} holds a batch that has no position")
    return _found(header, extension)


def _found(header: BatchHeader, extension: BatchExtension) -> Found:
    payload = header.size_bytes - header.payload_start if extension.kind in DATA_KINDS else 0
    start = extension.base_position
    return Found(header.base_offset, header.next_offset, start, start + payload, extension.kind)
