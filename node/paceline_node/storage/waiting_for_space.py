"""What cannot be refused when there is no room for it: it waits.

A running node refuses clients what finds no room, and goes on. A start, or the removal of a deleted
log, has nobody to refuse. The disk is sound, and a node that ended itself would only be started
again into the same shortage.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
import trio

from paceline_node.env import is_full

_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
RETRY_S = 1.0
"""Between two tries, while there is no room."""

T = TypeVar("T")


async def when_there_is_room(work: Callable[[], Awaitable[T]], waits: list[str]) -> T:
    """The result of ``work``, begun anew, as long as it fails for want of room or of descriptors.
    Meanwhile ``waits`` (``Env.waits``) says so.

    ``work`` must be what a crash may interrupt anywhere, and close what it opened when it fails.
    Raises what else it raises; may be cancelled at any time."""
    wait: str | None = None
    try:
        while True:
            try:
                return await work()
            except OSError as error:
                if not is_full(error):
                    raise
                if wait is None:
                    wait = _told(error)
                    waits.append(wait)
            await trio.sleep(RETRY_S)
    finally:
        if wait is not None:
            waits.remove(wait)


def _told(error: OSError) -> str:
    structlog.get_logger(component="disk").error(
        "waiting for room on the disk, or for file descriptors",
        path=error.filename,
        reason=str(error),
    )
    what = "file descriptors" if error.errno in _DESCRIPTORS else "room on the disk"
    return f"waiting for {what}: {error.strerror}"
