"""Large work goes a little at a time, and small work passes it by."""

from __future__ import annotations

import trio
import trio.testing

from paceline_node.services.transactions.work_limits import (
    LARGE_AT_ONCE,
    SMALL_AT_ONCE,
    SMALL_UNITS,
    WorkLimits,
)


async def test_small_work_passes_large_work_by() -> None:
    lanes = WorkLimits()
    running = {"small": 0, "large": 0}
    ends = trio.Event()

    async def work(kind: str, units: int) -> None:
        async with lanes.enter(units):
            running[kind] += 1
            await ends.wait()

    async with trio.open_nursery() as nursery:
        for _ in range(200):
            nursery.start_soon(work, "large", SMALL_UNITS + 1)
        await trio.testing.wait_all_tasks_blocked()
        assert running == {"small": 0, "large": LARGE_AT_ONCE}
        for _ in range(SMALL_AT_ONCE + 1):
            nursery.start_soon(work, "small", SMALL_UNITS)
        await trio.testing.wait_all_tasks_blocked()
        assert running == {"small": SMALL_AT_ONCE, "large": LARGE_AT_ONCE}
        ends.set()
    assert running == {"small": SMALL_AT_ONCE + 1, "large": 200}


async def test_room_is_given_back_by_what_fails() -> None:
    lanes = WorkLimits()
    for _ in range(LARGE_AT_ONCE + 1):
        try:
            async with lanes.enter(SMALL_UNITS + 1):
                raise ValueError
        except ValueError:
            pass
