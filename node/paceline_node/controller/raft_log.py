"""The log as the core sees it: entries in memory, what of them is on stable storage, and the
configuration in force at every index.

Invariants: entries are contiguous from ``base_index + 1``; ``base_index <= snapshot.index <=
last_index`` (the entries between them serve slow peers). Rules: RAFT 3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from paceline_node.controller.raft_types import Config, Entry, EntryAt, EntryKind, Snapshot

MOST_TERMS = 1000
"""Terms that a snapshot remembers."""


class RaftLog:
    """In-memory view of one member's log."""

    def __init__(
        self, snapshot: Snapshot, entries: Sequence[Entry] = (), *, base: tuple[int, int] | None
    ) -> None:
        """``base`` is (index, term) of the entry before the first of ``entries``; None means the
        snapshot's. All of it is on stable storage."""
        self.snapshot = snapshot
        self.base_index, self.base_term = base or (snapshot.index, snapshot.term)
        self._entries = list(entries)
        assert self.base_index <= snapshot.index <= self.last_index, (
            f"snapshot {snapshot.index} outside log {self.base_index}..{self.last_index}"
        )
        assert self.term_at(snapshot.index) == snapshot.term
        self._configs: list[tuple[int, Config]] = [(snapshot.index, snapshot.config)]
        self._voter_changes = [snapshot.voters_since]
        for entry in self._entries:
            if entry.index > snapshot.index:
                self._note_config(entry)
        self.stable_index = self.last_index
        self._unconfirmed: deque[tuple[int, int]] = deque()

    # --- reading ---------------------------------------------------------------------------------

    @property
    def last_index(self) -> int:
        return self.base_index + len(self._entries)

    @property
    def last_term(self) -> int:
        return self._entries[-1].term if self._entries else self.base_term

    def term_at(self, index: int) -> int | None:
        """Term of the entry at ``index``; None when it is compacted away or not there."""
        if index == self.base_index:
            return self.base_term
        if self.base_index < index <= self.last_index:
            return self._entries[index - self.base_index - 1].term
        return None

    def entry(self, index: int) -> Entry:
        assert self.base_index < index <= self.last_index, f"no entry {index}"
        return self._entries[index - self.base_index - 1]

    def slice(self, first: int, end: int) -> list[Entry]:
        """Entries ``first`` to ``end`` (exclusive)."""
        assert first > self.base_index, f"entry {first} is compacted"
        offset = self.base_index + 1
        return self._entries[first - offset : end - offset]

    def batch(self, first: int, *, max_bytes: int, max_entries: int) -> tuple[Entry, ...]:
        """Entries from ``first`` on within the limits, but at least one if there is any."""
        found: list[Entry] = []
        size = 0
        for entry in self.slice(first, first + max_entries):
            size += len(entry.data)
            if found and size > max_bytes:
                break
            found.append(entry)
        return tuple(found)

    def is_up_to_date(self, last_term: int, last_index: int) -> bool:
        """Whether a candidate with this last entry may lead what is stored here."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def hint(self, index: int, term: int) -> int:
        """Highest index at most ``index`` whose term is at most ``term``: where a leader whose
        entry at ``index`` has ``term`` may find agreement, skipping whole terms at once."""
        index = min(index, self.last_index)
        while index > self.base_index:
            found = self.term_at(index)
            if found is not None and found <= term:
                break
            index -= 1
        return index

    def snapshot_at(self, index: int, state: bytes) -> Snapshot:
        """A snapshot of this log at ``index``, at or behind the one there is, with that state."""
        term = self.term_at(index)
        assert term is not None, f"no entry {index}"
        before = self.snapshot
        terms = list(before.terms) or [(before.term, before.index)]
        for entry in self.slice(before.index + 1, index + 1):
            if entry.term > terms[-1][0]:
                terms.append((entry.term, entry.index))
        return Snapshot(
            index,
            term,
            self.config_at(index),
            state,
            tuple(terms[-MOST_TERMS:]),
            self.voters_since(index),
        )

    # --- configuration ---------------------------------------------------------------------------

    @property
    def config(self) -> Config:
        """The newest configuration in the log, committed or not."""
        return self._configs[-1][1]

    @property
    def config_index(self) -> int:
        return self._configs[-1][0]

    def config_at(self, index: int) -> Config:
        """The configuration in force at ``index`` (at or behind the snapshot)."""
        found = self._configs[0][1]
        for position, config in self._configs:
            if position > index:
                break
            found = config
        return found

    def configs_since(self, index: int) -> list[Config]:
        """The configuration in force at ``index``, and those behind it."""
        later = [config for position, config in self._configs if position > index]
        return [self.config_at(index), *later]

    @property
    def newest_voters_since(self) -> EntryAt:
        """The entry since which the voters are those of :attr:`config`, as far as is known."""
        return self._voter_changes[-1]

    def voters_since(self, index: int) -> EntryAt:
        """The same, of the configuration in force at ``index`` (at or behind the snapshot)."""
        found = self._voter_changes[0]
        for change in self._voter_changes:
            if change.at > index:
                break
            found = change
        return found

    def _note_config(self, entry: Entry) -> None:
        if entry.kind is not EntryKind.CONFIG:
            return
        config = Config.from_bytes(entry.data)
        if config.voter_ids != self.config.voter_ids:
            self._voter_changes.append(EntryAt(entry.index, entry.term))
        self._configs.append((entry.index, config))

    # --- writing ---------------------------------------------------------------------------------

    def append(self, entry: Entry) -> None:
        assert entry.index == self.last_index + 1, f"{entry.index} behind {self.last_index}"
        assert entry.term >= self.last_term, f"term {entry.term} behind {self.last_term}"
        self._entries.append(entry)
        self._note_config(entry)

    def truncate(self, index: int) -> None:
        """Drop the entry at ``index`` and all behind it."""
        assert index > self.snapshot.index, f"truncation at {index} below the snapshot"
        del self._entries[index - self.base_index - 1 :]
        while self._configs[-1][0] >= index:
            self._configs.pop()
        while self._voter_changes[-1].at >= index:
            self._voter_changes.pop()
        # A write of the dropped entries may still be under way: its end must not confirm the
        # entries that took their place.
        self.stable_index = min(self.stable_index, index - 1)
        self._unconfirmed = deque(
            (sequence, min(last, index - 1)) for sequence, last in self._unconfirmed
        )

    def reset(self, snapshot: Snapshot) -> None:
        """Replace everything by a snapshot received from the leader."""
        self.snapshot = snapshot
        self.base_index, self.base_term = snapshot.index, snapshot.term
        self._entries.clear()
        self._configs = [(snapshot.index, snapshot.config)]
        self._voter_changes = [snapshot.voters_since]
        self.stable_index = 0
        self._unconfirmed.clear()

    def compact(self, snapshot: Snapshot, *, keep: int) -> None:
        """A snapshot of our own is safely stored: forget what lies more than ``keep`` behind it."""
        if snapshot.index <= self.snapshot.index:
            return  # a newer one came from the leader meanwhile
        assert self.term_at(snapshot.index) == snapshot.term
        self._configs = [(snapshot.index, self.config_at(snapshot.index))] + [
            pair for pair in self._configs if pair[0] > snapshot.index
        ]
        self._voter_changes = [self.voters_since(snapshot.index)] + [
            change for change in self._voter_changes if change.at > snapshot.index
        ]
        self.snapshot = snapshot
        base = max(self.base_index, snapshot.index - keep)
        term = self.term_at(base)
        assert term is not None
        del self._entries[: base - self.base_index]
        self.base_index, self.base_term = base, term

    # --- stable storage --------------------------------------------------------------------------

    def expect(self, sequence: int) -> None:
        """The caller was told to persist everything up to here under this sequence number."""
        self._unconfirmed.append((sequence, self.last_index))

    def confirm(self, sequence: int) -> None:
        """All writes up to ``sequence`` are on stable storage."""
        while self._unconfirmed and self._unconfirmed[0][0] <= sequence:
            last = self._unconfirmed.popleft()[1]
            self.stable_index = max(self.stable_index, last)
