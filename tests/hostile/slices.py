"""Whether a node keeps its event loop: what its tasks take of the processor at a time."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from paceline_node.observe.loop_slices import SliceMeter

HELD_S = 0.5
"""A step of this much processor time holds the loop. Handlers aim at a fiftieth of it; a slow or
busy machine makes every step several times longer, and the attacks took seconds."""


class NodeSlices(SliceMeter):
    """Measures only tasks of nodes, by the processor time of the loop's thread: neither waiting for
    the processor nor the test's own work counts."""

    def __init__(self) -> None:
        super().__init__(time.thread_time)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        code = getattr(task.coro, "cr_code", None)
        if code is not None and "paceline_node" in code.co_filename:
            super().after_task_step(task)

    @property
    def worst(self) -> tuple[float, str]:
        """The longest step, and whose it was."""
        found = [(seconds, name) for (name,), seconds in self.longest()]
        return max(found, default=(0.0, ""))


@contextmanager
def nobody_holds_the_loop(limit_s: float = HELD_S) -> Iterator[NodeSlices]:
    """Fails when a step of a node's task in the block takes ``limit_s`` or more."""
    meter = NodeSlices()
    gc.collect()
    # As a node's process does: what tests have piled up is not its work. It stays aside: to take it
    # back each time had every collection of the process look at all that its tests have loaded.
    gc.freeze()
    trio.lowlevel.add_instrument(meter)
    try:
        yield meter
    finally:
        trio.lowlevel.remove_instrument(meter)
    seconds, name = meter.worst
    assert seconds < limit_s, f"{name} kept the loop for {seconds:.2f} s"
