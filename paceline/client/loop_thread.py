"""Trio in a thread of its own, for the blocking facade."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

import trio

from paceline.errors import Closed

R = TypeVar("R")
T = TypeVar("T")

JOIN_S = 10.0
"""How long closing waits for the thread; it has nothing to do but close sockets."""


class _Abandoned(Exception):
    """Makes a context manager leave as if its body had failed."""


class _Runner:
    """What the thread works on. Knows nothing of its handle, so that losing that ends it."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.token: trio.lowlevel.TrioToken | None = None
        self.nursery: trio.Nursery | None = None
        self.stop = trio.Event()
        self.error: BaseException | None = None
        """What ended the loop, where that was no call of :meth:`end`."""
        self.thread = threading.Thread(target=self._run, name="paceline-client", daemon=True)

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.ready.set()

    async def _main(self) -> None:
        self.token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self.nursery = nursery
            self.ready.set()
            await self.stop.wait()
            nursery.cancel_scope.cancel()

    def end(self) -> None:
        """Cancel everything and wait for the thread; from any other thread, more than once."""
        if self.token is not None:
            try:
                self.token.run_sync_soon(self.stop.set)
            except trio.RunFinishedError:
                return
        if threading.current_thread() is not self.thread:
            self.thread.join(JOIN_S)


class Held(Generic[T]):
    """An async context manager that is open in the loop's thread."""

    def __init__(self, loop: LoopThread) -> None:
        self.value: T
        self.leave = trio.Event()
        self.left = trio.Event()
        self.is_abandoned = False
        self.error: Exception | None = None
        self._loop = loop
        self._closed = False

    def close(self, *, abandon: bool = False) -> None:
        """Leave the context manager; ``abandon`` as after an error. Raises what leaving raised."""
        if self._closed:
            return
        self._closed = True

        async def leave() -> None:
            self.is_abandoned = abandon
            self.leave.set()
            await self.left.wait()

        self._loop.call(leave)
        if self.error is not None:
            raise self.error


class LoopThread:
    """A running trio loop. Ends with :meth:`close`, when collected, or at interpreter exit."""

    def __init__(self) -> None:
        self._runner = _Runner()
        self._runner.thread.start()
        self._runner.ready.wait()
        self._finalizer = weakref.finalize(self, self._runner.end)

    def call(self, work: Callable[[], Awaitable[R]]) -> R:
        """Run ``work`` in the loop and wait for it. Raises what it raises, Closed after the end."""
        token = self._runner.token
        if token is None or not self._finalizer.alive:
            raise Closed("the client is closed")
        results: list[R] = []

        async def run() -> None:
            results.append(await work())

        with contextlib.suppress(trio.RunFinishedError, trio.Cancelled):
            trio.from_thread.run(run, trio_token=token)
        if not results:
            self._runner.thread.join(JOIN_S)
            raise Closed("the client was closed") from self._runner.error
        return results[0]

    def call_sync(self, work: Callable[[], R]) -> R:
        """As :meth:`call`, for a short synchronous piece of work."""

        async def run() -> R:
            await trio.lowlevel.checkpoint()
            return work()

        return self.call(run)

    def enter(self, manager: AbstractAsyncContextManager[T]) -> Held[T]:
        """Open a context manager in the loop. Raises what opening raises."""
        held: Held[T] = Held(self)

        async def start() -> None:
            assert self._runner.nursery is not None
            await self._runner.nursery.start(_hold, manager, held)

        self.call(start)
        return held

    def close(self) -> None:
        """Cancel what runs and end the thread; more than once does no harm."""
        self._finalizer()


async def _hold(
    manager: AbstractAsyncContextManager[T],
    held: Held[T],
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    try:
        async with manager as held.value:
            task_status.started()
            await held.leave.wait()
            if held.is_abandoned:
                raise _Abandoned
    except _Abandoned:
        return
    except Exception as error:
        # Before that it ends the loop: nobody may wait for what no longer runs.
        if not held.leave.is_set():
            raise
        held.error = error
    finally:
        held.left.set()
