"""Which segments go."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from paceline_node.storage.retention import RetentionLimits, expired_count, first_in_doubt

HOUR = 3_600_000


class SegmentFacts(NamedTuple):
    """What retention looks at."""

    next_offset: int
    size: int
    max_timestamp: int
    created_ms: int = -1
    is_newest_proven: bool = True
    is_created_proven: bool = True
    is_whole: bool = True


FOUR = [SegmentFacts(10 * (n + 1), 100, 1_000 * (n + 1)) for n in range(4)]  # ends 10..40


@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "now_ms", "high_watermark", "count"),
    [
        (None, None, 10**12, 40, 0),
        (1_000, None, 2_000, 40, 0),  # exactly as old as allowed
        (1_000, None, 2_001, 40, 1),
        (1_000, None, 3_001, 40, 2),
        (1_000, None, 10**12, 40, 3),  # never the active one
        (1_000, None, 10**12, 20, 2),  # nothing above the high watermark
        (1_000, None, 10**12, 9, 0),
        (1_000, None, 500, 40, 0),  # a clock that jumped back deletes nothing
        (None, 400, 0, 40, 0),
        (None, 301, 0, 40, 0),
        (None, 300, 0, 40, 1),
        (None, 100, 0, 40, 3),
        (None, 0, 0, 40, 3),
        (None, 0, 0, 19, 1),
        (1_000, 200, 2_001, 40, 2),  # either limit is enough
    ],
)
def test_expired_count(
    retention_ms: int | None,
    retention_bytes: int | None,
    now_ms: int,
    high_watermark: int,
    count: int,
) -> None:
    limits = RetentionLimits(retention_ms, retention_bytes, HOUR)
    assert expired_count(FOUR, limits, now_ms=now_ms, high_watermark=high_watermark) == count


def test_a_young_segment_protects_what_is_behind_it() -> None:
    facts = [SegmentFacts(10, 100, 9_000), SegmentFacts(20, 100, 1), SegmentFacts(30, 100, 1)]
    limits = RetentionLimits(1_000, None, HOUR)
    assert expired_count(facts, limits, now_ms=9_500, high_watermark=30) == 0


def test_records_without_a_time_do_not_age() -> None:
    facts = [SegmentFacts(10, 100, -1), SegmentFacts(20, 100, 1)]
    assert (
        expired_count(facts, RetentionLimits(1, None, HOUR), now_ms=10**12, high_watermark=20) == 0
    )


def test_a_record_from_the_future_keeps_no_log_for_ever() -> None:
    """One of 2^63-1 once did. What lies with it is as old as the last that was written there."""
    limits = RetentionLimits(1_000, None, HOUR)
    future = 2**63 - 1

    def count(facts: list[SegmentFacts], now_ms: int) -> int:
        return expired_count(facts, limits, now_ms=now_ms, high_watermark=40)

    known = [SegmentFacts(10, 100, future, 500), SegmentFacts(20, 100, 1, 700)]
    assert count(known, 1_700) == 0
    assert count(known, 1_701) == 1
    # The one behind it is empty yet: then it was written to for as long as a segment may be.
    idle = [SegmentFacts(10, 100, future, 500), SegmentFacts(20, 0, -1, -1)]
    assert count(idle, HOUR + 1_500) == 0
    assert count(idle, HOUR + 1_501) == 1
    nothing_known = [SegmentFacts(10, 100, future), SegmentFacts(20, 0, -1)]
    assert count(nothing_known, 10**15) == 0


def test_nothing_goes_by_a_word_that_is_not_proven() -> None:
    limits = RetentionLimits(1_000, None, HOUR)
    future = 2**63 - 1

    def judge(*facts: SegmentFacts, now_ms: int = 10_000) -> tuple[int, int | None]:
        known = [*facts, SegmentFacts(90, 100, 1)]
        return (
            expired_count(known, limits, now_ms=now_ms, high_watermark=90),
            first_in_doubt(known, limits, now_ms=now_ms, high_watermark=90),
        )

    old = SegmentFacts(10, 100, 1)
    doubted = SegmentFacts(20, 100, 1, is_newest_proven=False)
    assert judge(old, doubted, SegmentFacts(30, 100, 1)) == (1, 1)
    assert judge(old, doubted._replace(is_newest_proven=True)) == (2, None)
    assert judge(doubted._replace(max_timestamp=9_500)) == (0, None)  # young by its own word
    ahead = SegmentFacts(10, 100, future)
    assert judge(ahead, SegmentFacts(20, 100, 1, 700, is_created_proven=False)) == (0, 1)
    assert judge(ahead, SegmentFacts(20, 100, 1, 700)) == (2, None)
    # What the next one began with says nothing where the records of this one have a time.
    assert judge(SegmentFacts(10, 100, 9_500), SegmentFacts(20, 100, 1, 1)) == (0, None)
    # What is damaged may have been as young as whatever could be written there.
    hurt = SegmentFacts(10, 100, 1, is_whole=False)
    assert judge(hurt, SegmentFacts(20, 100, 1, 9_500)) == (0, None)
    assert judge(hurt, SegmentFacts(20, 100, 1, 8_000)) == (2, None)
    # Below the log start all has been decided.
    known = [doubted, SegmentFacts(30, 100, 1), SegmentFacts(40, 100, 1)]
    assert (
        expired_count(known, limits, now_ms=10_000, high_watermark=40, log_start=20),
        first_in_doubt(known, limits, now_ms=10_000, high_watermark=40, log_start=20),
    ) == (2, None)
