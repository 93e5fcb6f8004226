"""A leader's side of transactions: who may begin to write, and markers told once. Pure.

The first write of a producer's transaction in a partition needs an :class:`Ticket`: one
taken before the coordinator was asked, and not voided since. A marker voids the tickets of its
producer, and the end of the leadership loses all; so an answer that was overtaken opens nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from paceline.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    NotCoordinator,
    NotLeader,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from paceline.wire.batch_header import BatchHeader
from paceline.wire.end_marker import EndMarker, build_end_marker
from paceline_node.storage.producer_state import ProducerKey, ProducerState
from paceline_node.storage.producers import ProducerTable


class Ticket:
    """Says that the coordinator knows of the transaction, if it was asked after this was made and
    has said so, in ``coordinator_epoch``. ``begins_at``: the sequence of the first batch of a
    producer that is unknown: 0 if it has a new epoch for each transaction, above it where the log
    was found to hold others (``services/transactions/forgotten_producers.py``), None for any.
    ``is_lost``: the leadership that it was taken in is over, so another is to be taken; nothing is
    known against the transaction."""

    __slots__ = (
        "begins_at",
        "coordinator_epoch",
        "is_lost",
        "is_valid",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, producer_id: int, producer_epoch: int, *, begins_at: int | None) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.begins_at = begins_at
        self.coordinator_epoch = -1
        self.is_valid = True
        self.is_lost = False

    def confirm(self, coordinator_epoch: int) -> None:
        """The coordinator has said so."""
        self.coordinator_epoch = coordinator_epoch


class MarkerOrder(NamedTuple):
    """A coordinator's order to end a transaction here. ``serial`` tells one transaction of a
    producer from the next; together with the identity it recognises a repeated order.

    With ``noted`` it is this leader's own, to end what the coordinator said that it does not know,
    after the producer's state here was that: it counts for nothing if the producer has written
    since, in a transaction that was begun behind the answer; and it is no answer to other orders,
    as nobody knows of which transaction it is."""

    producer_id: int
    producer_epoch: int
    serial: int
    commits: bool
    coordinator_epoch: int
    noted: ProducerState | None = None

    def marker(self, wall_ms: int) -> bytearray:
        """The batch to append."""
        return build_end_marker(
            EndMarker(self.commits, self.coordinator_epoch),
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            timestamp_ms=wall_ms,
        )


class TransactionGate:
    """What a leader remembers of transactions beyond its log, for one leadership."""

    def __init__(self) -> None:
        self._tickets: dict[int, list[Ticket]] = {}
        self._marked: dict[int, tuple[MarkerOrder, int]] = {}

    def ticket(
        self, producer_id: int, producer_epoch: int, *, begins_at: int | None = None
    ) -> Ticket:
        """Take one, before the coordinator is asked; give it back with :meth:`drop`."""
        ticket = Ticket(producer_id, producer_epoch, begins_at=begins_at)
        self._tickets.setdefault(producer_id, []).append(ticket)
        return ticket

    def drop(self, ticket: Ticket) -> None:
        """It is used, or not needed; idempotent."""
        ticket.is_valid = False
        waiting = self._tickets.get(ticket.producer_id, [])
        if ticket in waiting:
            waiting.remove(ticket)
        if not waiting:
            self._tickets.pop(ticket.producer_id, None)

    def void(self, producer_id: int) -> None:
        """The coordinator ends the producer's transaction: answers from before are void."""
        for ticket in self._tickets.pop(producer_id, ()):
            ticket.is_valid = False

    def clear(self) -> None:
        """The leadership is over."""
        for ticket in itertools.chain.from_iterable(self._tickets.values()):
            ticket.is_valid, ticket.is_lost = False, True
        self._tickets.clear()
        self._marked.clear()

    def check(self, producers: ProducerTable, header: BatchHeader, ticket: Ticket | None) -> None:
        """Whether a new batch fits its producer's transaction here. Raises InvalidTransactionState,
        OutOfOrderSequence, NotCoordinator when another coordinator must be asked, or NotLeader
        when another ticket must be taken, with nothing appended."""
        state = producers.producer(header.producer_id) if header.producer_id >= 0 else None
        is_open = state is not None and state.is_open
        if not header.is_transactional:
            if is_open:
                raise InvalidTransactionState(
                    f"producer {header.producer_id} has a transaction open here and sent a batch "
                    "outside of it"
                )
            return
        if header.producer_id < 0:
            raise InvalidTransactionState("a transactional batch without a producer")
        if state is not None and is_open and state.epoch == header.producer_epoch:
            return
        if ticket is not None and ticket.is_lost and not is_open:
            raise NotLeader(
                f"producer {header.producer_id}: the leadership in which its transaction was "
                "confirmed is over"
            )
        if (
            is_open
            or ticket is None
            or not ticket.is_valid
            or (
                ticket.producer_id != header.producer_id
                or ticket.producer_epoch != header.producer_epoch
            )
        ):
            raise InvalidTransactionState(
                f"producer {header.producer_id} epoch {header.producer_epoch}: its coordinator "
                "has not confirmed the transaction, or ended it meanwhile"
            )
        if state is not None and ticket.coordinator_epoch < state.coordinator_epoch:
            # Whoever says so lost leadership before the end of the producer's last transaction, and
            # does not know of that: the one it speaks of may be over.
            raise NotCoordinator(
                f"producer {header.producer_id}: its transaction is confirmed by coordinator epoch "
                f"{ticket.coordinator_epoch}, the last one was ended by {state.coordinator_epoch}"
            )
        if state is None and ticket.begins_at not in (None, header.base_sequence):
            raise OutOfOrderSequence(
                f"producer {header.producer_id} epoch {header.producer_epoch}: its first batch "
                f"here has sequence {header.base_sequence}, expected {ticket.begins_at}"
            )

    def is_open(self, producers: ProducerTable, header: BatchHeader) -> bool:
        """Whether a batch belongs to a transaction that is open here."""
        state = producers.producer(header.producer_id) if header.producer_id >= 0 else None
        return state is not None and state.is_open and state.epoch == header.producer_epoch

    def has_open(self, producers: ProducerTable, producer_id: int) -> bool:
        """Whether the producer has a transaction open here."""
        state = producers.producer(producer_id)
        return state is not None and state.is_open

    def marked(self, order: MarkerOrder, offset: int) -> None:
        """The order was carried out at ``offset``."""
        if order.noted is None:
            self._marked[order.producer_id] = (order, offset)

    def forget(self, keys: Iterable[ProducerKey]) -> None:
        """Orders about producers whom the log has forgotten are not repeated any more."""
        for namespace, key in keys:
            if namespace == 0:
                self._marked.pop(int.from_bytes(key, "big"), None)

    def already(self, order: MarkerOrder) -> int | None:
        """Where this leader has carried the order out, or one for a later transaction; None if it
        has not. Raises InvalidTransactionState when it was told otherwise before."""
        known = self._marked.get(order.producer_id) if order.noted is None else None
        if known is None or known[0].serial < order.serial:
            return None
        before, offset = known
        if before.serial == order.serial and before.commits != order.commits:
            raise InvalidTransactionState(f"transaction {order} was ended otherwise: {before}")
        return offset


