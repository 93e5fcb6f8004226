"""What an omniscient observer checks after every event of a simulated quorum."""

from __future__ import annotations

import zlib
from typing import Protocol

from paceline_cluster.sim.raft.durable import Durable
from paceline_node.controller.raft import Raft
from paceline_node.controller.raft_progress import majority
from paceline_node.controller.raft_types import Entry, MemberId, Snapshot


class Violation(AssertionError):
    """An invariant of the quorum does not hold."""


class Observed(Protocol):
    """A member as the checker sees it."""

    core: Raft
    durable: Durable


def chain(previous: int, entry: Entry) -> int:
    """Digest of a prefix of the log: equal digests mean equal prefixes."""
    return zlib.crc32(b"%d %d %d " % (entry.index, entry.term, entry.kind) + entry.data, previous)


class Checker:
    """Knows everything that was ever committed, led or written."""

    def __init__(self, bootstrap: Snapshot) -> None:
        self.leaders: dict[int, MemberId] = {}
        self.committed: dict[int, Entry] = {}
        self.digests: dict[tuple[int, int], int] = {(bootstrap.index, bootstrap.term): 0}
        """By index and term of the last entry."""
        self.last_committed = bootstrap.index
        self.committed_in = 0
        self.written: dict[tuple[int, int], tuple[Entry, int]] = {}

    def on_leader(self, core: Raft) -> None:
        """One leader per term (I20), and it has every entry committed in earlier terms."""
        state = core.state
        known = self.leaders.setdefault(state.term, state.me)
        if known != state.me:
            raise Violation(f"two leaders in term {state.term}: {known} and {state.me}")
        if state.term <= self.committed_in:
            return
        last = self.last_committed
        term = self.committed[last].term if last in self.committed else None
        if term is not None and last > core.log.base_index and core.log.term_at(last) != term:
            raise Violation(
                f"{state.me} leads term {state.term} without committed entry {last} of {term}"
            )

    def on_written(self, core: Raft, entries: list[Entry]) -> None:
        """Log matching: an (index, term) names one entry and one predecessor, everywhere."""
        for entry in entries:
            before = core.log.term_at(entry.index - 1)
            if before is None or core.log.term_at(entry.index) != entry.term:
                continue
            known = self.written.setdefault((entry.index, entry.term), (entry, before))
            if known != (entry, before):
                raise Violation(f"{core.state.me}: {entry} behind {before}, elsewhere {known}")

    def on_committed(
        self, observed: Observed, entries: list[Entry], disks: dict[MemberId, Durable]
    ) -> None:
        """Committed entries never change, and a majority of the voters holds them durably."""
        for entry in entries:
            known = self.committed.get(entry.index)
            if known is None:
                if entry.index != self.last_committed + 1:
                    raise Violation(f"{entry} committed after {self.last_committed}")
                self.committed[entry.index] = entry
                self.note_digest(observed.core, entry)
                self.last_committed = entry.index
                self.committed_in = max(self.committed_in, observed.core.state.term)
            elif known != entry:
                raise Violation(f"{observed.core.state.me} commits {entry}, committed is {known}")
        if entries and observed.core.is_leader:
            self._check_majority(observed, entries[-1], disks)

    def note_digest(self, core: Raft, entry: Entry) -> None:
        """What the log is as a number, up to this entry."""
        before = entry.index - 1
        term = core.log.term_at(before)
        if term is None:
            term = self.committed[before].term
        self.digests[entry.index, entry.term] = chain(self.digests[before, term], entry)

    def holds(self, disks: dict[MemberId, Durable], member: MemberId, entry: Entry) -> bool:
        """Whether it is on this member's disk."""
        return member in disks and disks[member].has(entry.index, entry.term)

    def _check_majority(
        self, observed: Observed, entry: Entry, disks: dict[MemberId, Durable]
    ) -> None:
        voters = observed.core.config.voter_ids
        holders = [voter for voter in voters if self.holds(disks, voter, entry)]
        if len(holders) < majority(len(voters)):
            raise Violation(
                f"{observed.core.state.me} commits {entry.index} of term {entry.term}, durable on "
                f"{len(holders)} of {len(voters)} voters"
            )

    def on_read(self, index: int, committed_before: int) -> None:
        """A confirmed read sees all that was committed when it was asked for."""
        if index < committed_before:
            raise Violation(f"read at {index}, {committed_before} was committed before")
