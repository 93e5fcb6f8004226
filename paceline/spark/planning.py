"""How ranges of offsets become tasks, and how much one micro-batch takes. Pure (DESIGN 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from paceline.types import TopicPartition
from paceline.values import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ReadRange:
    """What one task reads: ``[start, end)`` of a partition.

    ``topic_id`` and ``epoch`` are of the plan: a task that finds another topic, or a record before
    ``end`` that is of a newer leader epoch, does not read what was planned.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""
    epoch: int = -1

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def parts(self, count: int) -> list[ReadRange]:
        """``count`` consecutive parts of nearly equal size, none empty."""
        found = []
        start = self.start
        for left in range(min(count, self.size), 0, -1):
            end = start + (self.end - start) // left
            found.append(replace(self, start=start, end=end))
            start = end
        return found


def split(
    ranges: Iterable[ReadRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[ReadRange]:
    """The tasks for ``ranges``, in order of topic, partition and start; empty ones are dropped.

    Ranges above ``max_records`` are cut first; ``min_partitions`` is a hint, met by cutting the
    larger ones in proportion (Spark's Kafka source does the same).
    """
    whole = sorted(each for each in ranges if each.size > 0)
    if max_records is not None:
        whole = [part for each in whole for part in each.parts(-(-each.size // max_records))]
    if min_partitions is None or len(whole) >= min_partitions:
        return whole
    total = sum(each.size for each in whole)
    large = [each for each in whole if _share(each.size, total, min_partitions) > 1]
    rest_total = sum(each.size for each in large)
    rest_count = max(min_partitions - (len(whole) - len(large)), 1)
    cut = set(large)
    found: list[ReadRange] = []
    for each in whole:
        count = _share(each.size, rest_total, rest_count) if each in cut else 1
        found += each.parts(count)
    return found


def _share(size: int, total: int, count: int) -> int:
    return max(1, round(size / total * count)) if total else 1


def limit_rows(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], limit: int
) -> dict[TopicPartition, int]:
    """Ends so that about ``limit`` records lie between, dealt out in proportion to what each
    partition has; a partition with any record gets at least one, so none starves."""
    shares = proportional(starts, ends, limit)
    return {at: min(ends[at], starts[at] + shares.get(at, 0)) for at in ends}


def proportional(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], amount: int
) -> dict[TopicPartition, int]:
    """``amount`` (of records or bytes) dealt out by what lies between starts and ends."""
    sizes = {at: ends[at] - starts[at] for at in ends if ends[at] > starts[at]}
    total = sum(sizes.values())
    return {at: max(1, amount * size // total) for at, size in sizes.items()}


def backlog(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """Records between starts and ends."""
    return sum(max(0, ends[at] - starts.get(at, 0)) for at in ends)
