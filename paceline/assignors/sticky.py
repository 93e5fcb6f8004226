"""Strategy ``sticky``: balanced, and moving as few partitions as that allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from paceline.assignors.members import Assignments, Counts, MemberView, readers_of
from paceline.types import TopicPartition
from paceline.values import dataclass


def assign_topics(members: Sequence[MemberView], counts: Counts) -> Assignments:
    """Keep what is owned, give the rest to whoever has least, then even out."""
    return _Sticky(members, counts).run()


@dataclass(slots=True)
class _Sticky:
    members: Sequence[MemberView]
    counts: Counts
    found: Assignments = field(default_factory=dict)
    readers: dict[str, list[str]] = field(default_factory=dict)

    def run(self) -> Assignments:
        self.found = {member.member_id: [] for member in self.members}
        self.readers = readers_of(self.members, self.counts)
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
