"""What the Raft core wants done: what to send, to store, to apply and to report."""

from __future__ import annotations

from dataclasses import field

from paceline.values import dataclass
from paceline_node.controller.raft_messages import RaftMessage
from paceline_node.controller.raft_types import Entry, HardState, ReadReady, RoleInfo, Snapshot


@dataclass(slots=True)
class Effects:
    """What the caller must do, in this order of meaning.

    1. Send ``now`` at once.
    2. Persist ``hard_state``, ``snapshot``, then ``entries`` (an entry whose index exists already
       replaces it and all behind it). When all of this and all earlier effects are on stable
       storage, call ``persisted(sequence)`` and send ``after_persist``. ``sequence`` is 0 when
       there is nothing to persist; then only earlier effects hold ``after_persist`` back.
    3. Report ``role``, install ``snapshot``, apply ``committed`` in order, report ``reads``: these
       need not wait for 2.
    """

    now: list[RaftMessage] = field(default_factory=list)
    hard_state: HardState | None = None
    snapshot: Snapshot | None = None
    entries: list[Entry] = field(default_factory=list)
    sequence: int = 0
    after_persist: list[RaftMessage] = field(default_factory=list)
    committed: list[Entry] = field(default_factory=list)
    role: RoleInfo | None = None
    reads: list[ReadReady] = field(default_factory=list)

    def must_persist(self) -> bool:
        return self.hard_state is not None or self.snapshot is not None or bool(self.entries)

    def is_empty(self) -> bool:
        return not (
            self.now
            or self.must_persist()
            or self.after_persist
            or self.committed
            or self.role is not None
            or self.reads
        )
