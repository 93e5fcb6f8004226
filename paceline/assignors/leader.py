"""Who of a group reads what, where its leading member assigns.

Every assignor gives each partition of a topic to exactly one of the members that subscribe to it,
and gives the same answer for the same input on whichever member it runs. Names and results of
``range`` and ``roundrobin`` are those of Kafka's clients, with which a group may be shared.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import field

from paceline.assignors.runs import runs
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


class Assignor(enum.Enum):
    """``RANGE``: of each topic, neighbours in number to each member; the same numbers of several
    topics come together. ``ROUND_ROBIN``: partitions of all topics dealt out one by one, counts
    differ by one at most where all subscribe alike. ``STICKY``: as balanced, and moving as few
    partitions as that allows."""

    RANGE = "range"
    ROUND_ROBIN = "roundrobin"
    STICKY = "sticky"

    def assign(self, members: Sequence[MemberView], counts: Counts) -> Assignments:
        """Who reads what."""
        ordered = sorted(members, key=lambda member: member.rank)
        if self is Assignor.RANGE:
            found = _range(ordered, counts)
        elif self is Assignor.ROUND_ROBIN:
            found = _round_robin(ordered, counts)
        else:
            found = _Sticky(ordered, counts).run()
        return {member: sorted(partitions) for member, partitions in found.items()}


def _readers(members: Sequence[MemberView], counts: Counts) -> dict[str, list[str]]:
    """Who reads each topic that exists, in the order of the members; topics in order."""
    found: dict[str, list[str]] = {}
    for member in members:
        for topic in dict.fromkeys(member.topics):
            if counts.get(topic, 0) > 0:
                found.setdefault(topic, []).append(member.member_id)
    return dict(sorted(found.items()))


def _range(members: Sequence[MemberView], counts: Counts) -> Assignments:
    found: Assignments = {member.member_id: [] for member in members}
    for topic, readers in _readers(members, counts).items():
        for reader, numbers in zip(readers, runs(counts[topic], len(readers)), strict=True):
            found[reader] += [TopicPartition(topic, p) for p in numbers]
    return found


def _round_robin(members: Sequence[MemberView], counts: Counts) -> Assignments:
    found: Assignments = {member.member_id: [] for member in members}
    turn = 0
    for topic, readers in _readers(members, counts).items():
        reading = frozenset(readers)
        for partition in range(counts[topic]):
            while members[turn % len(members)].member_id not in reading:
                turn += 1
            found[members[turn % len(members)].member_id].append(TopicPartition(topic, partition))
            turn += 1
    return found


@dataclass(slots=True)
class _Sticky:
    """Keep what is owned, give the rest to whoever has least, then even out."""

    members: Sequence[MemberView]
    counts: Counts
    found: Assignments = field(default_factory=dict)
    readers: dict[str, list[str]] = field(default_factory=dict)

    def run(self) -> Assignments:
        self.found = {member.member_id: [] for member in self.members}
        self.readers = _readers(self.members, self.counts)
        taken = self._keep_owned()
        for topic, readers in self.readers.items():
            for partition in range(self.counts[topic]):
                at = TopicPartition(topic, partition)
                if at not in taken:
                    self.found[self._least(readers)].append(at)
        self._even_out()
        return self.found

    def _keep_owned(self) -> set[TopicPartition]:
        """Who claims a partition in the newest generation keeps it."""
        taken: set[TopicPartition] = set()
        for member in sorted(self.members, key=lambda m: (-m.generation, m.rank)):
            read = frozenset(member.topics)
            for at in sorted(member.owned):
                exists = at.partition < self.counts.get(at.topic, 0)
                if exists and at.topic in read and at not in taken:
                    taken.add(at)
                    self.found[member.member_id].append(at)
        return taken

    def _least(self, readers: Sequence[str]) -> str:
        return min(readers, key=lambda reader: len(self.found[reader]))

    def _even_out(self) -> None:
        """Move a partition to a reader that has at least two fewer, until there is none. The sum of
        squares falls with each move, so it ends."""
        moved = True
        while moved:
            moved = False
            for member in sorted(self.found, key=lambda m: -len(self.found[m])):
                for at in sorted(self.found[member]):
                    target = self._least(self.readers[at.topic])
                    if len(self.found[member]) - len(self.found[target]) >= 2:
                        self.found[member].remove(at)
                        self.found[target].append(at)
                        moved = True