def check_all(
    gate: TransactionGate,
    producers: ProducerTable,
    headers: Sequence[BatchHeader],
    ticket: Ticket | None,
) -> None:
    """:meth:`TransactionGate.check` for the first batch of a request, whose others must be of the
    same kind. Raises as that."""
    first = headers[0]
    gate.check(producers, first, ticket)
    for header in headers[1:]:
        if header.is_transactional != first.is_transactional:
            raise InvalidTransactionState("one request mixes transactional and other batches")


def check_order(order: MarkerOrder, state: ProducerState | None) -> None:
    """Raise TransactionCoordinatorFenced or InvalidProducerEpoch for a late marker,
    InvalidTransactionState for one that would end another transaction than was noted."""
    if order.noted is not None and (state != order.noted or not order.noted.is_open):
        raise InvalidTransactionState(f"producer {order.producer_id} has written here since")
    if state is None:
        return
    if order.coordinator_epoch < state.coordinator_epoch:
        raise TransactionCoordinatorFenced(
            f"coordinator epoch {order.coordinator_epoch}, producer {order.producer_id} has heard "
            f"of {state.coordinator_epoch}"
        )
    if order.producer_epoch < state.epoch:
        raise InvalidProducerEpoch(
            f"producer {order.producer_id}: marker of epoch {order.producer_epoch}, newest is "
            f"{state.epoch}"
        )
