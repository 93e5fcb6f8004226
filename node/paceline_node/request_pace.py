"""The pace of one request: what it has spent, in slices, and what is made for its answer.

Every Kafka handler whose work grows with what a request names, or with what the cluster has, goes
through its items by :meth:`Pace.each`, or says by :meth:`Pace.spend` what is about to be done. A
small piece of work costs no turn; from then on each slice waits for one, and for the memory that
what is made in it will take. So the size of a request's bytes does not matter, only its work.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, Self, TypeVar

from paceline_node.client_memory import Portion
from paceline_node.loop_turns import SLICE_UNITS, Turns
from paceline_node.sliced_work import Work

FREE_UNITS = 40
"""So much is done without a turn: a usual request, in a millisecond at most."""
UNIT_BYTES = 1024
"""What is made for an item of an answer: objects, mostly."""

T = TypeVar("T")


class Pace:
    """Of one request. ``room`` is charged for what its answer will be."""

    __slots__ = ("_room", "_turns", "left", "took_turns")

    def __init__(self, turns: Turns, room: Portion) -> None:
        self._turns = turns
        self._room = room
        self.left = FREE_UNITS
        """Units until the next turn."""
        self.took_turns = False
        """Whether it has turned out to be no small piece of work."""

    async def spend(self, units: int = 1, made_bytes: int = 0) -> None:
        """Wait until so much may be done, and ``made_bytes`` be made beside the usual; mostly not
        at all, and without a checkpoint."""
        self.left -= units
        if made_bytes:
            await self._room.grow(made_bytes)
        if self.left < 0:
            await self._next(units)

    async def _next(self, units: int) -> None:
        self.took_turns = True
        await self._room.grow(SLICE_UNITS * UNIT_BYTES)
        await self._turns.next()
        self._turns.spent(units)
        self.left = SLICE_UNITS - units

    def each(self, items: Iterable[T], units: int = 1) -> Each[T]:
        """The items, for ``async for``: before each, ``units`` are spent."""
        return Each(self, iter(items), units)

    async def once_each(
        self, items: Iterable[T], by: Callable[[T], Hashable] | None = None
    ) -> list[T]:
        """The items without repetition, in their order; ``by`` tells what makes two the same."""
        found: dict[Hashable, T] = {}
        async for item in self.each(items):
            found.setdefault(item if by is None else by(item), item)
        return list(found.values())

    async def run(self, work: Work[T]) -> T:
        """The result of ``work``, which yields the units that it is about to spend."""
        while True:
            try:
                units = next(work)
            except StopIteration as end:
                result: T = end.value
                return result
            await self.spend(units)


class Each(Generic[T]):
    """Items one by one, at a pace."""

    __slots__ = ("_items", "_pace", "_units")

    def __init__(self, pace: Pace, items: Iterator[T], units: int) -> None:
        self._pace = pace
        self._items = items
        self._units = units

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        for item in self._items:
            if self._pace.left >= self._units:
                self._pace.left -= self._units
            else:
                await self._pace.spend(self._units)
            return item
        raise StopAsyncIteration
