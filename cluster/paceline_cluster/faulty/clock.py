"""A monotonic clock that goes too fast or too slow, on command."""

from __future__ import annotations

import time
from collections.abc import Callable

from trio.abc import Clock


class SkewedClock(Clock):
    """Trio's time: it passes ``rate()`` times as fast as it should, from the moment that says so,
    and never jumps. ``real`` is the true time in seconds."""

    def __init__(
        self, rate: Callable[[], float], real: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._real = real
        self._shown = self._since = real()
        self._speed = 1.0

    def start_clock(self) -> None:
        """It goes already."""

    def current_time(self) -> float:
        now = self._real()
        shown = self._shown + (now - self._since) * self._speed
        speed = self._rate()
        # Whoever switches it writes while this reads: nothing but a speed is taken for one.
        if speed > 0 and speed != self._speed:
            self._shown, self._since, self._speed = shown, now, speed
        return shown

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return (deadline - self.current_time()) / self._speed
