from __future__ import annotations

import pytest

from paceline_cluster.faulty.clock import SkewedClock


def test_time_passes_at_the_rate_of_the_moment_and_never_jumps() -> None:
    real, rate = 100.0, 1.0
    clock = SkewedClock(lambda: rate, lambda: real)
    assert clock.current_time() == 100.0
    real = 110.0
    assert clock.current_time() == 110.0
    rate = 1.5
    assert clock.current_time() == 110.0
    real = 120.0
    assert clock.current_time() == 125.0
    assert clock.deadline_to_sleep_time(128.0) == pytest.approx(2.0)
    rate = 0.0  # seen while it is being written
    assert clock.current_time() == 125.0
    assert clock.deadline_to_sleep_time(128.0) == pytest.approx(2.0)
    rate = 0.5
    assert clock.current_time() == 125.0
    real = 124.0
    assert clock.current_time() == 127.0
    assert clock.deadline_to_sleep_time(128.0) == pytest.approx(2.0)
