"""How often a leader counts positions as fetched again that nobody names."""

from __future__ import annotations

import pytest

from paceline_node.replication.replica_server import touch_pause_s


@pytest.mark.parametrize(
    ("positions", "lag_max_s", "pause_s"),
    [
        (1, 10.0, 0.2),
        (300, 10.0, 0.2),
        (3_000, 10.0, 1.5),
        (10_000, 10.0, 2.5),
        (10_000, 3.0, 0.75),
        (10_000, 0.1, 0.2),
    ],
)
def test_thousands_are_counted_less_often_but_before_they_would_lag(
    positions: int, lag_max_s: float, pause_s: float
) -> None:
    assert touch_pause_s(positions, lag_max_s) == pytest.approx(pause_s)
