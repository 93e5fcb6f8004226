"""Finding batches in a log: by offset for fetches, by time for list-offsets.

What belongs here: which file and which bytes. Whether a caller may see them (high watermark,
last stable offset) is the partition's business; it passes an end offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paceline.errors import CorruptMessage, UnsupportedCompression
from paceline.values import dataclass
from paceline.wire.batch import (
    BatchHeader,
    PayloadKind,
    TimestampType,
    iter_range,
    read_extension,
    verify,
)
from paceline.wire.records import decode_records
from paceline_node.env import File, ReadableFile
from paceline_node.storage.log_segment import Boundary, Segment, Step
from paceline_node.storage.time_index_check import TimeIndexCheck


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Whole batches in a row, in one file, of whichever tier (DESIGN 11).

    Valid until the log gives up the file (retention, truncation), some time after which reading
    raises OSError; use it at once. For ``sendfile`` ask ``file.fileno()`` anew after every await.
    """

    file: ReadableFile
    position: int
    size: int
    base_offset: int
    next_offset: int

    async def read_async(self) -> bytes:
        """The bytes, through a thread: for large or cold slices."""
        return await self.file.read(self.size, self.position)

    def batches(self, data: bytes) -> Iterator[tuple[int, BatchHeader]]:
        """The batches in ``data``, which was read from here, as (position, header); checksums are
        the caller's to check. Raises CorruptMessage, also where base offsets are not in a row."""
        return iter_range(data, self.base_offset, self.next_offset)


@dataclass(frozen=True, slots=True)
class LocalSlice(LogSlice):
    """A slice of a file on this node's disk."""

    file: File

    def read(self) -> bytes:
        """The bytes, inline: for slices of up to about 1 MiB at the end of the log."""
        return self.file.pread(self.size, self.position)


def locate(
    segment: Segment, offset: int, max_bytes: int, end_offset: int, interval: int
) -> LocalSlice | None:
    """Whole batches from the one that contains ``offset``, as ``Log.locate`` says; None when there
    is none below ``end_offset``. ``interval`` is the distance of index entries.

    Raises CorruptMessage where the segment is damaged.
    """
    try:
        return _locate(segment, offset, max_bytes, end_offset)
    except CorruptMessage:
        if segment.holes:
            raise
    # The index does not fit the file, or the file is damaged: building the index anew tells.
    segment.reindex(interval)
    return _locate(segment, offset, max_bytes, end_offset)


def _locate(segment: Segment, offset: int, max_bytes: int, end_offset: int) -> LocalSlice | None:
    behind = _good_until(segment, offset)
    first = segment.find(offset)
    end_offset = min(end_offset, behind.offset)
    if first is None or first.next_offset > end_offset:
        return None
    end = Boundary(first.end, first.next_offset)
    by_size = segment.boundary_at_position(min(first.position + max_bytes, behind.position))
    if by_size.position > end.position:
        end = max(end, min(by_size, segment.boundary_at_offset(end_offset)))
    segment.remember(end)
    return LocalSlice(
        segment.file, first.position, end.position - first.position, first.base_offset, end.offset
    )


def _good_until(segment: Segment, offset: int) -> Boundary:
    """The end of the undamaged bytes that ``offset`` lies in."""
    for hole in segment.holes:
        if hole.start <= offset < hole.end:
            raise CorruptMessage(f"{segment.path()}: offset {offset} is damaged")
        if offset < hole.start:
            return Boundary(hole.position, hole.start)
    return Boundary(segment.size, segment.next_offset)


def offset_for_timestamp(
    segments: Sequence[Segment], timestamp_ms: int, start_offset: int
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record at or behind ``start_offset`` that is not older than
    ``timestamp_ms``; None when all are. Damaged ranges are passed over. Raises TimesInDoubt."""
    witness = TimeIndexCheck()
    for segment in segments:
        if segment.next_offset <= start_offset:
            continue
        witness.knows_largest(segment)
        if segment.max_timestamp < timestamp_ms:
            continue
        witness.knows_before(segment, timestamp_ms)
        known = max(start_offset, segment.times.last_below(timestamp_ms))
        step = segment.find(segment.readable_from(known))
        if step is None:
            continue
        for each in segment.walk(Boundary(step.position, step.base_offset)):
            if segment.batch_timestamps(each.position)[1] < timestamp_ms:
                continue
            found = _first_record(segment, each, timestamp_ms, start_offset)
            if found is not None:
                return found
    return None


def largest_timestamp(segments: Sequence[Segment], start_offset: int, end_offset: int) -> int:
    """The largest time of the batches between two offsets; -1 when there is none. Damaged ranges
    are passed over. Raises TimesInDoubt."""
    witness, largest = TimeIndexCheck(), -1
    for segment in segments:
        if segment.next_offset <= start_offset or segment.base_offset >= end_offset:
            continue
        witness.knows_largest(segment)
        if segment.max_timestamp <= largest:
            continue
        if segment.base_offset >= start_offset and segment.next_offset <= end_offset:
            largest = segment.max_timestamp
        else:
            witness.knows_within(segment, end_offset)
            largest = max(largest, _largest_within(segment, start_offset, end_offset))
    return largest


def _largest_within(segment: Segment, start_offset: int, end_offset: int) -> int:
    largest, known = -1, start_offset
    if segment.base_offset >= start_offset:
        # Entries tell the largest time so far; only what follows the last one has to be seen.
        largest, known = segment.times.last_within(end_offset)
    first = segment.find(segment.readable_from(known))
    if first is None:
        return largest
    for step in segment.walk(Boundary(first.position, first.base_offset)):
        if step.next_offset > end_offset:
            break
        largest = max(largest, segment.batch_timestamps(step.position)[1])
    return largest


def _first_record(
    segment: Segment, step: Step, timestamp_ms: int, start_offset: int
) -> tuple[int, int] | None:
    data = segment.file.pread(step.end - step.position, step.position)
    header = verify(data)
    if header.record_count == 0:
        return None
    if header.timestamp_type is TimestampType.APPEND:
        return max(header.base_offset, start_offset), header.max_timestamp
    if header.is_extended and read_extension(data).kind is not PayloadKind.RECORDS:
        # Not v2 records: times are known for the batch as a whole.
        return max(header.base_offset, start_offset), header.max_timestamp
    try:
        records = decode_records(data)
    except UnsupportedCompression:
        return max(header.base_offset, start_offset), header.max_timestamp
    for record in records:
        if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
            return record.offset, record.timestamp_ms
    return None
