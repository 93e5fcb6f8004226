"""Lines about what strangers do, who may do it as often as they like.

A line for each would fill a disk (80 million connections a day that begin with nonsense were 16 GB
of them), and none would hide an attack and a client that is set up wrongly alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog
import trio

LINES = 10
PERIOD_S = 60.0


class _Window:
    __slots__ = ("began", "left_out", "lines")

    def __init__(self, now: float) -> None:
        self.began = now
        self.lines = 0
        self.left_out = 0


class RateLimitedLog:
    """Of each event and cause ten lines a minute. The first of a new minute says how many were left
    out before it. Causes are few: names of error classes, protocols; never a client's words."""

    def __init__(self, *, clock: Callable[[], float] = trio.current_time, **facts: Any) -> None:
        self._log = structlog.get_logger(**facts)
        self._clock = clock
        self._windows: dict[tuple[str, str], _Window] = {}

    def info(self, event: str, *, cause: str, **facts: Any) -> None:
        """A line of what is a client's affair."""
        if (left_out := self._admits(event, cause)) is not None:
            self._log.info(event, **facts, **left_out)

    def warning(self, event: str, *, cause: str, **facts: Any) -> None:
        """A line of what an operator may act on."""
        if (left_out := self._admits(event, cause)) is not None:
            self._log.warning(event, **facts, **left_out)

    def error(self, event: str, *, cause: str, **facts: Any) -> None:
        """A line of what is our fault."""
        if (left_out := self._admits(event, cause)) is not None:
            self._log.error(event, **facts, **left_out)

    def _admits(self, event: str, cause: str) -> dict[str, int] | None:
        now = self._clock()
        window = self._windows.get((event, cause))
        told: dict[str, int] = {}
        if window is None or now - window.began >= PERIOD_S:
            if window is not None and window.left_out:
                told = {"left_out": window.left_out}
            window = self._windows[event, cause] = _Window(now)
        window.lines += 1
        if window.lines > LINES:
            window.left_out += 1
            return None
        return told
