"""Waiting at the end of segments for data, for readers of both dialects (DESIGN 8.3)."""

from __future__ import annotations

import trio

from paceline.errors import OffsetOutOfRange
from paceline_node.env import Env
from paceline_node.services.segments.led_segment import LedSegment
from paceline_node.services.segments.segment_reads import SegmentBounds

MAX_READ_REPLY_BYTES = 2 * 1024 * 1024
LEAST_READ_BYTES = 8


class TailReads:
    """One connection's waits for data, each of at most ``wait_s``."""

    def __init__(self, env: Env, wait_s: float) -> None:
        self._env = env
        self._wait_s = wait_s
        self._waits: dict[trio.CancelScope, None] = {}
        self._hurries = False

    def hurry(self) -> None:
        """The client says no more: what waits for data answers as it is, now and later."""
        self._hurries = True
        for scope in list(self._waits):
            scope.cancel()

    async def bounds(
        self, segment: LedSegment, position: int, suggested_length: int
    ) -> SegmentBounds:
        """What may be read, once there is something at ``position`` or nothing came in time.

        Raises OffsetOutOfRange beyond the log, NotLeader.
        """
        deadline = self._env.now() + self._wait_s
        while True:
            segment.check_serving()
            bounds = segment.bounds()
            if position > bounds.log_end:
                raise OffsetOutOfRange(
                    f"{segment}: byte {position} is beyond the end {bounds.log_end}"
                )
            left_s = deadline - self._env.now()
            at_end = position >= bounds.end
            pointless = bounds.is_sealed or not suggested_length or self._hurries
            if not at_end or pointless or left_s <= 0:
                return bounds
            await self._wait_for_more(segment, left_s)

    async def _wait_for_more(self, segment: LedSegment, wait_s: float) -> None:
        with trio.CancelScope() as scope:
            self._waits[scope] = None
            try:
                await segment.wait_for_more(wait_s)
            finally:
                del self._waits[scope]
