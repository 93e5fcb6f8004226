"""Waiting at the end of segments for data, for readers of both dialects (DESIGN 8.3)."""

from __future__ import annotations

import trio

from paceline.errors import OffsetOutOfRange
from paceline_node.env import Env
from paceline_node.replication.partition import Partition
from paceline_node.services.segment_reads import SegmentBounds, bounds_of
from paceline_node.services.segments import SegmentService

MAX_READ_REPLY_BYTES = 2 * 1024 * 1024
LEAST_READ_BYTES = 8


class TailReads:
    """One connection's waits for data, each of at most ``wait_s``."""

    def __init__(self, env: Env, segments: SegmentService, wait_s: float) -> None:
        self._env = env
        self._segments = segments
        self._wait_s = wait_s
        self._waits: dict[trio.CancelScope, None] = {}
        self._hurries = False

    def hurry(self) -> None:
        """The client says no more: what waits for data answers as it is, now and later."""
        self._hurries = True
        for scope in list(self._waits):
            scope.cancel()

    async def bounds(
        self, partition: Partition, position: int, suggested_length: int
    ) -> SegmentBounds:
        """What may be read, once there is something at ``position`` or nothing came in time.

        Raises OffsetOutOfRange beyond the log, NotLeader.
        """
        deadline = self._env.now() + self._wait_s
        while True:
            partition.check_serving()
            bounds = bounds_of(partition)
            if position > bounds.log_end:
                raise OffsetOutOfRange(
                    f"{partition}: byte {position} is beyond the end {bounds.log_end}"
                )
            left_s = deadline - self._env.now()
            at_end = position >= bounds.end
            pointless = bounds.is_sealed or not suggested_length or self._hurries
            if not at_end or pointless or left_s <= 0:
                return bounds
            await self._wait_for_more(partition, left_s)

    async def _wait_for_more(self, partition: Partition, wait_s: float) -> None:
        with trio.CancelScope() as scope:
            self._waits[scope] = None
            try:
                await self._segments.wait_readable(partition, partition.high_watermark, wait_s)
            finally:
                del self._waits[scope]
