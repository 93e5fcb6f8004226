"""What a member's disk holds, as the simulators model it: batches become durable in order, and a
crash keeps a prefix of what was under way."""

from __future__ import annotations

import random
from collections.abc import Sequence
from uuid import UUID

from paceline.types import NodeId
from paceline_node.controller.raft_effects import Effects
from paceline_node.controller.raft_log import RaftLog
from paceline_node.controller.raft_types import (
    EMPTY_SNAPSHOT,
    Entry,
    HardState,
    Member,
    MemberId,
    Snapshot,
)

CLUSTER = UUID(int=0xC1)


def member(node: int, disk: int = 0) -> Member:
    """A member with a predictable identity; ``disk`` counts replacements of its disk."""
    return Member(NodeId(node), UUID(int=(node + 1) << 32 | disk), f"host-{node}", 7401)


def member_id(node: int, disk: int = 0) -> MemberId:
    return member(node, disk).id


class Durable:
    """Stable storage of one disk. ``known_commit`` is what its mark says."""

    def __init__(self, snapshot: Snapshot = EMPTY_SNAPSHOT, term: int = 0) -> None:
        self.hard_state = HardState(term)
        self.snapshot = snapshot
        self.base = (snapshot.index, snapshot.term)
        self.entries: list[Entry] = []
        self.known_commit = -1

    def write(self, effects: Effects) -> None:
        """Make one batch durable."""
        if effects.hard_state is not None:
            self.hard_state = effects.hard_state
        if effects.snapshot is not None:
            if effects.snapshot.index > self.snapshot.index:
                self.snapshot = effects.snapshot
            self.base = (effects.snapshot.index, effects.snapshot.term)
            self.entries = []
        self.append(effects.entries)

    def append(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            del self.entries[entry.index - self.base[0] - 1 :]
            assert entry.index == self.last_index + 1
            self.entries.append(entry)

    @property
    def last_index(self) -> int:
        return self.base[0] + len(self.entries)

    def has(self, index: int, term: int) -> bool:
        """Whether the entry is here, itself or within the snapshot."""
        if index <= max(self.base[0], self.snapshot.index):
            return True
        return index <= self.last_index and self.entries[index - self.base[0] - 1].term == term

    def compact(self, snapshot: Snapshot, keep: int) -> None:
        """Store a snapshot of one's own. What it stands for may still be on its way to the log, in
        place of a longer tail that nobody committed: then nothing is dropped."""
        if snapshot.index <= self.snapshot.index:
            return
        self.snapshot = snapshot
        if not self._joins():
            return
        base = max(self.base[0], snapshot.index - keep)
        if base > self.base[0]:
            term = self.entries[base - self.base[0] - 1].term
            self.entries = self.entries[base - self.base[0] :]
            self.base = (base, term)

    def crash(self, pending: Sequence[Effects], rng: random.Random) -> None:
        """Power is lost while ``pending`` was being written: a prefix of it survives."""
        kept = rng.randint(0, len(pending))
        for effects in pending[:kept]:
            self.write(effects)
        torn = pending[kept] if kept < len(pending) else None
        if torn is not None and torn.snapshot is None and rng.random() < 0.3:
            self.append(torn.entries[: rng.randint(0, len(torn.entries))])
        if not self._joins():
            self.base = (self.snapshot.index, self.snapshot.term)
            self.entries = []

    def _joins(self) -> bool:
        """Whether the log holds the very entry at which the snapshot stands."""
        at = self.snapshot.index - self.base[0]
        if at == 0:
            return self.base[1] == self.snapshot.term
        return 0 < at <= len(self.entries) and self.entries[at - 1].term == self.snapshot.term

    def log(self) -> RaftLog:
        """The log as a start reads it: behind the snapshot, if the two do not join."""
        if not self._joins():
            return RaftLog(self.snapshot, base=None)
        return RaftLog(self.snapshot, self.entries, base=self.base)
