"""Strategy ``range``: runs of neighbours in number, the first ones longer by one where it does not
divide evenly. Of several topics, the same numbers come together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paceline.assignors.members import Assignments, Counts, MemberView, readers_of
from paceline.types import TopicPartition


def assign_topics(members: Sequence[MemberView], counts: Counts) -> Assignments:
    """Who reads what of all topics, where the leading member assigns."""
    found: Assignments = {member.member_id: [] for member in members}
    for topic, readers in readers_of(members, counts).items():
        for reader, numbers in zip(readers, runs(counts[topic], len(readers)), strict=True):
            found[reader] += [TopicPartition(topic, p) for p in numbers]
    return found


def runs(count: int, readers: int) -> Iterator[range]:
    """Numbers below ``count`` in runs, one for each reader in turn: who reads what of one topic,
    where the broker assigns."""
    share, more = divmod(count, readers) if readers else (0, 0)
    start = 0
    for at in range(readers):
        end = start + share + (at < more)
        yield range(start, end)
        start = end
