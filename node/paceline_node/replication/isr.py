"""High watermark arithmetic: how far a log is committed (DESIGN 3.5).

Pure. Everything here is in exclusive ends: an ack offset of 5 says that records 0 to 4 are held.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from paceline.types import NO_PARTITION_EPOCH, BrokerEpoch, NodeId, PartitionEpoch
from paceline.values import dataclass


@dataclass(slots=True)
class FollowerProgress:
    """What a leader knows of one follower, learned in its present leader epoch only.

    ``ack`` is what the follower may be counted for, ``fetch_offset`` its log end. ``caught_up_at``
    is the latest time of which the leader is sure that the follower held everything the leader
    held then. To learn it, the leader remembers one mark (its log end and the time); once the
    follower's ack passes the mark, it was caught up at that time. Measuring by ack and not by
    fetch offset lets a follower whose flushes hang fall out of the ISR too.
    """

    broker_epoch: BrokerEpoch
    ack: int
    fetch_offset: int
    last_fetch: float
    caught_up_at: float
    mark_offset: int
    mark_at: float
    log_start: int = -1
    """As it is on the follower's disk; -1 while nothing is known."""
    start_due: int = -1
    start_due_since: float = math.inf
    """A log start that the leader had then, and that is not on the follower's disk yet."""
    partition_epoch: PartitionEpoch = NO_PARTITION_EPOCH
    """Of the registration by which the follower spoke last."""

    def observe(self, fetch_offset: int, durable_offset: int, leader_end: int, now: float) -> None:
        """Take in one fetch; ``leader_end`` is the leader's log end before the read."""
        ack = durable_offset if durable_offset < fetch_offset else fetch_offset
        self.ack = ack
        self.fetch_offset = fetch_offset
        self.last_fetch = now
        if ack >= leader_end:
            self.caught_up_at = now
            self.mark_offset = leader_end
            self.mark_at = now
        elif ack >= self.mark_offset:
            if self.mark_at > self.caught_up_at:
                self.caught_up_at = self.mark_at
            self.mark_offset = leader_end
            self.mark_at = now

    def observe_start(self, log_start: int, leader_start: int, now: float) -> None:
        """Take in where the log begins on the follower's disk, with each fetch. As with the ends,
        one that is always a little behind keeps up."""
        self.log_start = log_start
        if log_start >= leader_start:
            self.start_due, self.start_due_since = leader_start, math.inf
        elif log_start >= self.start_due:
            self.start_due, self.start_due_since = leader_start, now

    def is_lagging(self, leader_end: int, now: float, lag_max_s: float) -> bool:
        """Whether the follower must leave the ISR (DESIGN 3.6)."""
        if now - self.last_fetch > lag_max_s or now - self.start_due_since > lag_max_s:
            return True
        return self.ack != leader_end and now - self.caught_up_at > lag_max_s


def committed_end(
    own_ack: int,
    others: Iterable[NodeId],
    progress: Mapping[NodeId, FollowerProgress],
    isr_size: int,
    min_isr: int,
) -> int | None:
    """The end that everyone who counts holds, or None while it cannot be known.

    ``others`` is the maximal ISR without the leader. The ISR's size, not the maximal one's, is
    judged against ``min_isr`` (I15); a member not heard of in this leader epoch says nothing.
    """
    if isr_size < min_isr:
        return None
    end = own_ack
    for node in others:
        known = progress.get(node)
        if known is None:
            return None
        if known.ack < end:
            end = known.ack
    return end


@dataclass(slots=True)
class _Slot:
    ack: int
    seen_at: float


class SimulatedSlots:
    """Progress that clients claim for the vacant slots of a lone node (DESIGN 8).

    Lives in the leader's memory only and is forgotten in every new leader epoch. A slot is in
    sync when it was seen within the lag time and holds everything the leader holds but at most
    ``max_lag`` records.
    """

    def __init__(self, *, lag_max_s: float, max_lag: int = 0) -> None:
        self._lag_max_s = lag_max_s
        self._max_lag = max_lag
        self._slots: dict[int, _Slot] = {}

    def acknowledge(self, slot: int, end: int, leader_end: int, now: float) -> None:
        """A client says that ``slot`` holds the log up to ``end``; it never goes back."""
        held = self._slots.get(slot)
        before = 0 if held is None else held.ack
        self._slots[slot] = _Slot(max(before, min(end, leader_end)), now)

    def ack(self, slot: int) -> int:
        """End of what the slot is said to hold; 0 if it was never heard of."""
        held = self._slots.get(slot)
        return 0 if held is None else held.ack

    def in_sync(self, leader_end: int, now: float) -> tuple[int, ...]:
        """Slots that count toward min ISR, ascending."""
        return tuple(
            slot
            for slot, held in sorted(self._slots.items())
            if held.ack + self._max_lag >= leader_end and now - held.seen_at <= self._lag_max_s
        )

    def clear(self) -> None:
        """Forget everything: a second node registered, or leadership changed."""
        self._slots.clear()
