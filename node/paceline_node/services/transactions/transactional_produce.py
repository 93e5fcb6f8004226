"""Producing within a transaction: the first write to a partition is confirmed by its coordinator.

For listeners, in place of ``Partition.produce``. A batch whose transaction is open in the partition
is appended there and then. Otherwise it waits, and those behind it from the same producer too, in
order, until the coordinator has said that it knows of the transaction (KIP-890's hanging
transactions cannot be).
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from paceline.errors import (
    CoordinatorNotAvailable,
    InvalidRequest,
    InvalidRequiredAcks,
    PacelineError,
)
from paceline.types import Acks
from paceline.values import dataclass
from paceline.wire.batch import CLIENT_ATTRIBUTES, TRANSACTIONAL
from paceline.wire.batch_header import BatchHeader
from paceline.wire.peer.names import PartitionName
from paceline_node.bare_errors import bare
from paceline_node.replication.partition import Done, Partition
from paceline_node.replication.transaction_gate import Ticket
from paceline_node.services.transactions.transaction_rpc import TransactionRpc
from paceline_node.transaction_names import ProducerIdentity, TransactionKey

TRANSACTIONAL_ATTRIBUTES = CLIENT_ATTRIBUTES | TRANSACTIONAL
"""Attribute bits that a client may set within a transaction (DESIGN 1.4)."""
_WAITING_MAX = 1000


@dataclass(frozen=True, slots=True)
class _Waiting:
    batches: bytearray | memoryview
    headers: Sequence[BatchHeader]
    timeout_s: float
    done: Done
    client: str


_Place = tuple[Partition, int, int]
"""A partition, and the identity of a producer in it."""


class TransactionalProduce:
    """Appends batches of transactions. :meth:`run` must run while it is used."""

    def __init__(self, rpc: TransactionRpc) -> None:
        self._rpc = rpc
        self._waiting: dict[_Place, list[_Waiting]] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask coordinators until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None  # it takes no tasks once this block has ended

    def produce(
        self,
        partition: Partition,
        key: TransactionKey,
        batches: bytearray | memoryview,
        headers: Sequence[BatchHeader],
        *,
        adds: bool,
        acks: Acks,
        timeout_s: float,
        done: Done,
        client: str = "",
    ) -> None:
        """As :meth:`Partition.produce`, for batches validated with
        :data:`TRANSACTIONAL_ATTRIBUTES`; ``done`` may be given any error, also one of those that
        ``produce`` raises. ``adds``: the partition need not have been added to the transaction
        before; only for producers whose every transaction has an epoch of its own.

        Further errors: InvalidTransactionState, ProducerFenced, InvalidProducerMapping,
        InvalidProducerEpoch; ConcurrentTransactions, NotCoordinator, CoordinatorLoadInProgress,
        CoordinatorNotAvailable (nothing was appended: send it again).
        """
        if acks != Acks.ALL:
            raise InvalidRequiredAcks(f"{partition}: transactions need acks=all, got {int(acks)}")
        first = headers[0]
        if any(
            (each.producer_id, each.producer_epoch) != (first.producer_id, first.producer_epoch)
            or not each.is_transactional
            for each in headers
        ):
            raise InvalidRequest(f"{partition}: batches of one transaction come from one producer")
        place = (partition, first.producer_id, first.producer_epoch)
        queue = self._waiting.get(place)
        if queue is None and partition.gate.is_open(partition.log.producers, first):
            partition.produce(
                batches, headers, acks=acks, timeout_s=timeout_s, done=done, client=client
            )
            return
        partition.check_serving()
        partition.fence.seen(partition.log.producers, headers)
        item = _Waiting(batches, headers, timeout_s, done, client)
        if queue is not None:
            if len(queue) >= _WAITING_MAX:
                raise InvalidRequest(f"{partition}: {_WAITING_MAX} requests wait already")
            queue.append(item)
            return
        if self._nursery is None:
            raise CoordinatorNotAvailable(f"{partition}: this node stops")
        self._waiting[place] = [item]
        self._nursery.start_soon(self._confirm, place, key, adds)

    async def _confirm(self, place: _Place, key: TransactionKey, adds: bool) -> None:
        partition, producer_id, epoch = place
        who = ProducerIdentity(producer_id, epoch)
        where = PartitionName(partition.topic, partition.partition)
        ticket = partition.gate.ticket(producer_id, epoch, begins_at=0 if adds else None)
        refusal: PacelineError | None = None
        try:
            while True:
                verified = await self._rpc.verify(
                    key, who, where, adds=adds, topic_id=partition.topic_id
                )
                ticket.confirm(verified.coordinator_epoch)
                if not (ticket.is_lost and partition.is_leader):
                    break
                # This node leads again, in a new epoch: nobody need be told that it was otherwise.
                ticket = partition.gate.ticket(producer_id, epoch, begins_at=0 if adds else None)
        except PacelineError as error:
            refusal = bare(error)
        finally:
            waiting = self._waiting.pop(place)
        for item in waiting:
            _append(partition, item, ticket, refusal)
        partition.gate.drop(ticket)


def _append(
    partition: Partition, item: _Waiting, ticket: Ticket, refusal: PacelineError | None
) -> None:
    if refusal is not None:
        item.done(refusal)
        return
    try:
        partition.produce(
            item.batches,
            item.headers,
            acks=Acks.ALL,
            timeout_s=item.timeout_s,
            done=item.done,
            ticket=ticket,
            client=item.client,
        )
    except PacelineError as error:
        item.done(bare(error))
