"""Work that can be done in stretches: a generator yields the units spent since it last did.

Pure, so that sans-I/O cores can offer it: who calls them runs it at once, or in slices
(``loop_turns.py``). A unit is about what one partition, topic or record of a request costs, at most
some 20 microseconds: units and not a clock tell how long a slice is, so that a simulation repeats.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Work = Generator[int, None, T]
"""Work whose result is a ``T``."""


def at_once(work: Generator[int, None, T]) -> T:
    """The result of ``work`` without a pause, where there is little of it."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
