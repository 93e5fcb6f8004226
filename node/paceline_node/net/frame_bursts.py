"""Joining the frames of one synchronous step.

One fetch of a follower can move the high watermark past the writes of many requests, and each is
answered there and then. A system call for each answer would cost more than all the rest of the
answer, and wake the client each time; so answers wait for the end of the step.
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol


class Held(Protocol):
    """Something that keeps frames back while a burst is open."""

    def depart(self) -> None:
        """Send what was kept back; must not raise."""


class Burst:
    """``with burst:`` round a step that may send many frames. Streams that belong to it keep their
    frames until the outermost block ends; no await may lie inside. Blocks nest."""

    __slots__ = ("_depth", "_held")

    def __init__(self) -> None:
        self._depth = 0
        self._held: dict[Held, None] = {}

    def keep(self, held: Held) -> bool:
        """Whether a burst is open; ``held`` will be told when it ends."""
        if not self._depth:
            return False
        self._held[held] = None
        return True

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if not self._depth and self._held:
            held, self._held = self._held, {}
            for each in held:
                each.depart()
