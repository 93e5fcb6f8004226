"""A nursery whose errors arrive as users expect them: one error, not a group of one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def open_scope() -> AsyncIterator[trio.Nursery]:
    """A nursery that is cancelled when the body ends.

    An error of the body, or of one task, leaves as itself, also when the caller is cancelled in the
    same moment (the next checkpoint outside says so again). Several at once stay a group: at most
    one of them is the user's, so the others are bugs to be seen.
    """
    alone: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        cancelled, errors = group.split(trio.Cancelled)
        if errors is not None and len(errors.exceptions) > 1:
            raise
        alone = (errors or cancelled or group).exceptions[0]
    if alone is not None:
        raise alone
