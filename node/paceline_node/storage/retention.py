"""Which segments may be deleted (SETTLED B8). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol


class SegmentFacts(Protocol):
    """What retention looks at: the end offset (exclusive), bytes, largest record time, and when its
    first record was written (-1: not known)."""

    @property
    def next_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def created_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """None: no limit. Both may be set; either is enough to delete. ``segment_ms``: how long a
    segment is written to at most."""

    retention_ms: int | None
    retention_bytes: int | None
    segment_ms: int


def expired_count(
    segments: Sequence[SegmentFacts], limits: RetentionLimits, *, now_ms: int, high_watermark: int
) -> int:
    """How many of the oldest segments to delete.

    The last one is active and never counted; neither is one that reaches above the high
    watermark: what is not committed yet cannot have expired. Age is that of the youngest record,
    and a segment whose records carry no time (-1) does not age; a record from the future is as old
    as the last that may have been written with it, so that no single one keeps a log for ever. By
    size, the oldest goes as long as what remains still has ``retention_bytes``.
    """
    total = sum(segment.size for segment in segments)
    count = 0
    for segment, following in pairwise(segments):
        if segment.next_offset > high_watermark:
            break
        aged = (
            limits.retention_ms is not None
            and segment.max_timestamp >= 0
            and now_ms - min(segment.max_timestamp, _closed_ms(segment, following, limits, now_ms))
            > limits.retention_ms
        )
        total -= segment.size
        if not aged and (limits.retention_bytes is None or total < limits.retention_bytes):
            break
        count += 1
    return count


def _closed_ms(
    segment: SegmentFacts, following: SegmentFacts, limits: RetentionLimits, now_ms: int
) -> int:
    """A time after which nothing was written to ``segment``."""
    if following.created_ms >= 0:
        return following.created_ms
    return now_ms if segment.created_ms < 0 else segment.created_ms + limits.segment_ms
