"""What a leader appends to a partition, and the producers who wait for their acks (DESIGN 4.1).

Every step is synchronous: between the check of the role and the append there is no await. Whether
batches may be stored is judged by the parts (``sequences.py``, ``transaction_gate.py``,
``producer_quota.py``); who waits for what is ``pending_produces.py``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paceline.errors import (
    LeaderChangedAfterAppend,
    NotEnoughReplicasAfterAppend,
    StorageError,
    StorageFull,
)
from paceline.types import Acks, LeaderEpoch, TopicId
from paceline.wire.batch_header import BatchHeader, read_header
from paceline_node.replication.partition_context import PartitionContext
from paceline_node.replication.pending_produces import (
    Done,
    PendingProduce,
    PendingProduces,
    ProduceResult,
)
from paceline_node.replication.producer_quota import ProducerQuota, writers_of
from paceline_node.replication.replica import Replica, Transition
from paceline_node.replication.sequences import SequenceFence, judge
from paceline_node.replication.simulated_replicas import Simulation
from paceline_node.replication.transaction_gate import (
    MarkerOrder,
    Ticket,
    TransactionGate,
    check_all,
    check_order,
)
from paceline_node.settings.topic_config import TopicConfig
from paceline_node.storage.log import Log
from paceline_node.storage.producer_state import ProducerKey, key_of_id


class Appends:
    """Of one partition. ``appended`` is called behind each append, before anybody is answered: it
    has the log flushed, or takes it as it is, and tells the followers."""

    def __init__(
        self,
        context: PartitionContext[Any],
        topic: str,
        replica: Replica,
        log: Log,
        config: TopicConfig,
        *,
        appended: Callable[[], None],
    ) -> None:
        self._name = f"{topic}/{log.partition}"
        self.replica = replica
        self.log = log
        self.required_isr = config.min_insync_replicas
        self._admission = context.admission
        self._events = context.events
        self._burst = context.burst
        self._wall_ms = context.env.host.wall_ms
        self._acks1_early = context.acks1_early
        self._traffic = context.traffic(topic)
        self._appended = appended
        now = context.env.now
        self._pending = PendingProduces(self._name, now, context.deadlines, self._succeed)
        self.simulation = Simulation(context, replica, log, self._settle_simulated)
        self.gate = TransactionGate()
        self.fence = SequenceFence(now)
        self.quota = ProducerQuota(
            context.shares,
            (TopicId(log.topic_id), log.partition),
            log.producers,
            now,
            lambda: replica.high_watermark,
            self._forget,
        )

    def __len__(self) -> int:
        """Producers that wait for an answer."""
        return len(self._pending)

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
        (``transaction_gate.py``)."""
        self.fence.seen(self.log.producers, headers)
        self._admission.check()
        simulated = simulated and acks == Acks.ALL and self.simulation.is_on
        required = self.required_isr
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
        self._admission.check()
        required = self.required_isr
        leader = self.replica.check_produce(Acks.ALL, required)
        check_order(order, self.log.producers.producer(order.producer_id))
        self.gate.void(order.producer_id)
        offset = self.gate.already(order)
        if offset is None:
            self.quota.admit_marker(key_of_id(order.producer_id))
            marker = order.marker(self._wall_ms())
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
        try:
            appended = self.log.append_leader(batches, leader_epoch, self._wall_ms(), headers)
        except (StorageFull, StorageError):
            self._events.append_failed(self.log)
            raise
        self._appended()
        self._traffic.appended(appended.last_offset - appended.base_offset + 1, appended.size_bytes)
        return appended.base_offset, appended.last_offset

    def _forget(self, keys: Sequence[ProducerKey]) -> None:
        """Have all replicas forget these producers. Raises NotLeader, StorageFull, StorageError."""
        self.replica.check_leading()
        record = self.log.producers.eviction(keys, self._wall_ms())
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
        epoch = self.replica.leader_epoch
        assert pending.leader_epoch == epoch, f"{self._name} answers late"  # I14
        pending.done(
            ProduceResult(
                pending.base_offset,
                pending.last_offset,
                epoch,
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
            and not self._acks1_early
        )

    # --- what they wait for -----------------------------------------------------------------------

    def committed(self) -> None:
        """The high watermark moved."""
        with self._burst:  # one fetch may commit many requests
            self._pending.committed(self.replica.high_watermark)

    def settle_slots(self) -> None:
        """The high watermark moved, and simulated slots may have been waited for."""
        if self._pending.waits_for_slots:
            self._settle_simulated()

    def _settle_simulated(self) -> None:
        registration = self.replica.registration
        real = 0 if registration is None else len(registration.isr)
        in_sync = real + len(self.simulation.in_sync())
        self._pending.settle_simulated(self.replica.high_watermark, in_sync)

    def durable(self) -> None:
        """The flusher has synced more of this leader's log."""
        self._pending.durable(self.log.durable_offset)

    def isr_too_small(self, isr: Sequence[int]) -> None:
        """Fewer replicas are in sync than there must be."""
        text = f"{self._name}: in-sync replicas fell to {list(isr)}; outcome unknown"
        self._pending.fail_committing(NotEnoughReplicasAfterAppend(text))

    def session_lost(self) -> None:
        """This node fences itself: nothing more can be promised to those who wait for others."""
        text = f"{self._name}: no session with a controller any more; outcome unknown"
        self._pending.fail_committing(LeaderChangedAfterAppend(text))

    def role_changed(self, change: Transition) -> None:
        """A new leader epoch: nobody waits across it (I14)."""
        text = f"{self._name}: {change.value} now; outcome unknown"
        self._pending.fail_all(LeaderChangedAfterAppend(text))
        self.simulation.clear()
        self.gate.clear()
        self.fence.clear()
        self.quota.clear()
