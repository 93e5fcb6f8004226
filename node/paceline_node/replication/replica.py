"""One replica of one partition: its role, and every rule about its log (DESIGN 3, 4.1, 5).

Pure: driven by metadata, fetches and answers; it reads no clock and sends nothing. ``partition.py``
drives it on trio, the simulator in ``tests/sim/replication`` drives it from a seeded event queue.
Assertions here state invariants marked A in DESIGN 2; a broken one ends the process,
because going on would lose acknowledged records.
"""

from __future__ import annotations

import enum
import math

from paceline.errors import CorruptMessage, ErrorCode, NotEnoughReplicas, NotLeader
from paceline.types import NO_EPOCH, NO_NODE, Acks, LeaderEpoch, NodeId
from paceline.wire.peer.replica import EpochSpan, FetchedPartition, FetchPartition
from paceline_node.controller.metadata_records import PartitionRegistration as Registration
from paceline_node.replication import refused_truncations
from paceline_node.replication.fetch_checks import (
    ACCEPTED,
    FetchCheck,
    FollowerIdentity,
    check_position,
    lacks_deletions,
)
from paceline_node.replication.follower import FetchOutcome, FollowerState
from paceline_node.replication.leader import Brokers, LeaderState
from paceline_node.replication.replica_log import ReplicaLog
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.producers import FrozenTable


class Role(enum.Enum):
    """What this replica does at present."""

    NONE = "none"
    """No registration applied yet, or not a replica any more."""
    LEADER = "leader"
    FOLLOWER = "follower"
    LEADERLESS = "leaderless"


class Transition(enum.Enum):
    """What a registration changed."""

    NOTHING = "nothing"
    ADOPTED = "adopted"
    """Still leader in the same epoch; ISR, min ISR or the pending proposal may have changed."""
    LEADER = "leader"
    FOLLOWER = "follower"
    LEADERLESS = "leaderless"
    REMOVED = "removed"


_REFUSALS = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.STORAGE_ERROR,
    }
)


