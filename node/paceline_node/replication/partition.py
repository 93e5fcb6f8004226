"""A partition as this node serves it: its log, its replica's role, and everyone who waits.

Every state change is synchronous: between the check of the role and the append, and between a move
of the high watermark and its answers, there is no await (DESIGN 4.1). The rules
are ``replica.py``'s; what belongs here is bringing them together with callbacks, flushes and
errors. A failed append fails that request; a failed disk fails the node (storage/DESIGN 2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paceline.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    LeaderChangedAfterAppend,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    StorageError,
    StorageFull,
    UnknownLeaderEpoch,
)
from paceline.types import NO_EPOCH, Acks, Isolation, LeaderEpoch, NodeId, TopicId
from paceline.wire.batch_header import BatchHeader, read_header
from paceline_node.controller.records import PartitionRegistration
from paceline_node.controller.topic_config import TopicConfig
from paceline_node.replication.damage_refusals import refusal
from paceline_node.replication.leader import Brokers
from paceline_node.replication.partition_context import PartitionContext, ReadResult
from paceline_node.replication.pending import Done, PendingProduce, PendingProduces, ProduceResult
from paceline_node.replication.producer_quota import ProducerQuota, writers_of
from paceline_node.replication.refused_cuts import PATIENCE_S
from paceline_node.replication.replica import Replica, Role, Transition
from paceline_node.replication.sequences import SequenceFence, judge
from paceline_node.replication.simulation import Simulation
from paceline_node.replication.transactions import (
    MarkerOrder,
    Ticket,
    TransactionGate,
    check_all,
    check_order,
)
from paceline_node.replication.trims import Trims
from paceline_node.replication.waiters import AckWatchers, OffsetWaiters, Waiter
from paceline_node.storage.log import Log
from paceline_node.storage.producer_state import ProducerKey, key_of_id
from paceline_node.storage.reading import LocalSlice
from paceline_node.storage.transactions import AbortedTransaction

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
        context: PartitionContext,
        topic: str,
        log: Log,
        config: TopicConfig,
        *,
        high_watermark: int = 0,
    ) -> None:
        self._context = context
        self.topic = topic
        self.topic_id = TopicId(log.topic_id)
        self.partition = log.partition
        self.key: PartitionKey = (self.topic_id, self.partition)
        self.log = log
        log.state.serve(lambda: context.state_due(log))
        self.config = config
        self.traffic = context.traffic(topic)
        self.replica = Replica(
            context.node_id,
            log,
            high_watermark=high_watermark,
            counts_durable=config.flush_mode.counts_durable,
            patience_s=min(PATIENCE_S, context.lag_max_s),
        )
        self.simulation = Simulation(context, self.replica, log, self._settle_simulated)
        clock, deadlines = context.env.now, context.deadlines
        self._pending = PendingProduces(str(self), clock, deadlines, self._succeed)
        self._readers: OffsetWaiters[Callable[[], None]] = OffsetWaiters()
        self.trims = Trims(self.replica)
        self._stable_readers: OffsetWaiters[Callable[[], None]] = OffsetWaiters()
        self.gate = TransactionGate()
        self.fence = SequenceFence(context.env.now)
        self.quota = ProducerQuota(
            context.shares,
            self.key,
            log.producers,
            context.env.now,
            lambda: self.replica.high_watermark,
            self._forget,
        )
        self._ack_watchers = AckWatchers(self.acked)
        log.watch_reads(lambda offset, error: context.unreadable(self, offset, str(error)))

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
        index = self.log.producers.transactions
        stable = index.first_unstable(self.replica.high_watermark)
        return max(stable, min(self.log.log_start_offset, self.replica.high_watermark))

    def readable_end(self, isolation: Isolation) -> int:
        """End of what readers of ``isolation`` see."""
        if isolation == Isolation.READ_COMMITTED:
            return self.last_stable_offset
        return self.replica.high_watermark

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def waiting_count(self) -> int:
        """Producers that wait for an answer."""
        return len(self._pending)

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

    # --- produce (DESIGN 4.1) ---------------------------------------------------------------------

    def produce(
        self,
        batches: bytearray | memoryview,
        headers: Sequence[BatchHeader],
        *,
        acks: Acks,
        timeout_s: float,
        done: Done,
        simulated: bool = False,
        already: int = -1,
        ticket: Ticket | None = None,
        client: str | None = "",
    ) -> None:
        """Append validated batches; ``headers`` are theirs, in order.

        Raises with nothing appended: NotLeader, NotEnoughReplicas, StorageFull, the idempotence
        errors, StorageError (outcome unknown), InvalidTransactionState, TooManyProducers (new ones,
        counted for ``client``; None: the coordinator's, never). Otherwise ``done`` is
        called once, maybe before this returns, with a result or an error of unknown outcome.
        ``batches`` is stamped in place, not to be used again. With ``simulated``, a lone node's
        vacant slots count for acks=all, too few are waited for (DESIGN 8). Without a batch: a
        retry's records end at ``already``. ``ticket``: what the first batch of a transaction needs
        (``transactions.py``)."""
        self.fence.seen(self.log.producers, headers)
        self._context.admission.check()
        simulated = simulated and acks == Acks.ALL and self.simulation.is_on
        required = self.config.min_insync_replicas
        leader = self.replica.check_produce(acks, 0 if simulated else required)
        duplicates, skip_bytes = judge(self.log.producers, headers, self.fence)
        last_offset = duplicates[-1].last_offset if duplicates else already
        base_offset = duplicates[0].base_offset if duplicates else -1
        is_new = skip_bytes < len(batches)
        if is_new:
            if skip_bytes:
                batches, headers = memoryview(batches)[skip_bytes:], headers[len(duplicates) :]
            check_all(self.gate, self.log.producers, headers, ticket)
            self.quota.admit(writers_of(batches, headers), client)
            base, last_offset = self._append(batches, headers, leader.leader_epoch)
            base_offset = base if base_offset < 0 else base_offset
        pending = PendingProduce(base_offset, last_offset, required, done, is_duplicate=not is_new)
        self._acknowledge(pending, acks, timeout_s, simulated=simulated)

    def end_transaction(self, order: MarkerOrder, *, timeout_s: float, done: Done) -> None:
        """Append the marker that ends a producer's transaction, held by enough replicas; ``done``
        as for :meth:`produce`. Repeated in one leadership it is appended once.

        Raises with nothing appended: NotLeader, NotEnoughReplicas, StorageFull,
        TransactionCoordinatorFenced (a newer coordinator has ended something), InvalidProducerEpoch
        (the producer writes in a newer epoch, so this transaction ended here before); StorageError;
        InvalidTransactionState (the producer has written since ``order.noted``).
        """
        self._context.admission.check()
        required = self.config.min_insync_replicas
        leader = self.replica.check_produce(Acks.ALL, required)
        check_order(order, self.log.producers.producer(order.producer_id))
        self.gate.void(order.producer_id)
        offset = self.gate.already(order)
        if offset is None:
            self.quota.admit_marker(key_of_id(order.producer_id))
            marker = order.marker(self._context.env.host.wall_ms())
            offset, _ = self._append(marker, [read_header(marker)], leader.leader_epoch)
            self.gate.marked(order, offset)
        pending = PendingProduce(offset, offset, required, done, is_duplicate=False)
        self._acknowledge(pending, Acks.ALL, timeout_s, simulated=False)

    def _append(
        self,
        batches: bytearray | memoryview,
        headers: Sequence[BatchHeader],
        leader_epoch: LeaderEpoch,
    ) -> tuple[int, int]:
        context = self._context
        try:
            appended = self.log.append_leader(
                batches, leader_epoch, context.env.host.wall_ms(), headers
            )
        except (StorageFull, StorageError):
            context.append_failed(self.log)
            raise
        if self.replica.counts_durable:
            context.request_flush(self.log)
        else:
            self._advance()
        context.tell_followers(self)
        self.traffic.appended(appended.last_offset - appended.base_offset + 1, appended.size_bytes)
        return appended.base_offset, appended.last_offset

    def _forget(self, keys: Sequence[ProducerKey]) -> None:
        """Have all replicas forget these producers. Raises NotLeader, StorageFull, StorageError."""
        self.replica.check_leading()
        record = self.log.producers.eviction(keys, self._context.env.host.wall_ms())
        self._append(record, [read_header(record)], self.replica.leader_epoch)
        self.gate.forget(keys)

    def _acknowledge(
        self, pending: PendingProduce, acks: Acks, timeout_s: float, *, simulated: bool
    ) -> None:
        """Answer now what need not wait, otherwise park it (DESIGN 4.1)."""
        pending.leader_epoch = self.replica.leader_epoch
        if simulated:
            self._pending.wait_simulated(pending, timeout_s)
            self._settle_simulated()
        elif acks == Acks.ALL and self.replica.high_watermark <= pending.last_offset:
            self._pending.wait_committed(pending, timeout_s)
        elif acks == Acks.LEADER and self._must_sync(pending.last_offset):
            self._pending.wait_durable(pending, timeout_s)
        else:
            self._succeed(pending)

    def _succeed(self, pending: PendingProduce) -> None:
        """Tell a producer that its records are stored as asked."""
        assert pending.leader_epoch == self.replica.leader_epoch, f"{self} answers late"  # I14
        pending.done(
            ProduceResult(
                pending.base_offset,
                pending.last_offset,
                self.replica.leader_epoch,
                self.replica.high_watermark,
                self.log.log_start_offset,
                pending.is_duplicate,
            )
        )

    def _must_sync(self, last_offset: int) -> bool:
        """Whether an acks=1 write must wait for the disk."""
        return (
            self.replica.counts_durable
            and self.log.durable_offset <= last_offset
            and not self._context.acks1_early
        )

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
        InOlderTier (``older_reads.py``); CorruptMessage. No read passes the high watermark (I11).
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
        self._context.suspect(self, offset)

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Compare a client's leader epoch with ours; -1 is unchecked. Raises FencedLeaderEpoch or
        UnknownLeaderEpoch."""
        known = self.replica.leader_epoch
        if current_leader_epoch in (NO_EPOCH, known):
            return
        text = f"{self}: leader epoch {current_leader_epoch}, this node has {known}"
        raise (FencedLeaderEpoch if current_leader_epoch < known else UnknownLeaderEpoch)(text)

    def when_readable(
        self,
        offset: int,
        callback: Callable[[], None],
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> object:
        """Call ``callback`` once: when the high watermark, or for READ_COMMITTED the last stable
        offset, is above ``offset`` (at once if it is), or when the role changes. Returns a token
        for :meth:`cancel`."""
        if isolation == Isolation.READ_COMMITTED:
            waiter = self._stable_readers.add(offset, callback, _call)
            self._stable_readers.advance(self.last_stable_offset)
        else:
            waiter = self._readers.add(offset, callback, _call)
            self._readers.advance(self.replica.high_watermark)
        return waiter

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
        self.replica.counts_durable = config.flush_mode.counts_durable
        if self.replica.counts_durable and self.log.durable_offset < self.log.log_end_offset:
            self._context.request_flush(self.log)
        self._advance()

    def apply(self, registration: PartitionRegistration, brokers: Brokers) -> Transition:
        """Act on a registration from an image that the gate admitted (DESIGN 3.1)."""
        change = self.replica.apply(registration, brokers, self._context.env.now())
        if change is Transition.NOTHING:
            return change
        if change is not Transition.ADOPTED:
            self._lose_waiters(change)
        self._advance()
        if change is Transition.ADOPTED and len(registration.isr) < registration.min_isr:
            text = f"{self}: in-sync replicas fell to {list(registration.isr)}; outcome unknown"
            self._pending.fail_committing(NotEnoughReplicasAfterAppend(text))
        # Fetches parked under the old registration must see the new one.
        self._context.tell_followers(self)
        return change

    def session_lost(self) -> None:
        """This node fences itself: nothing more can be promised to those who wait for others."""
        text = f"{self}: no session with a controller any more; outcome unknown"
        self._pending.fail_committing(LeaderChangedAfterAppend(text))

    def _lose_waiters(self, change: Transition) -> None:
        """A new leader epoch: nobody waits across it (I14)."""
        self._pending.fail_all(
            LeaderChangedAfterAppend(f"{self}: {change.value} now; outcome unknown")
        )
        self.simulation.clear()
        self.gate.clear()
        self.fence.clear()
        self.quota.clear()
        for callback in (*self._readers.drain(), *self._stable_readers.drain()):
            callback()
        self._ack_watchers.notify(role_changed=True)
        self.trims.role_changed()

    def on_durable(self) -> None:
        """The flusher has synced more of the log."""
        if self.replica.leader is not None:
            # The high watermark first: answers to acks=1 show it, and a lone node's includes them.
            self._advance()
            self._pending.durable(self.log.durable_offset)
        elif self.replica.follower is not None and self.replica.counts_durable:
            self._context.durable(self)

    def on_follower_progress(self) -> None:
        """A follower's fetch or ack was taken in by the replica."""
        self._advance()
        if (leader := self.replica.leader) is not None and leader.pending is not None:
            self._context.proposing(self)
        if self.replica.durable_start < self.log.log_start_offset:
            self._context.start_moved()  # learned from the followers, or still to be written
        self.trims.settle()
        self._ack_watchers.notify(role_changed=False)

    def on_fetched(self) -> None:
        """The replica took in a leader's answer; the high watermark may have moved."""
        self._wake_readers()
        if self.replica.durable_start < self.log.log_start_offset:
            self._context.start_moved()

    def _wake_readers(self) -> None:
        self.log.producers.transactions.settled(self.replica.high_watermark)
        self._readers.advance(self.replica.high_watermark)
        if len(self._stable_readers):
            self._stable_readers.advance(self.last_stable_offset)

    def trim(self, offset: int) -> None:
        """Give up the records below ``offset``, at most the high watermark; ``trims`` tells when it
        is on all disks that count. Raises NotLeader, OffsetOutOfRange, StorageError."""
        self.check_serving()
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(f"{self}: offset {offset} is outside 0..{self.high_watermark}")
        if offset > self.log_start_offset:
            self.log.advance_start(offset)
            self._context.advanced(self)
        if self.replica.durable_start < self.log.log_start_offset:
            self._context.start_moved()

    def start_written(self, log_start_offset: int) -> None:
        """This node's disk says that the log begins at ``log_start_offset``."""
        if log_start_offset > self.replica.durable_start:
            self.replica.durable_start = log_start_offset
            self.trims.settle()
            self._context.durable(self)

    def consider_shrink(self) -> None:
        """The shrink timer of 3.6."""
        if self.replica.consider_shrink(self._context.env.now(), self._context.lag_max_s):
            self._context.proposing(self)

    def _advance(self) -> None:
        if not self.replica.advance():
            return
        end = self.replica.high_watermark
        with self._context.burst:  # one fetch may commit many requests
            self._pending.committed(end)
        self._wake_readers()
        if self._pending.waits_for_slots:
            self._settle_simulated()
        self._context.advanced(self)

    def _settle_simulated(self) -> None:
        in_sync = len(self.isr) + len(self.simulation.in_sync())
        self._pending.settle_simulated(self.replica.high_watermark, in_sync)

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """This replica ends: tell everyone who waits; who holds it still finds no leader here."""
        self.replica.give_up()
        self._lose_waiters(Transition.REMOVED)


def _call(callback: Callable[[], None]) -> None:
    callback()
