"""Who reads which partition in family ``coordinator``: Kafka 0.8's range assignment over streams.

A consumer reads with one or more *streams*; partitions of a topic are dealt out in runs to the
streams of all consumers, sorted by their names ``<consumer id>-<number>`` as text, so that ``a-10``
comes before ``a-2`` (groups/DESIGN 6.6). Consumers say how many streams they have, and they
may say many: only those that get something are ever named and put in order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from paceline.assignors.range import runs


class Portion(NamedTuple):
    """Partitions of one topic for one stream."""

    consumer: str
    stream: int
    partitions: Sequence[int]


_Named = tuple[str, str, int]


class Dealer:
    """Deals out topic after topic. Streams that are those of the topic before are not put in order
    again."""

    def __init__(self) -> None:
        self._streams: Mapping[str, int] = {}
        self._first: list[_Named] = []
        self._more: Iterator[_Named] = iter(())

    def deal(self, partitions: Sequence[int], streams: Mapping[str, int]) -> Iterator[Portion]:
        """Deal ``partitions``, ascending, to consumers with so many streams each; streams that get
        nothing are left out."""
        if streams != self._streams:
            self._streams = streams
            self._first = []
            named = [_in_order(consumer, count) for consumer, count in streams.items()]
            self._more = heapq.merge(*named)
        count = sum(streams.values())
        if not count:
            return
        self._first += islice(self._more, max(0, len(partitions) - len(self._first)))
        first = self._first[: len(partitions)]
        for (_, consumer, number), run in zip(first, runs(len(partitions), count), strict=False):
            yield Portion(consumer, number, partitions[run.start : run.stop])


def _in_order(consumer: str, count: int) -> Iterator[_Named]:
    """The streams of one consumer, by their names: 0, 1, 10, 11, ..., 2, 20, ..."""
    if count > 0:
        yield f"{consumer}-0", consumer, 0
    number = 1
    for _ in range(1, count):
        yield f"{consumer}-{number}", consumer, number
        if number * 10 < count:
            number *= 10
            continue
        while number % 10 == 9 or number + 1 >= count:
            number //= 10
        number += 1
