"""Forgetting segment writers that have been silent for long (spec segment 10.4).

The leader writes a record with a cut-off time, now and then, and every replica forgets the
same writers at the same place of the log: never by a clock of its own (SETTLED B9).
"""

from __future__ import annotations

import structlog
import trio

from paceline.errors import PacelineError
from paceline_node.env import Env
from paceline_node.replication.partition import Partition
from paceline_node.services.segments import SegmentService

_TIMEOUT_S = 30.0


class SegmentExpiry:
    """Looks at all segments led here every ``pause_s``."""

    def __init__(self, env: Env, segments: SegmentService, *, ttl_ms: int, pause_s: float) -> None:
        self._env = env
        self._segments = segments
        self._ttl_ms = ttl_ms
        self._pause_s = pause_s
        self._log = structlog.get_logger(component="segments")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        task_status.started()
        while True:
            await trio.sleep(self._pause_s)
            cutoff_ms = self._env.host.wall_ms() - self._ttl_ms
            for partition in self._segments.led_here():
                if _has_expired(partition, cutoff_ms):
                    await self._expire(partition, cutoff_ms)

    async def _expire(self, partition: Partition, cutoff_ms: int) -> None:
        try:
            await self._segments.expire_writers(partition, cutoff_ms, timeout_s=_TIMEOUT_S)
        except PacelineError as error:
            # Nothing depends on when it happens: the next round tries again.
            self._log.warning(
                "segment writers not expired", partition=str(partition), error=str(error)
            )


def _has_expired(partition: Partition, cutoff_ms: int) -> bool:
    writers = partition.log.producers.writers()
    return any(writer.last_timestamp < cutoff_ms for writer in writers.values())
