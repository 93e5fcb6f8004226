"""A value that a callback delivers and one task awaits."""

from __future__ import annotations

from typing import Generic, TypeVar

import trio

from paceline.errors import PacelineError

T = TypeVar("T")


class Future(Generic[T]):
    """Bridges a ``done(result)`` callback to ``await``; the event is made only if one must wait."""

    __slots__ = ("_event", "_value")

    def __init__(self) -> None:
        self._value: T | PacelineError | None = None
        self._event: trio.Event | None = None

    def deliver(self, value: T | PacelineError) -> None:
        """Store the value (once) and wake the waiter."""
        assert self._value is None, "an answer is delivered once"
        self._value = value
        if self._event is not None:
            self._event.set()

    async def wait(self) -> T:
        """The delivered value, once; raises it when it is an error. Cancel-safe."""
        if self._value is None:
            self._event = trio.Event()
            await self._event.wait()
        value = self._value
        assert value is not None
        if isinstance(value, PacelineError):
            try:
                raise value
            finally:
                del value, self._value  # whose frames lead back here
        return value
