"""Which segments may be deleted (SETTLED B8). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class SegmentFacts(Protocol):
    """What retention looks at: the end offset (exclusive), bytes, and largest record time."""

    @property
    def next_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """None: no limit. Both may be set; either is enough to delete."""

    retention_ms: int | None
    retention_bytes: int | None


def expired_count(
    segments: Sequence[SegmentFacts], limits: RetentionLimits, *, now_ms: int, high_watermark: int
) -> int:
    """How many of the oldest segments to delete.

    The last one is active and never counted; neither is one that reaches above the high
    watermark: what is not committed yet cannot have expired. Age is that of the youngest record,
    and a segment whose records carry no time (-1) does not age. By size, the oldest goes as long
    as what remains still has ``retention_bytes``.
    """
    total = sum(segment.size for segment in segments)
    count = 0
    for segment in segments[:-1]:
        if segment.next_offset > high_watermark:
            break
        aged = (
            limits.retention_ms is not None
            and segment.max_timestamp >= 0
            and now_ms - segment.max_timestamp > limits.retention_ms
        )
        total -= segment.size
        if not aged and (limits.retention_bytes is None or total < limits.retention_bytes):
            break
        count += 1
    return count
