"""The strategies by name: what assigns where a member does, and where the broker does.

Where a group's leading member assigns, every strategy gives each partition of a topic to exactly
one of the members that subscribe to it, and gives the same answer for the same input on whichever
member it runs. Names and results of ``range`` and ``roundrobin`` are those of Kafka's clients, with
which a group may be shared.

Where the broker assigns (groups/DESIGN 3.4, 4.1), partitions are 0 .. count-1, members are sorted
by the bytes of their ids, and the result depends on nothing else: every partition has exactly one
member, and loads differ by one at most.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from paceline.assignors import range as range_
from paceline.assignors import round_robin, sticky
from paceline.assignors.members import Assignments, Counts, MemberView


class Assignor(enum.Enum):
    """Strategies of leading members; values are their names on the wire."""

    RANGE = "range"
    ROUND_ROBIN = "roundrobin"
    STICKY = "sticky"

    def assign(self, members: Sequence[MemberView], counts: Counts) -> Assignments:
        """Who reads what."""
        ordered = sorted(members, key=lambda member: member.rank)
        found = _OF_TOPICS[self](ordered, counts)
        return {member: sorted(partitions) for member, partitions in found.items()}


_OF_TOPICS: Mapping[Assignor, Callable[[Sequence[MemberView], Counts], Assignments]] = (
    MappingProxyType(
        {
            Assignor.RANGE: range_.assign_topics,
            Assignor.ROUND_ROBIN: round_robin.assign_topics,
            Assignor.STICKY: sticky.assign_topics,
        }
    )
)


class BrokerAssignor(enum.Enum):
    """Strategies of the broker; values are the names that clients give them."""

    ROUND_ROBIN = "round_robin"
    RANGE = "range"

    def assign(self, members: Iterable[str], partition_count: int) -> dict[str, tuple[int, ...]]:
        """Who reads what."""
        ordered = sorted(members, key=lambda each: each.encode("utf-8", "surrogateescape"))
        dealt = _OF_ONE_TOPIC[self](partition_count, len(ordered))
        return {each: tuple(numbers) for each, numbers in zip(ordered, dealt, strict=True)}


_OF_ONE_TOPIC: Mapping[BrokerAssignor, Callable[[int, int], Iterator[range]]] = MappingProxyType(
    {BrokerAssignor.ROUND_ROBIN: round_robin.hands, BrokerAssignor.RANGE: range_.runs}
)
