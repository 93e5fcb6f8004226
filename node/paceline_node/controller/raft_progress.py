"""What a leader knows of each member, and the arithmetic of majorities."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import field

from paceline.values import dataclass
from paceline_node.controller.raft_snapshot import SnapshotTransfer
from paceline_node.controller.raft_trust import Trust
from paceline_node.controller.raft_types import MemberId

DENIALS = 3
"""So often a member must say that it lacks what it acknowledged."""


class Mode(enum.Enum):
    """PROBE: one Append at a time until the logs are known to agree. REPLICATE: stream. SNAPSHOT:
    the entries it needs are compacted away."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


@dataclass(slots=True)
class Progress:
    """One member as its leader sees it.

    ``next`` is the next entry to send, ``match`` the highest known to be on its stable storage.
    ``sent_commit`` is the commit index it was last told. ``forgot``: it lacks entries that it had
    acknowledged, so its disk is an old copy.
    """

    next: int
    heard_tick: int
    trust: Trust
    mode: Mode = Mode.PROBE
    match: int = 0
    refused: bool = False
    probe_sent: bool = False
    acked_round: int = 0
    sent_commit: int = 0
    inflight: deque[int] = field(default_factory=deque)
    transfer: SnapshotTransfer | None = None
    round_target: int = 0
    good_rounds: int = 0
    forgot: bool = False
    _denials: int = 0

    def probe(self, next_index: int) -> None:
        self.mode = Mode.PROBE
        self.next = next_index
        self.probe_sent = False
        self.transfer = None
        self.inflight.clear()

    def accepted(self, match: int) -> None:
        """Its log agrees up to ``match``."""
        self._denials = 0
        self.match = max(self.match, match)
        self.next = max(self.next, match + 1)
        while self.inflight and self.inflight[0] <= match:
            self.inflight.popleft()
        if self.mode is Mode.PROBE:
            self.mode = Mode.REPLICATE
            self.next = self.match + 1
            self.probe_sent = False

    def rejected(self, reject_index: int, hint: int) -> bool:
        """It could not take entries behind ``reject_index``; its log may agree up to ``hint``.
        Returns False for an old answer."""
        if self.mode is not Mode.SNAPSHOT and reject_index <= self.match and hint < self.match:
            return self._denied(hint)
        stale = (
            reject_index <= self.match
            if self.mode is Mode.REPLICATE
            else reject_index != self.next - 1
        )
        if stale or self.mode is Mode.SNAPSHOT:
            return False
        self.probe(max(self.match + 1, min(reject_index, hint + 1)))
        return True

    def _denied(self, hint: int) -> bool:
        """It says that it lacks what it had. Once that is an old message; said again and again,
        with nothing accepted in between, it is so, and it must be told everything again. To
        believe too little of a member is always safe."""
        self._denials += 1
        if self._denials < DENIALS:
            return False
        self._denials = 0
        self.forgot = True
        self.match = hint
        self.good_rounds = 0
        self.probe(hint + 1)
        return True

    def note_round(self, last_index: int, allowed_lag: int) -> None:
        """Count catch-up rounds: a round ends when it has what the leader had at its start."""
        if self.match < self.round_target:
            return
        near = last_index - self.match <= allowed_lag
        self.good_rounds = self.good_rounds + 1 if near else 0
        self.round_target = last_index


def majority(count: int) -> int:
    """How many of ``count`` voters decide."""
    return count // 2 + 1


def has_majority(supporters: Collection[MemberId], voters: Collection[MemberId]) -> bool:
    """Whether ``supporters`` contains a majority of ``voters``; nobody decides without voters."""
    if not voters:
        return False
    return sum(1 for voter in voters if voter in supporters) >= majority(len(voters))


def majority_index(matches: Sequence[int]) -> int:
    """The highest index that a majority of the voters has; 0 without voters."""
    if not matches:
        return 0
    return sorted(matches, reverse=True)[majority(len(matches)) - 1]


def trusted_index(matches: Sequence[tuple[int, bool]]) -> int:
    """The highest index that a majority of the voters has whose word counts, or every voter (RAFT
    2.9). ``matches``: what each has, and whether its word counts."""
    if not matches:
        return 0
    of_all = min(index for index, _ in matches)
    return max(of_all, majority_index([index if counts else 0 for index, counts in matches]))
