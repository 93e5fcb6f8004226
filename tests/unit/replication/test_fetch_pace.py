"""How much a follower asks for: less of a slow leader, more again of a quick one."""

from __future__ import annotations

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


@given(
    most=st.integers(1, 64 * MIB),
    rate=st.floats(20_000, 1e9),
    backlog=st.integers(0, 200 * MIB),
)
def test_any_link_ends_any_backlog(most: int, rate: float, backlog: int) -> None:
    """At whatever rate the link carries bytes, few answers are lost and the rest make progress."""
    pace = FetchPace(most, 5.0)
    lost = 0
    for _ in range(20):
        asked = min(pace.max_bytes, backlog)
        took_s = asked / rate
        if took_s > 0.5 + pace.patience_s:
            pace.overdue()
            lost += 1
        else:
            pace.answered(asked, took_s)
            backlog -= asked
        assert min(64 * KIB, most) <= pace.max_bytes <= most
    assert lost <= 3
