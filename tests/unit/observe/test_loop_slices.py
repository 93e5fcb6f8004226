"""Steps of tasks that keep the event loop."""

from __future__ import annotations

import trio

from paceline_node.observe.loop_slices import SliceMeter


class Clock:
    """Of a machine that has been up for a while; each look at it takes a millisecond."""

    def __init__(self) -> None:
        self.now = 5000.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


async def test_long_steps_are_told_under_their_task_s_name() -> None:
    clock = Clock()
    meter = SliceMeter(clock)

    async def busy() -> None:
        await trio.lowlevel.checkpoint()
        clock.now += 0.3
        await trio.lowlevel.checkpoint()

    trio.lowlevel.add_instrument(meter)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(busy, name="busy")
    finally:
        trio.lowlevel.remove_instrument(meter)
    [((name,), seconds)] = meter.longest()
    assert (name, round(seconds, 1)) == ("busy", 0.3)
    assert list(meter.too_long()) == [(("busy",), 1.0)]


async def test_the_step_that_begins_the_measuring_is_not_measured() -> None:
    """A node seemed to have kept its loop for as long as the machine had been up."""
    meter = SliceMeter(Clock())
    trio.lowlevel.add_instrument(meter)
    try:
        await trio.lowlevel.checkpoint()
    finally:
        trio.lowlevel.remove_instrument(meter)
    assert list(meter.longest()) == []
