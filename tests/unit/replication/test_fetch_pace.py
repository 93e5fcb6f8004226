"""How much a follower asks for: less of a slow leader, more again of a quick one."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from paceline_node.replication.fetch_pace import FetchPace

KIB, MIB = 1024, 1024 * 1024


def test_a_slow_answer_makes_the_next_take_a_second() -> None:
    pace = FetchPace(10 * MIB, 5.0)
    pace.answered(4 * MIB, 4.0)
    assert pace.max_bytes == MIB


def test_small_answers_say_nothing_of_the_link() -> None:
    """The leader may have waited for them."""
    pace = FetchPace(10 * MIB, 5.0)
    pace.answered(100, 30.0)
    assert pace.max_bytes == 10 * MIB


def test_it_grows_only_while_more_would_have_come() -> None:
    pace = FetchPace(10 * MIB, 5.0)
    pace.answered(10 * MIB, 10.0)
    pace.answered(100, 0.01)
    assert pace.max_bytes == MIB
    for _ in range(5):
        pace.answered(pace.max_bytes, 0.01)
    assert pace.max_bytes == 10 * MIB


def test_what_is_overdue_is_waited_for_longer_and_asked_for_in_smaller_parts() -> None:
    pace = FetchPace(10 * MIB, 5.0)
    pace.overdue()
    assert (pace.max_bytes, pace.patience_s) == (1280 * KIB, 10.0)
    for _ in range(5):
        pace.overdue()
    assert (pace.max_bytes, pace.patience_s) == (64 * KIB, 40.0)
    pace.answered(64 * KIB, 30.0)
    assert pace.patience_s == 5.0


def sizes(least: int, most: int) -> st.SearchStrategy[int]:
    """As many small as large ones."""
    powers = st.floats(math.log2(least), math.log2(most))
    return powers.map(lambda power: min(most, max(least, int(2**power))))


@given(
    most=sizes(KIB, 10 * MIB),
    rate=sizes(20_000, 10_000_000),
    backlog=sizes(KIB, 200 * MIB),
)
def test_any_link_brings_any_backlog_forward(most: int, rate: int, backlog: int) -> None:
    """At whatever rate the link carries bytes. An answer that is overdue is lost, but holds up the
    next one until the link has carried it."""
    pace = FetchPace(most, 5.0)
    lost, left, under_way = 0, backlog, 0.0
    for _ in range(40):
        asked = min(pace.max_bytes, left)
        limit_s = 0.5 + pace.patience_s
        took_s = (under_way + asked) / rate
        if took_s > limit_s:
            pace.overdue()
            lost += 1
            under_way += asked - rate * limit_s
        else:
            pace.answered(asked, took_s)
            left, under_way = left - asked, 0.0
        assert min(64 * KIB, most) <= pace.max_bytes <= most
    assert left < backlog
    # Each request is an eighth of the one before, and 64 KiB in the end; from the fourth on the
    # link has 40.5 s for what is under way.
    assert lost <= 3 + most * 8 / 7 / (40.5 * rate - 64 * KIB)
