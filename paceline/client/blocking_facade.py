"""What every blocking object is made of: a thing of the trio client, reached from other threads."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Concatenate, Generic, ParamSpec, Self, TypeVar

from paceline.client.loop_thread import Held, LoopThread

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")
P = ParamSpec("P")


class Facade(Generic[T_co]):
    """Something of the trio client, reached from other threads."""

    def __init__(self, loop: LoopThread, inner: T_co) -> None:
        self._loop = loop
        self._inner = inner

    def _call(self, work: Callable[[T_co], R]) -> R:
        """Run a short synchronous piece of work in the loop's thread."""
        return self._loop.call_sync(functools.partial(work, self._inner))


def blocking_twin(
    method: Callable[Concatenate[T, P], Awaitable[R]],
) -> Callable[Concatenate[Facade[T], P], R]:
    """The blocking twin of an async method."""

    @functools.wraps(method)
    def call(self: Facade[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._loop.call(functools.partial(method, self._inner, *args, **kwargs))

    return call


class Open(Facade[T_co]):
    """A facade of a context manager's value: ``close`` leaves the context manager."""

    def __init__(self, loop: LoopThread, held: Held[T_co]) -> None:
        super().__init__(loop, held.value)
        self._held = held

    def close(self) -> None:
        """End it properly (a producer flushes first); more than once does no harm."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._held.close(abandon=error is not None)
