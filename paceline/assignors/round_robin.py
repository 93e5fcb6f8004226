"""Strategy ``roundrobin``: partitions dealt out one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paceline.assignors.members import Assignments, Counts, MemberView, readers_of
from paceline.types import TopicPartition


def assign_topics(members: Sequence[MemberView], counts: Counts) -> Assignments:
    """Who reads what of all topics, where the leading member assigns: counts differ by one at most
    where all subscribe alike."""
    found: Assignments = {member.member_id: [] for member in members}
    turn = 0
    for topic, readers in readers_of(members, counts).items():
        reading = frozenset(readers)
        for partition in range(counts[topic]):
            while members[turn % len(members)].member_id not in reading:
                turn += 1
            found[members[turn % len(members)].member_id].append(TopicPartition(topic, partition))
            turn += 1
    return found


def hands(count: int, readers: int) -> Iterator[range]:
    """Who reads what of one topic, where the broker assigns: partition p is the reader's of number
    p mod the readers."""
    for at in range(readers):
        yield range(at, count, readers)
