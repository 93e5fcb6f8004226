"""Which segments may be deleted (DESIGN 7.2). Pure.

Nothing is deleted on the word of something that has no checksum. A segment that was only opened has
its times from an index and from an unread header: where these say that it has expired, every batch
that decides is read first (``scrubbing.scrub``), once in the life of the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, Self

from paceline.values import dataclass
from paceline_node.storage.log_settings import LogSettings


class SegmentFacts(Protocol):
    """What retention looks at: the end offset (exclusive), bytes, largest record time, when its
    first record was written (-1: not known), whether both are proven, and whether it has all its
    batches."""

    @property
    def next_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def created_ms(self) -> int: ...
    @property
    def is_newest_proven(self) -> bool: ...
    @property
    def is_created_proven(self) -> bool: ...
    @property
    def is_whole(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """None: no limit. Both may be set; either is enough to delete. ``segment_ms``: how long a
    segment is written to at most."""

    retention_ms: int | None
    retention_bytes: int | None
    segment_ms: int

    @classmethod
    def of(cls, settings: LogSettings) -> Self:
        """Those of a log."""
        return cls(settings.retention_ms, settings.retention_bytes, settings.segment_ms)


class _Expired(NamedTuple):
    segments: int
    in_doubt: int | None


def expired_count(
    segments: Sequence[SegmentFacts],
    limits: RetentionLimits,
    *,
    now_ms: int,
    high_watermark: int,
    log_start: int = 0,
) -> int:
    """How many of the oldest segments to delete; those below ``log_start`` are.

    The last one is active and never counted; neither is one that reaches above the high
    watermark: what is not committed yet cannot have expired. Age is that of the youngest record,
    and a segment whose records carry no time (-1) does not age; a record from the future is as old
    as the last that may have been written with it, so that no single one keeps a log for ever. By
    size, the oldest goes as long as what remains still has ``retention_bytes``.
    """
    return _expired(segments, limits, now_ms, high_watermark, log_start).segments


def first_in_doubt(
    segments: Sequence[SegmentFacts],
    limits: RetentionLimits,
    *,
    now_ms: int,
    high_watermark: int,
    log_start: int = 0,
) -> int | None:
    """The index of the segment to read because an older one, or itself, has expired by its word;
    None when nothing waits for that."""
    return _expired(segments, limits, now_ms, high_watermark, log_start).in_doubt


def _expired(
    segments: Sequence[SegmentFacts],
    limits: RetentionLimits,
    now_ms: int,
    high_watermark: int,
    log_start: int,
) -> _Expired:
    total = sum(segment.size for segment in segments)
    count = 0
    for segment, following in pairwise(segments):
        if segment.next_offset > high_watermark:
            break
        total -= segment.size
        is_kept = limits.retention_bytes is None or total < limits.retention_bytes
        if is_kept and segment.next_offset > log_start:
            if limits.retention_ms is None or segment.max_timestamp < 0:
                break
            if now_ms - _last_ms(segment, following, limits, now_ms) <= limits.retention_ms:
                break
            if not segment.is_newest_proven:
                return _Expired(count, count)
            if not _is_told(segment, now_ms):
                begun = count + 1 if following.created_ms >= 0 else count
                if not segments[begun].is_created_proven:
                    return _Expired(count, begun)
        count += 1
    return _Expired(count, None)


def _is_told(segment: SegmentFacts, now_ms: int) -> bool:
    """Whether the records there are say how old the youngest is."""
    return segment.is_whole and segment.max_timestamp <= now_ms


def _last_ms(
    segment: SegmentFacts, following: SegmentFacts, limits: RetentionLimits, now_ms: int
) -> int:
    """A time after which nothing was written to ``segment``."""
    if _is_told(segment, now_ms):
        return segment.max_timestamp
    if following.created_ms >= 0:
        closed = following.created_ms
    else:
        closed = now_ms if segment.created_ms < 0 else segment.created_ms + limits.segment_ms
    return closed if segment.max_timestamp > now_ms else max(segment.max_timestamp, closed)
