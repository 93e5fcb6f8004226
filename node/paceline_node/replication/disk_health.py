"""Whether this node's disk is good enough to lead (DESIGN 7; rows 17 to 19
of tests/sim/README.md). Pure: told what happened and what time it is.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from paceline_node.storage.flusher import SLOW_SYNC_S, FlushStatistics

WINDOW_S = 5.0
"""The span over which syncs are judged, how long they must be bad for the disk to be called slow,
and how long a refused write keeps it called full."""

_MIN_FREE_BYTES = 1 << 30
_MIN_FREE_PART = 50


def free_floor(total_bytes: int) -> int:
    """Free space below which writes are refused on a file system of ``total_bytes`` if nothing else
    is set: 1 GiB, or 2 % if that is more."""
    return max(_MIN_FREE_BYTES, total_bytes // _MIN_FREE_PART)


class Health:
    """What heartbeats tell the controller of this node's disk.

    ``degraded``: so slow, or so full, that leadership should move to another node. ``offline``:
    the disk failed; the node ends (storage/DESIGN 2.2).
    """

    def __init__(self) -> None:
        self.storage_full = False
        """Below the floor of free space."""
        self.slow = False
        self.offline = False
        self._lacking: dict[str, None] = {}

    @property
    def no_room(self) -> bool:
        """Something found no room: the file system is full, a quota, or the floor is too low."""
        return bool(self._lacking)

    def lacks_room(self, what: str, lacks: bool = True) -> None:
        """What this node must write found no room, or (not ``lacks``) some again."""
        if lacks:
            self._lacking[what] = None
        else:
            self._lacking.pop(what, None)

    @property
    def degraded(self) -> bool:
        return self.storage_full or self.no_room or self.slow

    @property
    def shortage(self) -> tuple[str, ...]:
        """That, and for what, the disk lacks room: what an operator has to mend."""
        if self._lacking:
            return (f"the disk is full: no room for {', '.join(self._lacking)}",)
        if self.storage_full:
            return ("the disk is nearly full: writes are refused (disk.min_free_bytes)",)
        return ()


class _Sample(NamedTuple):
    at: float
    syncs: int
    slow: int


class SlowDisk:
    """Tells a slow disk from its syncs: p99 of the last 5 s above 1 s, or one that hangs, for 5 s.

    Time passes for an idle disk, too: one that has nothing to sync has no slow syncs.
    """

    def __init__(self) -> None:
        self._bad_since: float | None = None
        self._slow_at = 0.0
        self._samples: deque[_Sample] = deque()

    def observe(self, now: float, figures: FlushStatistics) -> bool:
        """Judge what the flusher counted until ``now``; whether the disk is slow."""
        hangs = figures.running_s > SLOW_SYNC_S
        if hangs or (self._samples and figures.slow_count > self._samples[-1].slow):
            self._slow_at = now
        self._samples.append(_Sample(now, figures.count, figures.slow_count))
        while len(self._samples) > 1 and self._samples[1].at <= now - WINDOW_S:
            self._samples.popleft()
        before = self._samples[0]
        slow = figures.slow_count - before.slow
        above_p99 = slow * 100 > figures.count - before.syncs
        if not above_p99 and not hangs:
            self._bad_since = None
            return False
        if self._bad_since is None:
            self._bad_since = now
        return self._slow_at - self._bad_since >= WINDOW_S


class RefusedWrites:
    """Remembers for 5 s that a write was refused for want of room: then somebody may try again."""

    def __init__(self) -> None:
        self._last = float("-inf")

    def refused(self, now: float) -> None:
        self._last = now

    def recently(self, now: float) -> bool:
        return now - self._last < WINDOW_S
