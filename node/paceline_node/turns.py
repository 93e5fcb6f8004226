"""Pauses for those who go through thousands of partitions on the event loop."""

from __future__ import annotations

import trio

AT_A_TIME = 250
"""Partitions that are looked at without a pause: a few milliseconds."""


async def pause_after(seen: int) -> None:
    """Called with how many were looked at: lets everybody else have a turn from time to time."""
    if seen % AT_A_TIME == 0:
        await trio.lowlevel.checkpoint()
