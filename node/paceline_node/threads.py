"""Work in a thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class _Failed(Generic[T]):
    """Frames of the thread keep it, and the error's traceback leads to them: so the error does not
    stay in it."""

    __slots__ = ("_error",)

    def __init__(self, error: Exception) -> None:
        self._error = error

    def taken(self) -> Exception:
        """The error, once."""
        error = self._error
        del self._error
        return error


async def in_thread(work: Callable[[], T], limiter: trio.CapacityLimiter) -> T:
    """What ``work`` gives; raises what it raises. Cancelled, it waits for it all the same.

    An error is handed over as a value: raised in the thread it would stay in a cycle of trio's, and
    with it what the work was about (``bare_errors.py``).
    """
    done = await trio.to_thread.run_sync(partial(_tried, work), limiter=limiter)
    if isinstance(done, _Failed):
        raise done.taken()
    return done


def _tried(work: Callable[[], T]) -> T | _Failed[T]:
    try:
        return work()
    except Exception as error:  # noqa: BLE001  it is raised where the work was asked for
        return _Failed(error)
