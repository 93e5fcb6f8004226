"""A bucket for what replicas out of sync are sent, whose rate may change at any time."""

from __future__ import annotations

from paceline_node.replication.catchup_throttle import UNLIMITED, CatchupThrottle


class Rate:
    """What the setting says."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self) -> float:
        return self.value


def test_without_a_bound_everything_is_allowed() -> None:
    throttle = CatchupThrottle(Rate(-1))
    assert throttle.allowed(0) == UNLIMITED
    throttle.take(10**9)
    assert throttle.allowed(0) == UNLIMITED
    assert (throttle.sent, throttle.wait_s()) == (10**9, 0)


def test_over_time_the_rate_holds() -> None:
    throttle = CatchupThrottle(Rate(1000))
    now, end_s = 0.0, 60.0
    while now < end_s:
        allowed = throttle.allowed(now)
        if allowed:
            throttle.take(int(allowed))
        else:
            assert 0 < throttle.wait_s() <= 1
            now += throttle.wait_s()
    assert 59_000 <= throttle.sent <= 62_000


def test_a_batch_that_was_too_large_is_waited_for() -> None:
    throttle = CatchupThrottle(Rate(1000))
    assert throttle.allowed(0) == 1000
    throttle.take(5000)
    assert throttle.allowed(1) == 0
    assert throttle.allowed(4) == 0, "less than a quarter of a second's worth is saved up"
    assert throttle.allowed(5) == 1000


def test_the_rate_may_change_meanwhile() -> None:
    rate = Rate(0)
    throttle = CatchupThrottle(rate)
    assert throttle.allowed(0) == 0
    assert throttle.allowed(3600) == 0, "0 holds up altogether"
    assert throttle.wait_s() > 0
    rate.value = 1000
    assert throttle.allowed(3601) == 1000
    throttle.take(10**6)
    assert throttle.allowed(3602) == 0
    assert throttle.wait_s() <= 1, "it is asked again before the debt is paid"
    rate.value = -1
    assert throttle.allowed(3602) == UNLIMITED
    rate.value = 1000
    assert throttle.allowed(3602) == 1000, "no debt is left of the time without a bound"
