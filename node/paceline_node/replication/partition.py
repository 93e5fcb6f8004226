"""A partition as this node serves it: its log, its replica's role, and everyone who waits.

Every state change is synchronous: between the check of the role and the append, and between a move
of the high watermark and its answers, there is no await (DESIGN 4.1). The rules
are ``replica.py``'s, appending is ``appends.py``'s, waiting for more to read ``long_polls.py``'s;
what belongs here is reading, and bringing them together with callbacks, flushes and errors. A
failed append fails that request; a failed disk fails the node (storage/DESIGN 2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paceline.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from paceline.types import NO_EPOCH, Isolation, LeaderEpoch, NodeId, TopicId
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.replication.appends import Appends
from paceline_node.replication.damage_refusals import refusal
from paceline_node.replication.leader import Brokers
from paceline_node.replication.long_polls import LongPolls
from paceline_node.replication.partition_context import PartitionContext, ReadResult
from paceline_node.replication.pending_produces import Done, ProduceResult
from paceline_node.replication.refused_truncations import PATIENCE_S
from paceline_node.replication.replica import Replica, Role, Transition
from paceline_node.replication.trim_progress import TrimProgress
from paceline_node.replication.waiters import AckWatchers, Waiter
from paceline_node.settings.topic_config import TopicConfig
from paceline_node.storage.log import Log
from paceline_node.storage.reading import LocalSlice
from paceline_node.storage.transaction_index import AbortedTransaction

__all__ = [
    "Done",
    "Partition",
    "PartitionContext",
    "PartitionKey",
    "ProduceResult",
    "ReadResult",
]

PartitionKey = tuple[TopicId, int]
"""A partition for life: a topic of the same name made later has another id."""


class Partition:
    """One hosted partition. Made by the table once its log is open; ``close`` before the log is."""

    def __init__(
        self,
        context: PartitionContext[Partition],
        topic: str,
        log: Log,
        config: TopicConfig,
        *,
        high_watermark: int = 0,
    ) -> None:
        self._context = context
        self._events = context.events
        self.topic = topic
        self.topic_id = TopicId(log.topic_id)
        self.partition = log.partition
        self.key: PartitionKey = (self.topic_id, self.partition)
        self.log = log
        log.state.serve(lambda: context.events.state_due(log))
        self.config = config
        self.traffic = context.traffic(topic)
        self.replica = Replica(
            context.node_id,
            log,
            high_watermark=high_watermark,
            counts_durable=config.flush_mode.counts_durable,
            patience_s=min(PATIENCE_S, context.lag_max_s),
        )
        self.appends = Appends(context, topic, self.replica, log, config, appended=self._appended)
        self.produce, self.end_transaction = self.appends.produce, self.appends.end_transaction
        self.gate, self.fence, self.quota = (
            self.appends.gate,
            self.appends.fence,
            self.appends.quota,
        )
        self.simulation = self.appends.simulation
        self._readers = LongPolls(self.replica, log)
        self.readable_end = self._readers.readable_end
        self.when_readable = self._readers.when_readable
        self.trims = TrimProgress(self.replica)
        self._ack_watchers = AckWatchers(self.acked)
        log.watch_reads(lambda offset, error: self._events.unreadable(self, offset, str(error)))

    def __repr__(self) -> str:
        return f"<Partition {self} {self.replica.role.value}>"

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"

    # --- state --------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        return self.replica.role

    @property
    def is_leader(self) -> bool:
        return self.replica.leader is not None

    @property
    def leader(self) -> NodeId:
        """The node that leads as far as known here; -1: nobody."""
        return self.replica.leader_id

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.replica.leader_epoch

    @property
    def registration(self) -> PartitionRegistration | None:
        """The newest registration applied; None before the gate of 3.1 opened."""
        return self.replica.registration

    @property
    def isr(self) -> tuple[NodeId, ...]:
        """The committed in-sync replicas, in replica order."""
        registration = self.replica.registration
        return () if registration is None else registration.isr

    @property
    def high_watermark(self) -> int:
        return self.replica.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """End of what read-committed readers see."""
        return self._readers.last_stable_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def waiting_count(self) -> int:
        """Producers that wait for an answer."""
        return len(self.appends)

    def acked(self, node: NodeId) -> int:
        """End of what ``node`` has acknowledged to this leader in its epoch; 0 if unknown."""
        if node == self._context.node_id:
            return self.replica.ack_offset
        leader = self.replica.leader
        known = None if leader is None else leader.followers.get(node)
        return 0 if known is None else known.ack

    def fetched(self, node: NodeId) -> int:
        """Log end of ``node`` as its last fetch in this leader epoch told it; 0 if unknown."""
        if node == self._context.node_id:
            return self.log.log_end_offset
        leader = self.replica.leader
        known = None if leader is None else leader.followers.get(node)
        return 0 if known is None else known.fetch_offset

    def check_serving(self) -> None:
        """Raise NotLeader unless this node leads, and knows so from a controller (admission)."""
        self._context.admission.check_session()
        self.replica.check_leading()

    # --- read ---------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        *,
        current_leader_epoch: int = NO_EPOCH,
        from_follower: bool = False,
    ) -> ReadResult:
        """Committed batches from the one that contains ``offset`` on, at least one if there is any.

        Raises NotLeader (unless ``from_follower``), FencedLeaderEpoch, UnknownLeaderEpoch,
        OffsetOutOfRange; OffsetNotAvailable on a follower that does not know it to be committed;
        InOlderTier (``older_tier_reads.py``); CorruptMessage. No read passes the high watermark
        (I11).
        """
        self.check_epoch(current_leader_epoch)
        leading = self.replica.leader is not None
        if not leading and not from_follower:
            raise NotLeader(f"{self}: the leader is node {self.leader}")
        log = self.log
        start, end = log.log_start_offset, log.log_end_offset
        committed = self.readable_end(isolation)
        if offset < start or offset > end:
            if not leading and offset > end:
                raise OffsetNotAvailable(f"{self}: offset {offset} has not reached this follower")
            raise log.tiers.outside(offset, start)
        found = self._locate(offset, max_bytes, committed) if offset < committed else None
        aborted: Sequence[AbortedTransaction] = ()
        if found is not None and isolation == Isolation.READ_COMMITTED:
            aborted = log.producers.transactions.aborted_in(offset, found.next_offset)
        return ReadResult(
            found,
            self.replica.high_watermark,
            self.last_stable_offset,
            start if log.tiers.older is None else log.tiers.start_offset,
            end,
            self.replica.leader_epoch,
            aborted,
        )

    def _locate(self, offset: int, max_bytes: int, end: int) -> LocalSlice | None:
        try:
            return self.log.locate(offset, max_bytes, end)
        except CorruptMessage as error:
            raise self.refuse(offset, error) from error

    def refuse(self, offset: int, error: CorruptMessage) -> CorruptMessage:
        """As :meth:`suspect`, and what the reader who met with ``error`` there is told."""
        self.suspect(offset)
        return refusal(error, self._context.node_id, self.registration)

    def suspect(self, offset: int) -> None:
        """The batch at ``offset`` failed a check: have it read again, and repaired if need be."""
        self._events.suspect(self, offset)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Compare a client's leader epoch with ours; -1 is unchecked. Raises FencedLeaderEpoch or
        UnknownLeaderEpoch."""
        known = self.replica.leader_epoch
        if current_leader_epoch in (NO_EPOCH, known):
            return
        text = f"{self}: leader epoch {current_leader_epoch}, this node has {known}"
        raise (FencedLeaderEpoch if current_leader_epoch < known else UnknownLeaderEpoch)(text)

    def when_acked(self, node: NodeId, end: int, callback: Callable[[], None]) -> object:
        """Call ``callback`` once ``node`` acknowledges up to ``end``, or when the role changes.
        Returns a token for :meth:`cancel`."""
        return self._ack_watchers.add(node, end, callback)

    def cancel(self, token: object) -> None:
        """Forget a callback of :meth:`when_readable` or :meth:`when_acked`; idempotent."""
        if isinstance(token, Waiter):
            token.keeper.cancel(token)
        else:
            self._ack_watchers.cancel(token)

    # --- what moves offsets -------------------------------------------------------------------

    def configure(self, config: TopicConfig) -> None:
        """Take over a changed topic configuration."""
        self.config = config
        self.appends.required_isr = config.min_insync_replicas
        self.replica.counts_durable = config.flush_mode.counts_durable
        if self.replica.counts_durable and self.log.durable_offset < self.log.log_end_offset:
            self._events.request_flush(self.log)
        self._advance()

    def apply(self, registration: PartitionRegistration, brokers: Brokers) -> Transition:
        """Act on a registration from an image that the gate admitted (DESIGN 3.1)."""
        change = self.replica.apply(registration, brokers, self._context.env.now())
        if change is Transition.NOTHING:
            return change
        if change is not Transition.ADOPTED:
            self._lose_waiters(change)
        self._advance()
        self.trims.settle()  # whoever lacked the log start may have left
        if change is Transition.ADOPTED and len(registration.isr) < registration.min_isr:
            self.appends.isr_too_small(registration.isr)
        # Fetches parked under the old registration must see the new one.
        self._events.tell_followers(self)
        return change

    def session_lost(self) -> None:
        """This node fences itself."""
        self.appends.session_lost()

    def _lose_waiters(self, change: Transition) -> None:
        self.appends.role_changed(change)
        self._readers.role_changed()
        self._ack_watchers.notify(role_changed=True)
        self.trims.role_changed()

    def _appended(self) -> None:
        if self.replica.counts_durable:
            self._events.request_flush(self.log)
        else:
            self._advance()
        self._events.tell_followers(self)

    def on_durable(self) -> None:
        """The flusher has synced more of the log."""
        if self.replica.leader is not None:
            # The high watermark first: answers to acks=1 show it, and a lone node's includes them.
            self._advance()
            self.appends.durable()
        elif self.replica.follower is not None and self.replica.counts_durable:
            self._events.durable(self)

    def on_follower_progress(self) -> None:
        """A follower's fetch or ack was taken in by the replica."""
        self._advance()
        if (leader := self.replica.leader) is not None and leader.pending is not None:
            self._events.proposing(self)
        if self.replica.durable_start < self.log.log_start_offset:
            self._events.start_moved()  # learned from the followers, or still to be written
        self.trims.settle()
        self._ack_watchers.notify(role_changed=False)

    def on_fetched(self) -> None:
        """The replica took in a leader's answer; the high watermark may have moved."""
        self._readers.wake()
        if self.replica.durable_start < self.log.log_start_offset:
            self._events.start_moved()

    def trim(self, offset: int) -> None:
        """Give up the records below ``offset``, at most the high watermark; ``trims`` tells when it
        is on all disks that count. Raises NotLeader, OffsetOutOfRange, StorageError."""
        self.check_serving()
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(f"{self}: offset {offset} is outside 0..{self.high_watermark}")
        if offset > self.log_start_offset:
            self.log.advance_start(offset)
            self._events.advanced(self)
        if self.replica.durable_start < self.log.log_start_offset:
            self._events.start_moved()

    def start_written(self, log_start_offset: int) -> None:
        """This node's disk says that the log begins at ``log_start_offset``."""
        if log_start_offset > self.replica.durable_start:
            self.replica.durable_start = log_start_offset
            self.trims.settle()
            self._events.durable(self)

    def consider_shrink(self) -> None:
        """The shrink timer of 3.6."""
        if self.replica.consider_shrink(self._context.env.now(), self._context.lag_max_s):
            self._events.proposing(self)

    def _advance(self) -> None:
        if not self.replica.advance():
            return
        self.appends.committed()
        self._readers.wake()
        self.appends.settle_slots()
        self._events.advanced(self)

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """This replica ends: tell everyone who waits; who holds it still finds no leader here."""
        self.replica.give_up()
        self._lose_waiters(Transition.REMOVED)
