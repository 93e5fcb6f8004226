"""Long lists in pages: in order, the next few behind a place, and whether there are more.

A page costs what it holds, but for one look at each name that there is: nothing is made for those
that are not shown, and none of it keeps the loop for long.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from paceline_node.sliced_work import Work

MOST = 1000
"""Items of a page."""
_SORTED_AT_A_TIME = 256
_SORTED_UNITS = 16
T = TypeVar("T")
P = TypeVar("P")
K = TypeVar("K", int, str, tuple[str, int], tuple[str, str, str])


class Paged(NamedTuple, Generic[T]):
    """A page, and whether there is another one behind it."""

    items: Sequence[T]
    has_more: bool


def in_order(names: Iterable[K], after: K | None) -> Work[Iterator[K]]:
    """The names behind ``after``, sorted; the order is made as they are taken."""
    rest = iter(names)
    runs: list[list[K]] = []
    while some := list(islice(rest, _SORTED_AT_A_TIME)):
        yield _SORTED_UNITS
        if run := sorted(each for each in some if after is None or each > after):
            runs.append(run)
    return heapq.merge(*runs)


def cut_off(items: Sequence[T], limit: int, *, has_more: bool = False) -> Paged[T]:
    """The first ``limit`` of them."""
    return Paged(items[:limit], has_more or len(items) > limit)


async def visible(
    ask: Callable[[P | None], Awaitable[Paged[T]]],
    place: Callable[[T], P],
    may_see: Callable[[T], bool],
    after: P | None,
    limit: int,
) -> Paged[T]:
    """A page of what somebody may see of a list whose pages ``ask`` gives. So where a page ends
    tells nobody what he may not know of."""
    found: list[T] = []
    while True:
        some = await ask(after)
        found += filter(may_see, some.items)
        if len(found) > limit or not some.has_more:
            return cut_off(found, limit)
        after = place(some.items[-1])
