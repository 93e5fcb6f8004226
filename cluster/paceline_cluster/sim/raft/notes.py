"""What a metadata log tells of its voters: how much of it each has said it holds for good
(controller/DESIGN 2.8). Brokers say so, and controllers write it down once a second; of both the
quorum's core knows nothing, its driver asks the log (controller/RAFT 2.8)."""

from __future__ import annotations

from collections.abc import Mapping

from paceline_cluster.sim.raft.durable import Durable
from paceline_node.controller.durable_offsets import NOT_KNOWN
from paceline_node.controller.raft_log import RaftLog
from paceline_node.controller.raft_types import Entry, MemberId, Start

_EVERY_MS = 1000.0


class Notes:
    """Which entries are such notes, and what they say."""

    def __init__(self) -> None:
        self._told: dict[int, dict[int, dict[MemberId, int]]] = {}
        self._next_ms = 0.0

    def take(self, entry: Entry, disks: Mapping[MemberId, Durable], now: float) -> None:
        """An entry was proposed: now and then it is a note."""
        if now >= self._next_ms:
            held = {member: disk.known_commit for member, disk in disks.items()}
            self._told.setdefault(entry.index, {})[entry.term] = held
            self._next_ms = now + _EVERY_MS

    def start(self, log: RaftLog, member: MemberId) -> Start | None:
        """No process is registered here."""
        return None

    def durable_offset(self, log: RaftLog, member: MemberId) -> int:
        """By the newest note in a log; of one that is in its snapshot no term is known any more."""
        for index in sorted(self._told, reverse=True):
            if index > log.last_index:
                continue
            by_term = self._told[index]
            term = log.term_at(index) if index > log.base_index else min(by_term)
            if term in by_term:
                return by_term[term].get(member, NOT_KNOWN)
        return NOT_KNOWN
