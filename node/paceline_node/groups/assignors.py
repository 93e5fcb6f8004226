"""Who reads which partition, where the broker assigns (DESIGN 3.4, 4.1).

Members come sorted by the bytes of their ids, partitions are 0 .. count-1, and the result depends
on nothing else: every partition has exactly one member, and loads differ by one at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

Assignment = dict[str, tuple[int, ...]]


def round_robin(members: Iterable[str], partition_count: int) -> Assignment:
    """Partition p to the member number p mod the members."""
    ordered = _ordered(members)
    step = len(ordered)
    return {each: tuple(range(at, partition_count, step)) for at, each in enumerate(ordered)}


def contiguous(members: Iterable[str], partition_count: int) -> Assignment:
    """Runs of partitions, the first members one more where they do not divide evenly."""
    ordered = _ordered(members)
    if not ordered:
        return {}
    share, more = divmod(partition_count, len(ordered))
    found: Assignment = {}
    start = 0
    for at, each in enumerate(ordered):
        end = start + share + (at < more)
        found[each] = tuple(range(start, end))
        start = end
    return found


def _ordered(members: Iterable[str]) -> list[str]:
    return sorted(members, key=lambda each: each.encode("utf-8", "surrogateescape"))


ASSIGNORS: Mapping[str, Callable[[Iterable[str], int], Assignment]] = {
    "round_robin": round_robin,
    "range": contiguous,
}
"""By the name that clients give them."""
