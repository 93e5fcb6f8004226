"""A request of many parts, each of which is answered when it is: one answer, once all are in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, cast

R = TypeVar("R")


class MultiPartAnswer(Generic[R]):
    """Collects one result for each of ``count`` parts and hands them over, in the order of the
    request, when the last one is in and :meth:`all_begun` was called. It outlives the request, and
    keeps nothing of it but ``answer``."""

    __slots__ = ("_answer", "_missing", "_results")

    def __init__(self, count: int, answer: Callable[[list[R]], None]) -> None:
        self._answer = answer
        self._missing = count + 1
        self._results: list[R | None] = [None] * count

    def put(self, index: int, result: R) -> None:
        """What became of a part; maybe before others were begun."""
        assert self._results[index] is None, "a part is answered once"
        self._results[index] = result
        self._settle()

    def all_begun(self) -> None:
        """Nothing but results is to come. Raises what the answer raises, as :meth:`put` does."""
        self._settle()

    def _settle(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._answer(cast(list[R], self._results))
