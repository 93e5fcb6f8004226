"""What cannot be refused when there is no room for it: it waits.

A running node refuses clients what finds no room, and goes on. A start, or the removal of a deleted
log, has nobody to refuse. The disk is sound, and a node that ended itself would only be started
again into the same shortage.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
import trio

from paceline_node.env import is_full

RETRY_S = 1.0
"""Between two tries, while there is no room."""

T = TypeVar("T")


async def when_there_is_room(work: Callable[[], Awaitable[T]]) -> T:
    """The result of ``work``, begun anew, as long as it fails for want of room or of descriptors.

    ``work`` must be what a crash may interrupt anywhere, and close what it opened when it fails.
    Raises what else it raises; may be cancelled at any time."""
    told = False
    while True:
        try:
            return await work()
        except OSError as error:
            if not is_full(error):
                raise
            if not told:
                structlog.get_logger(component="disk").error(
                    "waiting for room on the disk, or for file descriptors",
                    path=error.filename,
                    reason=str(error),
                )
                told = True
        await trio.sleep(RETRY_S)
