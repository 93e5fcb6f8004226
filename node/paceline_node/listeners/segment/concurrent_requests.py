"""Requests of a connection that are carried out beside its reader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio


class ConcurrentRequests:
    """Those of one key one after the other, as they came. ``ended`` is called after each."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._last: dict[object, trio.Event] = {}
        self.count = 0
        """Under way."""

    async def start(
        self,
        nursery: trio.Nursery,
        gate: trio.Semaphore,
        key: object,
        work: Callable[[], Awaitable[None]],
    ) -> None:
        """Let ``work`` be done; the reader waits while too many of its kind are under way."""
        await gate.acquire()
        self.count += 1
        former = self._last.get(key)
        ended = self._last[key] = trio.Event()
        nursery.start_soon(self._run, gate, key, former, ended, work)

    async def _run(
        self,
        gate: trio.Semaphore,
        key: object,
        former: trio.Event | None,
        ended: trio.Event,
        work: Callable[[], Awaitable[None]],
    ) -> None:
        try:
            if former is not None:
                await former.wait()
            await work()
        finally:
            ended.set()
            if self._last.get(key) is ended:
                del self._last[key]
            gate.release()
            self.count -= 1
            self._ended()
