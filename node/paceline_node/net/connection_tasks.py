"""The tasks of one connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def connection_tasks() -> AsyncIterator[trio.Nursery]:
    """A nursery that leaves no cycle behind when its body fails (DESIGN 6).

    trio would cancel the tasks from within the frame that then keeps the group of all errors, and
    the tasks' errors refer to the frame that has cancelled them. Cancelled from here they do not.
    """
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except BaseException:
            nursery.cancel_scope.cancel("the connection failed")
            raise
