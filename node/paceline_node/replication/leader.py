"""What a leader keeps for one partition in one leader epoch (DESIGN 3.2, 3.5, 3.6).

Pure. A new :class:`LeaderState` is made in every leader epoch, also when this broker led the
previous one it knows of: what followers said in an older epoch may have been truncated since.
The ISR seen here is the one of the metadata log; proposals only widen what the high watermark
waits for (the maximal ISR) until the log decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

from paceline.types import BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch
from paceline.values import dataclass
from paceline.wire.peer.control import IsrMember
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.replication.isr import FollowerProgress, committed_end

PROPOSAL_RESEND_S = 0.5
LONELY_LAGS = 2.0
"""Lag times that a leader without enough followers waits before it lets another one try."""
ALREADY_MEMBER = BrokerEpoch(-1)


class BrokerView(Protocol):
    """What a leader reads of a registered broker in the metadata image."""

    @property
    def broker_epoch(self) -> BrokerEpoch: ...
    @property
    def directory_id(self) -> UUID: ...
    @property
    def fenced(self) -> bool: ...
    @property
    def in_controlled_shutdown(self) -> bool: ...


Brokers = Mapping[NodeId, BrokerView]


@dataclass(slots=True)
class Proposal:
    """An ISR change asked of the controller and not yet overtaken in the metadata log; with
    ``relinquish``: that another replica leads."""

    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[IsrMember, ...]
    relinquish: bool = False
    sent_at: float | None = None


class LeaderState:
    """Followers' progress, the pending proposal, and the arithmetic over them.

    ``start_offset`` is LESO: the log end at the moment this broker took office.
    """

    def __init__(
        self, me: NodeId, registration: PartitionRegistration, start_offset: int, now: float
    ) -> None:
        self.me = me
        self.leader_epoch = registration.leader_epoch
        self.start_offset = start_offset
        self.took_office_at = now
        self.followers: dict[NodeId, FollowerProgress] = {}
        self.pending: Proposal | None = None
        self._short_since: float | None = None
        self.registration = registration
        self._isr_size = 0
        self._others: tuple[NodeId, ...] = ()
        self.adopt(registration)

    @property
    def isr(self) -> tuple[NodeId, ...]:
        """The committed ISR, in replica order."""
        return self.registration.isr

    @property
    def maximal_isr(self) -> frozenset[NodeId]:
        """Everyone the high watermark waits for, this broker included."""
        return frozenset((self.me, *self._others))

    def adopt(self, registration: PartitionRegistration) -> None:
        """Take over a newer registration of the same leader epoch from the metadata log.

        A proposal whose base was overtaken is resolved, one way or the other: it was accepted, or
        it can never be accepted any more (DESIGN 3.6). What followers that left the ISR or became
        damaged said before counts for nothing from now on.
        """
        before, self.registration = self.registration, registration
        for node in {*before.isr, *registration.damaged}.difference(registration.isr):
            self.followers.pop(node, None)
        pending = self.pending
        if pending is not None and registration.partition_epoch > pending.partition_epoch:
            self.pending = None
        self._recount()

    def _recount(self) -> None:
        members = set(self.registration.isr)
        if self.pending is not None:
            members.update(member.node_id for member in self.pending.isr)
        members.discard(self.me)
        self._others = tuple(sorted(members))
        self._isr_size = len(self.registration.isr)

    def observe_fetch(
        self,
        node: NodeId,
        broker_epoch: BrokerEpoch,
        fetch_offset: int,
        durable_offset: int,
        leader_end: int,
        now: float,
        partition_epoch: PartitionEpoch,
    ) -> bool:
        """An accepted fetch tells where a follower is; whether it counts. One that
        is older than what is known does not: it may tell of a log that has been reset since."""
        known = self.followers.get(node)
        if known is None:
            office = self.took_office_at
            known = FollowerProgress(
                broker_epoch, 0, 0, office, office, mark_offset=self.start_offset, mark_at=office
            )
            self.followers[node] = known
        elif broker_epoch == known.broker_epoch and partition_epoch < known.partition_epoch:
            return False
        known.broker_epoch = broker_epoch
        known.partition_epoch = partition_epoch
        known.observe(fetch_offset, durable_offset, leader_end, now)
        return True

    def others_begin_at(self, *, alone: int) -> int:
        """The lowest log start that the other replicas in sync, or proposed to be, have on disk;
        -1: not known; ``alone``: there are none. Before a client is told of a deletion, all have it
        there; the word of one among several is not enough."""
        others = [self.followers.get(node) for node in self._others]
        return min((-1 if each is None else each.log_start for each in others), default=alone)

    def low_watermark(self, *, own: int) -> int:
        """The log start that all replicas have on disk that are in sync, or may be elected all the
        same; -1: not known. ``own``: as this leader's disk has it."""
        known = [own, self.others_begin_at(alone=own)]
        for node in self.registration.elr:
            follower = self.followers.get(node)
            known.append(-1 if follower is None else follower.log_start)
        return min(known)

    def newest_broker_epoch(self, node: NodeId, brokers: Brokers) -> int:
        """The newest broker epoch known of a follower, from metadata or from its fetches."""
        registered = brokers.get(node)
        newest = -1 if registered is None else registered.broker_epoch
        known = self.followers.get(node)
        if known is not None and known.broker_epoch > newest:
            return known.broker_epoch
        return newest

    def committed_end(self, own_ack: int) -> int | None:
        """How far the log is committed by what is known now; None: cannot be known."""
        return committed_end(
            own_ack, self._others, self.followers, self._isr_size, self.registration.min_isr
        )

    # --- proposals -------------------------------------------------------------------------------

    def may_join(self, node: NodeId, high_watermark: int, brokers: Brokers) -> bool:
        """Whether a follower meets every condition for joining the ISR (DESIGN 3.6).

        Reaching the high watermark is not enough right after an election: it may be behind the
        true one, but the log end at which this broker took office never is. Nor is what it said
        before it knew of its last removal, damage or repair: it must speak by a registration as
        new as this leader's.
        """
        known = self.followers.get(node)
        registered = brokers.get(node)
        return (
            known is not None
            and registered is not None
            and node not in self.registration.damaged
            and known.partition_epoch >= self.registration.partition_epoch
            and known.ack >= high_watermark
            and known.ack >= self.start_offset
            and not registered.fenced
            and not registered.in_controlled_shutdown
            and known.broker_epoch == registered.broker_epoch
        )

    def consider_expand(self, node: NodeId, high_watermark: int, brokers: Brokers) -> bool:
        """Propose ``node``, which has just fetched, if it may join; whether a proposal was made.

        Nobody else is considered: another one's progress is as old as its last fetch, and it may
        have ended or found itself damaged since.
        """
        isr = self.registration.isr
        if self.pending is not None or node in isr:
            return False
        if not self.may_join(node, high_watermark, brokers):
            return False
        members = [IsrMember(each, ALREADY_MEMBER) for each in isr]
        self._propose((*members, IsrMember(node, brokers[node].broker_epoch)))
        return True

    def consider_shrink(self, leader_end: int, now: float, lag_max_s: float) -> bool:
        """Propose the ISR without everyone who lags; whether a proposal was made."""
        if self.pending is not None:
            return False
        staying = [
            node
            for node in self.registration.isr
            if node == self.me or not self._lags(node, leader_end, now, lag_max_s)
        ]
        if len(staying) == len(self.registration.isr):
            return False
        self._propose(tuple(IsrMember(node, ALREADY_MEMBER) for node in staying))
        return True

    def consider_relinquish(self, now: float, lag_max_s: float, brokers: Brokers) -> bool:
        """Propose that another replica leads; whether a proposal was made (controller/DESIGN 5.6).

        That is when the ISR has been below the minimum for twice the lag time, no follower has
        fetched meanwhile, and a complete one is alive. A follower that fetches is on its way back:
        then waiting loses nothing, while another leader would not have what was written to this
        one with acks=1.
        """
        if len(self.registration.isr) >= self.registration.min_isr:
            self._short_since = None
            return False
        if self._short_since is None:
            self._short_since = now
        since = now - LONELY_LAGS * lag_max_s
        if self.pending is not None or self._short_since > since:
            return False
        if any(known.last_fetch > since for known in self.followers.values()):
            return False
        if not any(_is_alive(node, brokers) for node in self.registration.elr):
            return False
        self._short_since = now  # should it be refused, ask again after as long
        registration = self.registration
        self.pending = Proposal(
            self.leader_epoch, registration.partition_epoch, (), relinquish=True
        )
        self._recount()
        return True

    def _lags(self, node: NodeId, leader_end: int, now: float, lag_max_s: float) -> bool:
        known = self.followers.get(node)
        if known is None:
            return now - self.took_office_at > lag_max_s
        return known.is_lagging(leader_end, now, lag_max_s)

    def _propose(self, isr: tuple[IsrMember, ...]) -> None:
        self.pending = Proposal(self.leader_epoch, self.registration.partition_epoch, isr)
        self._recount()

    def proposal_due(self, now: float) -> Proposal | None:
        """The pending proposal if it must be sent now: at once, then every 500 ms, unchanged,
        until the metadata log overtakes its base. The caller sends what it gets."""
        pending = self.pending
        if pending is None:
            return None
        if pending.sent_at is not None and now - pending.sent_at < PROPOSAL_RESEND_S:
            return None
        pending.sent_at = now
        return pending


def _is_alive(node: NodeId, brokers: Brokers) -> bool:
    broker = brokers.get(node)
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown
