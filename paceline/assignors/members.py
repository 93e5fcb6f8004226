"""What strategies are given where a group's leading member assigns, and what they give back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.types import TopicPartition
from paceline.values import dataclass


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member as its leader sees it. ``owned`` is what it had in ``generation``."""

    member_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1

    @property
    def rank(self) -> tuple[int, str]:
        """Static members first, by their instance, so that a restart changes nothing."""
        return (0, self.instance_id) if self.instance_id is not None else (1, self.member_id)


Counts = Mapping[str, int]
"""Partitions of each topic that exists; others have none."""
Assignments = dict[str, list[TopicPartition]]
"""By member id, each list sorted; every member has one."""


def readers_of(members: Sequence[MemberView], counts: Counts) -> dict[str, list[str]]:
    """Who reads each topic that exists, in the order of the members; topics in order."""
    found: dict[str, list[str]] = {}
    for member in members:
        for topic in dict.fromkeys(member.topics):
            if counts.get(topic, 0) > 0:
                found.setdefault(topic, []).append(member.member_id)
    return dict(sorted(found.items()))
