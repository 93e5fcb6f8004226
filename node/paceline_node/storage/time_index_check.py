"""Whether a time index says what the batches do, before an answer rests on it.

Of a segment that was only opened, the index is a file without a checksum: it may have rotted, been
cut, or be another log's. But each entry says something that the batches at its place show: that the
largest time so far rose to it behind the entry before. So an answer looks at the entry it rests on,
and once at the last one that came from the file, which says how late the whole segment is. What is
not so, or would take long to see, is read as a whole, off the loop (``scrubbing.scrub``), and the
index made anew.
"""

from __future__ import annotations

from paceline.errors import CorruptMessage
from paceline.wire.batch_header import verify
from paceline_node.storage.log_segment import Boundary, Segment

_AT_ONCE_BYTES = 1024 * 1024
"""What is read for one entry on the event loop, at most."""
_AT_ONCE_SEGMENTS = 16
"""How many segments one lookup looks into for the first time."""


class TimesInDoubt(Exception):
    """An answer would rest on what nobody has seen to be so; ask again soon. ``offset`` lies in a
    segment that is to be read as a whole; None: only a few were looked at, in order."""

    def __init__(self, reason: str, offset: int | None = None) -> None:
        super().__init__(reason)
        self.offset = offset


class TimeIndexCheck:
    """Looks at the entries on which one lookup rests."""

    def __init__(self) -> None:
        self._left = _AT_ONCE_SEGMENTS

    def knows_largest(self, segment: Segment) -> None:
        """Raise TimesInDoubt unless ``max_timestamp`` is what the batches say."""
        if segment.is_newest_proven or segment.holes or segment.opened_times.is_confirmed:
            return
        if self._left == 0:
            raise TimesInDoubt(f"{segment.path()}: it is yet to be looked at")
        self._left -= 1
        last = segment.opened_times.count - 1
        self._entry(segment, last)
        behind = segment.times.entry(last)[1] + 1 if last >= 0 else segment.base_offset
        largest = segment.times.entry(last)[0] if last >= 0 else -1
        if _largest(segment, behind, segment.opened_times.end) > largest:
            raise _doubt(segment, "a later time than the last entry's")
        segment.opened_times.is_confirmed = True

    def knows_before(self, segment: Segment, timestamp_ms: int) -> None:
        """Raise TimesInDoubt unless the last entry below a time is right."""
        self._entry(segment, segment.times.count_below(timestamp_ms) - 1)

    def knows_within(self, segment: Segment, end_offset: int) -> None:
        """Raise TimesInDoubt unless the last entry below an offset is right."""
        self._entry(segment, segment.times.count_within(end_offset) - 1)

    def _entry(self, segment: Segment, at: int) -> None:
        if at < 0 or segment.is_newest_proven or segment.holes:
            return
        largest, offset = segment.times.entry(at)
        before = segment.times.entry(at - 1)[1] + 1 if at > 0 else segment.base_offset
        if offset >= segment.next_offset:
            raise _doubt(segment, f"an entry for offset {offset}, behind its end")
        if _largest(segment, before, offset + 1) != largest:
            raise _doubt(segment, f"the entry for offset {offset} says {largest} ms")


def _largest(segment: Segment, start: int, end: int) -> int:
    """The largest time of the batches between two ends of batches."""
    largest, size = -1, 0
    if start >= end:
        return largest
    try:
        first = segment.find(start)
        if first is None or first.base_offset != start:
            raise _doubt(segment, f"no batch begins at offset {start}")
        for step in segment.walk(Boundary(first.position, start)):
            if step.base_offset >= end:
                break
            size += step.end - step.position
            if size > _AT_ONCE_BYTES or step.next_offset > end:
                raise _doubt(segment, f"offset {end} lies far behind the entry before")
            header = verify(segment.file.pread(step.end - step.position, step.position))
            largest = max(largest, header.max_timestamp)
    except CorruptMessage as error:
        raise _doubt(segment, str(error)) from None
    return largest


def _doubt(segment: Segment, reason: str) -> TimesInDoubt:
    return TimesInDoubt(f"{segment.path()}: time index: {reason}", segment.base_offset)