class Replica:
    """A replica's role and high watermark over its log.

    ``counts_durable`` tells whether the flush mode counts fsynced records only
    (storage/DESIGN 2.2); every replica, the leader included, is counted by its ack offset.
    ``high_watermark`` is what the checkpoint said, 0 if nothing.
    """

    def __init__(
        self,
        me: NodeId,
        log: ReplicaLog,
        *,
        high_watermark: int = 0,
        counts_durable: bool = True,
        patience_s: float = refused_truncations.PATIENCE_S,
    ) -> None:
        self.me = me
        self.log = log
        self.counts_durable = counts_durable
        self.patience_s = patience_s
        self.role = Role.NONE
        self.leader_epoch: LeaderEpoch = NO_EPOCH
        self.registration: Registration | None = None
        self.leader: LeaderState | None = None
        self.follower: FollowerState | None = None
        self.high_watermark = 0
        self.durable_start = log.log_start_offset
        """The log start as a restart would find it at least."""
        self._brokers: Brokers = {}
        self._started_at = math.inf
        self._heard_longer_at = -math.inf
        self._clamp(high_watermark)

    @property
    def ack_offset(self) -> int:
        """What this replica may be counted for."""
        return self.log.durable_offset if self.counts_durable else self.log.log_end_offset

    @property
    def leader_id(self) -> NodeId:
        """Who leads as far as known here; -1: nobody."""
        return NO_NODE if self.registration is None else self.registration.leader

    @property
    def high_watermark_is_true(self) -> bool:
        """Whether the high watermark covers all that any earlier leader may have committed."""
        return self.leader is not None and self.high_watermark >= self.leader.start_offset

    def _clamp(self, high_watermark: int) -> None:
        log = self.log
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)

    def log_was_cut(self) -> None:
        """The log was shortened from outside: a damaged tail that nobody counts was given up."""
        self._clamp(self.high_watermark)

    # --- metadata (DESIGN 3.1) --------------------------------------------------------------------

    def apply(self, registration: Registration, brokers: Brokers, now: float) -> Transition:
        """Act on a registration from an image that the gate admitted."""
        self._brokers = brokers
        self._started_at = min(self._started_at, now)
        known = self.registration
        if known is registration:
            return Transition.NOTHING
        if known is not None:
            assert registration.leader_epoch >= known.leader_epoch, (known, registration)  # I9
            assert registration.partition_epoch >= known.partition_epoch, (known, registration)
        self.registration = registration
        if self.me not in registration.replicas:
            self._leave_role(Role.NONE)
            return Transition.REMOVED
        if registration.leader_epoch > self.leader_epoch:
            return self._take_role(registration, now)
        if self.leader is not None:
            self.leader.adopt(registration)
            return Transition.ADOPTED
        return Transition.NOTHING

    def give_up(self) -> None:
        """This replica ends: its log is about to be closed."""
        self._leave_role(Role.NONE)

    def _leave_role(self, role: Role) -> None:
        self.leader = None
        self.follower = None
        self.role = role

    def _take_role(self, registration: Registration, now: float) -> Transition:
        self.leader_epoch = registration.leader_epoch
        if registration.leader == self.me:
            self._become_leader(registration, now)
            return Transition.LEADER
        if registration.leader == NO_NODE:
            self._leave_role(Role.LEADERLESS)
            return Transition.LEADERLESS
        self._leave_role(Role.FOLLOWER)
        # A term that this replica led without a single write is no part of its log: named as the
        # epoch of its last batch it would make the new leader see a fork where there is none.
        self.log.epochs.truncate_end(self.log.log_end_offset)
        self._doubt_above(registration.leader_epoch)
        self.follower = FollowerState(registration.leader, registration.leader_epoch)
        return Transition.FOLLOWER

    def _become_leader(self, registration: Registration, now: float) -> None:
        self._doubt_above(registration.leader_epoch - 1)  # I7, I21
        self._leave_role(Role.LEADER)
        end = self.log.log_end_offset
        self.log.epochs.assign(registration.leader_epoch, end)
        self.log.prove()
        # Always a new state: what followers said in an earlier epoch may be truncated (DESIGN 3.2).
        self.leader = LeaderState(self.me, registration, end, now)
        self._clamp(self.high_watermark)

    def _doubt_above(self, newest: int) -> None:
        """No leader epoch above ``newest`` can have written anything: a batch of one has rotted
        outside its checksum, and is to be read against a table that knows none."""
        log = self.log
        named = log.epochs.last_epoch
        start = log.epochs.lower(newest)
        if start is not None and start < log.log_end_offset:
            text = f"leader epoch {named} from offset {start} on, {newest} at most has begun"
            log.doubt(start, CorruptMessage(text))

    # --- leader ----------------------------------------------------------------------------------

    def check_leading(self) -> LeaderState:
        """Raises NotLeader unless this replica leads."""
        if self.leader is None:
            raise NotLeader(f"node {self.me} does not lead; the leader is node {self.leader_id}")
        return self.leader

    def check_produce(self, acks: Acks, required_isr: int) -> LeaderState:
        """May records be appended (DESIGN 4.1)? Raises NotLeader or NotEnoughReplicas.

        ``required_isr`` is the configured ``min.insync.replicas`` (controller/DESIGN 1.7); the
        caller appends without awaiting in between.
        """
        leader = self.check_leading()
        if acks == Acks.ALL and len(leader.registration.isr) < required_isr:
            isr = leader.registration.isr
            count = "1 replica is" if len(isr) == 1 else f"{len(isr)} replicas are"
            raise NotEnoughReplicas(
                f"{count} in sync (node {', '.join(map(str, isr))}), "
                f"and min.insync.replicas is {required_isr}"
            )
        return leader

    def advance(self) -> bool:
        """Move the high watermark as far as is committed (DESIGN 3.5); whether it moved.

        Call it after an append, a flush, a follower's fetch, or metadata.
        """
        leader = self.leader
        if leader is None:
            return False
        end = leader.committed_end(self.ack_offset)
        if end is None or end <= self.high_watermark:
            return False
        assert end <= self.log.log_end_offset, (end, self.log.log_end_offset)  # I10
        self.high_watermark = end
        return True

    def check_fetch(self, sender: FollowerIdentity, position: FetchPartition) -> FetchCheck:
        """As DESIGN 3.3 has it: may this follower read at this position? Changes nothing."""
        leader = self.leader
        if position.current_leader_epoch < self.leader_epoch:
            return FetchCheck(ErrorCode.FENCED_LEADER_EPOCH)
        if position.current_leader_epoch > self.leader_epoch:
            return FetchCheck(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if leader is None:
            return FetchCheck(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if sender.node not in leader.registration.replicas:
            return FetchCheck(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if self._is_stale(leader, sender):
            return FetchCheck(ErrorCode.STALE_BROKER_EPOCH)
        check = check_position(self.log, leader.registration, position)
        if check is ACCEPTED and lacks_deletions(self.log, leader, sender.node, position):
            return FetchCheck(ErrorCode.OFFSET_OUT_OF_RANGE, begin_anew=True)
        return check

    def _is_stale(self, leader: LeaderState, sender: FollowerIdentity) -> bool:
        if sender.broker_epoch < leader.newest_broker_epoch(sender.node, self._brokers):
            return True
        registered = self._brokers.get(sender.node)
        return registered is not None and registered.directory_id != sender.directory_id

    def on_fetch(
        self, sender: FollowerIdentity, position: FetchPartition, now: float
    ) -> FetchCheck:
        """As DESIGN 3.3 has it, proposals included. The caller then calls :meth:`advance`
        and reads; a parked fetch that wakes is judged by :meth:`check_fetch` alone, for it brings
        no news of the follower."""
        check = self.check_fetch(sender, position)
        if check is not ACCEPTED:
            if check.follower_is_longer:
                self._heard_longer_at = now
            return check
        leader = self.leader
        assert leader is not None
        counts = leader.observe_fetch(
            sender.node,
            sender.broker_epoch,
            position.fetch_offset,
            position.durable_offset,
            self.log.log_end_offset,
            now,
            position.partition_epoch,
        )
        if not counts:
            return ACCEPTED
        start = self.log.log_start_offset
        leader.followers[sender.node].observe_start(position.log_start_offset, start, now)
        if position.log_start_offset > self.log.log_start_offset:  # deleted, and forgotten here
            self.log.advance_start(min(leader.others_begin_at(alone=-1), self.high_watermark))
        # Clients may have been told that what lies below is deleted: whoever leads must know that
        # (DESIGN 5.7).
        if position.log_start_offset < leader.low_watermark(own=self.durable_start):
            return ACCEPTED
        if not refused_truncations.awaits_others(
            leader.registration,
            sender.node,
            ran_s=now - self._started_at,
            longer_s=now - self._heard_longer_at,
            patience_s=self.patience_s,
        ):
            leader.consider_expand(sender.node, self.high_watermark, self._brokers)
        return ACCEPTED

    def answer(
        self,
        position: FetchPartition,
        check: FetchCheck,
        records_bytes: int = 0,
        next_offset: int = 0,
    ) -> FetchedPartition:
        """The leader's answer to a fetch judged so, with that many bytes of records, up to before
        ``next_offset``."""
        log = self.log
        at = position.fetch_offset
        told = log.epochs.between(at, next_offset) if records_bytes else ()
        begin_at = None if check is ACCEPTED else log.state_offset
        return FetchedPartition(
            topic_id=position.topic_id,
            partition=position.partition,
            error=check.error,
            leader_epoch=self.leader_epoch,
            leader_id=self.leader_id,
            fetch_offset=position.fetch_offset,
            high_watermark=self.high_watermark,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            diverging_epoch=check.diverging_epoch,
            diverging_end_offset=check.diverging_end,
            records_bytes=records_bytes,
            state_offset=-1 if begin_at is None else begin_at,
            begin_anew=check.begin_anew,
            follower_is_longer=check.follower_is_longer,
            epochs=tuple(EpochSpan(LeaderEpoch(epoch), start) for epoch, start in told),
        )

    def consider_shrink(self, now: float, lag_max_s: float) -> bool:
        """Propose the ISR without lagging members, or, alone for long, that another replica leads;
        called every half lag time (DESIGN 3.6)."""
        leader = self.leader
        return leader is not None and (
            leader.consider_shrink(self.log.log_end_offset, now, lag_max_s)
            or leader.consider_relinquish(now, lag_max_s, self._brokers)
        )

    # --- follower (DESIGN 3.4) --------------------------------------------------------------------

    def position(self, topic_max_bytes: int) -> FetchPartition:
        """Where this follower is, for a fetch or an ack."""
        log = self.log
        registration = self.registration
        assert registration is not None
        end = log.log_end_offset
        return FetchPartition(
            topic_id=registration.topic_id,
            partition=registration.partition,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=end,
            durable_offset=log.durable_offset if self.counts_durable else end,
            last_fetched_epoch=log.epochs.last_epoch,
            log_start_offset=min(self.durable_start, log.log_start_offset),
            known_hw=-1 if self._needs_a_word else self.high_watermark,
            max_bytes=topic_max_bytes,
            partition_epoch=registration.partition_epoch,
            copied_at=log.compaction.removals.token(self.leader_epoch),
        )

    @property
    def _needs_a_word(self) -> bool:
        """Whether this follower's leader has not answered yet, and must, though there be no news of
        an idle partition: this replica is called damaged, and only then may it say that it is
        whole, or it withholds something (storage/DESIGN 6.1)."""
        if self.follower is None or self.follower.confirmed >= 0 or self.registration is None:
            return False
        return self.me in self.registration.damaged or not self.log.is_proven()

    def start_fetch(self, nonce: int, max_bytes: int) -> FetchPartition | None:
        """The part of a fetch request for this partition; None when it follows nobody."""
        if self.follower is None:
            return None
        self.follower.in_flight = nonce
        return self.position(max_bytes)

    def on_fetched(self, nonce: int, answer: FetchedPartition, records: memoryview) -> FetchOutcome:
        """Act on the leader's answer to the fetch with that nonce."""
        follower = self.follower
        if follower is None or follower.in_flight != nonce:
            return FetchOutcome.DROPPED
        if answer.error in _REFUSALS:
            follower.in_flight = None
            return FetchOutcome.REFUSED
        log = self.log
        if not follower.accepts(
            nonce, answer.leader_epoch, answer.fetch_offset, log.log_end_offset
        ):
            return FetchOutcome.DROPPED
        follower.in_flight = None
        follower.is_behind = False
        hw = self.high_watermark
        refused = refused_truncations.judge(self.me, self.registration, log, hw, answer)
        if refused is not None:
            follower.leader_lacks = refused is FetchOutcome.LACKING
            return refused
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._out_of_range(follower, answer)
        if answer.error != ErrorCode.NONE:
            return FetchOutcome.REFUSED
        if answer.diverging_epoch >= 0:
            return self._diverge(follower, answer)
        return self._extend(follower, answer, records)

    def _extend(
        self, follower: FollowerState, answer: FetchedPartition, records: memoryview
    ) -> FetchOutcome:
        log = self.log
        outcome = FetchOutcome.PROVEN if log.prove() else FetchOutcome.IDLE
        if len(records):
            try:
                told = EpochCache([(span.epoch, span.start_offset) for span in answer.epochs])
                log.append_follower(records, self.leader_epoch, told)
            except (CorruptMessage, ValueError):  # of a table that goes back, too
                return FetchOutcome.CORRUPT
            follower.corrupt_in_row = 0
            assert log.epochs.last_epoch <= self.leader_epoch  # I7
            outcome = FetchOutcome.APPENDED
        committed = min(answer.high_watermark, log.log_end_offset)
        if committed > self.high_watermark:
            self.high_watermark = committed
        if committed > follower.confirmed:
            follower.confirmed = committed
        if answer.log_start_offset > log.log_start_offset:
            log.advance_start(min(answer.log_start_offset, self.high_watermark))
        return outcome

    def _diverge(self, follower: FollowerState, answer: FetchedPartition) -> FetchOutcome:
        log = self.log
        end = log.log_end_offset
        assert self.registration is not None
        point = refused_truncations.fork(self.registration, log.epochs, end, answer)
        assert point >= follower.confirmed, (point, follower)  # I22
        if point >= end:
            # No round may leave the log as it was: a leader that says so contradicts itself.
            return FetchOutcome.REFUSED
        if point < log.log_start_offset or log.end_if_cut(point) < log.log_start_offset:
            return _behind(follower, answer)
        log.truncate(point)
        self.high_watermark = min(self.high_watermark, point)
        return FetchOutcome.TRUNCATED

    def _out_of_range(self, follower: FollowerState, answer: FetchedPartition) -> FetchOutcome:
        log = self.log
        if answer.begin_anew:
            registration = self.registration
            assert registration is not None
            if self.me in registration.isr or self.me in registration.elr:
                return FetchOutcome.REFUSED  # one of the two has older metadata
            return _behind(follower, answer)
        below_leader = answer.state_offset > log.log_end_offset
        nothing_to_lose = log.log_start_offset == log.log_end_offset
        if below_leader or (nothing_to_lose and answer.log_end_offset < log.log_end_offset):
            return _behind(follower, answer)
        # Longer than the leader's log: only an answer by epochs says where the fork is.
        return FetchOutcome.REFUSED

    def begin_at(self, state: FrozenTable) -> bool:
        """Begin the log anew where ``state`` was taken, which is on this replica's disk (or of
        offset 0). False: this follower is not behind any more, and nothing happened."""
        follower = self.follower
        if follower is None or not follower.is_behind:
            return False
        follower.is_behind = False
        self.begin_anew(state)
        return True

    def begin_anew(self, state: FrozenTable) -> None:
        """As :meth:`begin_at`, for a damaged replica, which nobody counts."""
        self.log.begin_at(state, is_kept=True)  # first: where there is no room, nothing happens
        if self.follower is not None:
            self.follower.in_flight = None
            self.follower.confirmed = -1
        self.high_watermark = self.durable_start = state.offset


def _behind(follower: FollowerState, answer: FetchedPartition) -> FetchOutcome:
    if answer.state_offset < 0:
        return FetchOutcome.REFUSED  # the leader cannot tell where to begin, or not yet
    follower.is_behind = True
    return FetchOutcome.BEHIND
