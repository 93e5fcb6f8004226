"""Topics that got more partitions than the members of a Kafka group read.

A leader watches that itself, and joins again to assign anew. One that does not know that it leads
does not: a static member that came back within its session is told of another leader, since no
version of the protocol that it may speak can tell it to lead and keep the assignment.
"""

from __future__ import annotations

from collections.abc import Callable

from paceline.errors import PacelineError
from paceline.wire.consumer_protocol import PROTOCOL_TYPE, Assignment, Subscription
from paceline_node.groups.records import Group

CountOf = Callable[[str], int]
"""The partitions of a topic of that name; 0 where there is none."""


def is_outgrown(group: Group, count_of: CountOf) -> bool:
    """Whether a topic that members of the group want to read has more partitions than any of them
    was given. What is not protocol type ``consumer`` is not understood, so never."""
    if group.protocol_type != PROTOCOL_TYPE:
        return False
    wanted: set[str] = set()
    given: dict[str, int] = {}
    try:
        for member in group.members:
            wanted.update(Subscription.from_bytes(member.metadata(group.protocol)).topics)
            for topic, numbers in Assignment.from_bytes(member.assignment).partitions.items():
                given[topic] = max([given.get(topic, 0), *(number + 1 for number in numbers)])
    except PacelineError:
        return False
    return any(given.get(topic, 0) < count_of(topic) for topic in wanted)
