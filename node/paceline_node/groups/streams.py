"""Who reads which partition in family ``coordinator``: Kafka 0.8's range assignment over streams.

A consumer reads with one or more *streams*; partitions of a topic are dealt out in runs to the
streams of all consumers, sorted by their names ``<consumer id>-<number>`` as text, so that ``a-10``
comes before ``a-2`` (spec coordinator 5 step 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class Portion(NamedTuple):
    """Partitions of one topic for one stream."""

    consumer: str
    stream: int
    partitions: Sequence[int]


def deal(partitions: Sequence[int], streams: Mapping[str, int]) -> Iterable[Portion]:
    """Deal ``partitions``, ascending, to consumers with so many streams each; streams that get
    nothing are left out."""
    named = sorted(
        (f"{consumer}-{number}", consumer, number)
        for consumer, count in streams.items()
        for number in range(count)
    )
    if not named:
        return
    share, more = divmod(len(partitions), len(named))
    start = 0
    for at, (_, consumer, number) in enumerate(named):
        end = start + share + (at < more)
        if end == start:
            return
        yield Portion(consumer, number, partitions[start:end])
        start = end
