"""Who reads which partition, where the broker assigns (groups/DESIGN 3.4, 4.1).

Members are sorted by the bytes of their ids, partitions are 0 .. count-1, and the result depends on
nothing else: every partition has exactly one member, and loads differ by one at most.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from paceline.assignors.runs import runs

Assignment = dict[str, tuple[int, ...]]


class BrokerAssignor(enum.Enum):
    """``ROUND_ROBIN``: partition p to the member number p mod the members. ``RANGE``: runs of
    partitions, the first members one more where they do not divide evenly. Values are the names
    that clients give them."""

    ROUND_ROBIN = "round_robin"
    RANGE = "range"

    def assign(self, members: Iterable[str], partition_count: int) -> Assignment:
        """Who reads what."""
        ordered = sorted(members, key=lambda each: each.encode("utf-8", "surrogateescape"))
        count = len(ordered)
        if self is BrokerAssignor.RANGE:
            dealt = list(runs(partition_count, count))
        else:
            dealt = [range(at, partition_count, count) for at in range(count)]
        return {each: tuple(numbers) for each, numbers in zip(ordered, dealt, strict=True)}
