"""What a member of the quorum has still to apply, in the order of the log (RAFT 4.1).

Applying an entry is quick, but what follows from it may be thousands of partitions. So it is done
in turns: everybody else of this process has theirs in between, and what is committed is applied a
little later, as on a member that hears of it a little later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import UUID

import msgpack

from paceline_node.controller.raft_effects import Effects
from paceline_node.controller.raft_types import Entry, EntryKind, ReadReady, Snapshot

RECORDS_AT_A_TIME = 250
"""Applied without a pause: some milliseconds, with all that follows from them."""


class StateMachine(Protocol):
    """What the log is applied to. All is synchronous and runs inside the driver."""

    def apply(self, index: int, term: int, records: Sequence[bytes]) -> None:
        """Take in a committed entry: in order, each index once per life. Entries of the quorum's
        own (a new leader's first entry, membership changes) come with no records."""

    def install(self, snapshot: bytes, index: int) -> None:
        """Begin anew with a snapshot taken at ``index``: first of all with the recovered one, then
        with every one received."""

    def snapshot(self) -> bytes:
        """The present state."""

    def is_retired(self, directory_id: UUID) -> bool:
        """Whether the node with this data directory will not come back with it: a silent member
        with such a one is taken out."""


class Applying:
    """``index`` is that of the last applied entry; ``unsaved_entries`` and ``unsaved_bytes`` count
    what was applied since the last snapshot. ``answer``: all that a reader waited for is applied.
    """

    def __init__(
        self, machine: StateMachine, index: int, answer: Callable[[ReadReady], None]
    ) -> None:
        self._machine = machine
        self._answer = answer
        self._due: deque[Snapshot | Entry | ReadReady] = deque()
        self.index = index
        self.unsaved_entries = 0
        self.unsaved_bytes = 0

    @property
    def is_due(self) -> bool:
        """Whether there is something to apply."""
        return bool(self._due)

    def add(self, effects: Effects) -> None:
        """Take in what a step of the core says is committed."""
        if effects.snapshot is not None:
            # It has what the entries before it said, and the log is without them.
            reads = [step for step in self._due if isinstance(step, ReadReady)]
            self._due = deque((effects.snapshot, *reads))
        self._due.extend(effects.committed)
        self._due.extend(effects.reads)

    def next(self) -> int:
        """Apply what is next; how many records that were."""
        step = self._due.popleft()
        if isinstance(step, ReadReady):
            self._answer(step)
            return 0
        if isinstance(step, Entry):
            return self._apply(step)
        self.index = step.index
        self.saved()
        self._machine.install(step.state, step.index)
        return RECORDS_AT_A_TIME

    def _apply(self, entry: Entry) -> int:
        assert entry.index == self.index + 1, f"{entry.index} applied after {self.index}"
        self.index = entry.index
        self.unsaved_entries += 1
        self.unsaved_bytes += len(entry.data)
        records = msgpack.unpackb(entry.data) if entry.kind is EntryKind.RECORDS else ()
        self._machine.apply(entry.index, entry.term, records)
        return max(1, len(records))

    def saved(self) -> None:
        """A snapshot has all that was applied."""
        self.unsaved_entries = self.unsaved_bytes = 0
