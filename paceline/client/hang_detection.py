"""Whether the program still asks for records, or hangs."""

from __future__ import annotations

import trio


class Asking:
    """Entered while the program waits for a record or batch. ``most_s``: how long it may work on
    what it has; None: for ever. ``count`` is how often it asked; whoever hands out records without
    entering this counts here, too, from any thread."""

    def __init__(self, most_s: float | None) -> None:
        self.count = 0
        self._most_s = most_s
        self._waiting = 0
        self._asked = trio.Event()
        self._seen = (-1, 0.0)  # how often, and when that was seen

    def __enter__(self) -> None:
        self._waiting += 1
        self.count += 1
        self._asked.set()

    def __exit__(self, *_: object) -> None:
        self._waiting -= 1

    def is_stuck(self, *, excused: bool) -> bool:
        """Whether the program has asked for nothing since it was asked here for so long;
        ``excused``: it could not, as partitions are moving. To be called every few seconds."""
        count, at = self._seen
        now = trio.current_time()
        if self._waiting or excused or count != self.count:
            self._seen = (self.count, now)
            return False
        return self._most_s is not None and now - at > self._most_s

    async def again(self) -> None:
        """Return when the program asks."""
        if not self._waiting:
            self._asked = trio.Event()
            await self._asked.wait()
