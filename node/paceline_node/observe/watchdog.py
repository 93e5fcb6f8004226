"""How late the event loop is (DESIGN 1.5).

Sessions and elections must time out later than four times the worst delay seen here, or a busy
node looks dead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog
import trio

from paceline_node.observe.loop_slices import SliceMeter

INTERVAL_S = 0.2
"""Every waking of an idle process costs 0.2 to 0.3 ms of CPU; what lasts longer is always seen."""
LATE_S = 0.25
WINDOW_S = 30.0


class LoopWatchdog:
    """Sleeps 0.2 s at a time and measures how much later it wakes: a block of the loop shows by
    what of it lies behind the moment of waking, so the longest of many is nearly true. With a
    ``stopwatch``, ``slices`` says which tasks it was."""

    def __init__(self, stopwatch: Callable[[], float] | None = None) -> None:
        self.slices = None if stopwatch is None else SliceMeter(stopwatch)
        self._worst_s = 0.0
        self._worst_before_s = 0.0
        self._log = structlog.get_logger(component="watchdog")

    @property
    def worst_s(self) -> float:
        """The longest delay of the last 30 to 60 seconds."""
        return max(self._worst_s, self._worst_before_s)

    def samples(self) -> Iterable[tuple[tuple[str, ...], float]]:
        """The gauge ``loop_lag_seconds``."""
        return [((), self.worst_s)]

    async def run(self) -> None:
        """Measure until cancelled."""
        if self.slices is None:
            await self._watch()
            return
        trio.lowlevel.add_instrument(self.slices)
        try:
            await self._watch()
        finally:
            trio.lowlevel.remove_instrument(self.slices)

    async def _watch(self) -> None:
        window_ends = trio.current_time() + WINDOW_S
        while True:
            due = trio.current_time() + INTERVAL_S
            await trio.sleep_until(due)
            now = trio.current_time()
            self.measured(now - due)
            if now >= window_ends:
                self._worst_before_s, self._worst_s = self._worst_s, 0.0
                if self.slices is not None:
                    self.slices.next_window()
                window_ends = now + WINDOW_S

    def measured(self, late_s: float) -> None:
        """The loop came back ``late_s`` after it should have."""
        self._worst_s = max(self._worst_s, late_s)
        if late_s > LATE_S:
            self._log.warning("event loop was late", late_s=round(late_s, 3))
