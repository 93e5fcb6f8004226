"""Who may write in a transaction, and which markers a leader takes (pure)."""

from __future__ import annotations

import pytest

from paceline.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    NotCoordinator,
    NotLeader,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from paceline.wire.batch import build_batch
from paceline.wire.batch_header import TRANSACTIONAL, BatchHeader, verify
from paceline.wire.end_marker import EndMarker, build_end_marker
from paceline.wire.records import Record
from paceline_node.replication.transaction_gate import (
    MarkerOrder,
    TransactionGate,
    check_all,
    check_order,
)
from paceline_node.storage.producer_state import key_of_id
from paceline_node.storage.producers import ProducerTable


def header(
    producer: int = 7, epoch: int = 0, sequence: int = 0, *, flags: int = TRANSACTIONAL
) -> BatchHeader:
    data = build_batch(
        [Record(value=b"v")],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        timestamp_ms=1,
        flags=flags,
    )
    return verify(memoryview(data), 0)


def in_transaction(epoch: int = 0) -> ProducerTable:
    """The log holds one batch of producer 7's transaction."""
    table = ProducerTable()
    table.update(header(epoch=epoch), 0)
    return table


def ended(*, coordinator_epoch: int, epoch: int = 0) -> ProducerTable:
    """... and the marker that ended it."""
    table = in_transaction(epoch)
    marker = EndMarker(commits=True, coordinator_epoch=coordinator_epoch)
    data = build_end_marker(marker, producer_id=7, producer_epoch=epoch, timestamp_ms=1)
    table.update_marker(verify(memoryview(data), 0), marker, 1)
    return table


def order(serial: int = 1, *, commits: bool = True, epoch: int = 0, by: int = 3) -> MarkerOrder:
    return MarkerOrder(7, epoch, serial, commits, by)


# --- who may write -------------------------------------------------------------------------------


def test_a_ticket_opens_a_transaction_and_an_open_one_needs_none() -> None:
    gate = TransactionGate()
    ticket = gate.ticket(7, 0)
    gate.check(ProducerTable(), header(), ticket)
    gate.drop(ticket)
    gate.drop(ticket)
    gate.check(in_transaction(), header(sequence=1), None)
    assert gate.is_open(in_transaction(), header(sequence=1))
    assert not gate.is_open(ProducerTable(), header())
    assert not gate.is_open(in_transaction(), header(epoch=1))


def test_with_an_epoch_for_each_transaction_the_first_sequence_is_0() -> None:
    """As Kafka has it for transactions of version 2: a later batch would leave a gap for ever."""
    gate = TransactionGate()
    ticket = gate.ticket(7, 0, begins_at=0)
    with pytest.raises(OutOfOrderSequence):
        gate.check(ProducerTable(), header(sequence=3), ticket)
    gate.check(ProducerTable(), header(), ticket)
    gate.check(ProducerTable(), header(sequence=3), gate.ticket(7, 0))  # its epoch is an old one


def test_a_coordinator_that_lost_its_power_before_the_last_end_opens_nothing() -> None:
    """It would say that the transaction, which its successor has ended, is open."""
    gate = TransactionGate()
    table = ended(coordinator_epoch=4)
    ticket = gate.ticket(7, 0)
    ticket.confirm(3)
    with pytest.raises(NotCoordinator, match="coordinator epoch 3, the last one was ended by 4"):
        gate.check(table, header(sequence=1), ticket)
    ticket.confirm(4)
    gate.check(table, header(sequence=1), ticket)


@pytest.mark.parametrize("end", ["dropped", "void"])
def test_a_ticket_that_was_overtaken_opens_nothing(end: str) -> None:
    gate = TransactionGate()
    ticket, other = gate.ticket(7, 0), gate.ticket(7, 0)
    if end == "dropped":
        gate.drop(ticket)
        assert other.is_valid
    else:
        gate.void(8)  # another producer's
        gate.void(7)
        assert not other.is_valid
    with pytest.raises(InvalidTransactionState, match="has not confirmed"):
        gate.check(ProducerTable(), header(), ticket)


def test_a_ticket_of_a_leadership_that_is_over_is_to_be_taken_again() -> None:
    """Nothing is wrong with the transaction: clients must not be told that there is."""
    gate = TransactionGate()
    ticket, ended = gate.ticket(7, 0), gate.ticket(8, 0)
    gate.void(8)
    gate.clear()
    assert ticket.is_lost
    assert not ticket.is_valid
    assert not ended.is_lost
    with pytest.raises(NotLeader, match="leadership"):
        gate.check(ProducerTable(), header(), ticket)
    with pytest.raises(InvalidTransactionState, match="has not confirmed"):
        gate.check(ProducerTable(), header(producer=8), ended)


@pytest.mark.parametrize(("producer", "epoch"), [(8, 0), (7, 1)])
def test_a_ticket_is_of_one_producer_and_epoch(producer: int, epoch: int) -> None:
    gate = TransactionGate()
    with pytest.raises(InvalidTransactionState, match="has not confirmed"):
        gate.check(ProducerTable(), header(), gate.ticket(producer, epoch))


def test_nobody_writes_beside_an_open_transaction() -> None:
    """Neither the producer itself, outside of it, nor its successor before the marker."""
    gate, table = TransactionGate(), in_transaction()
    with pytest.raises(InvalidTransactionState, match="outside of it"):
        gate.check(table, header(sequence=1, flags=0), None)
    with pytest.raises(InvalidTransactionState, match="has not confirmed"):
        gate.check(table, header(epoch=1), gate.ticket(7, 1))
    gate.check(table, header(producer=8, flags=0), None)
    gate.check(ended(coordinator_epoch=1), header(sequence=1, flags=0), None)


def test_a_transaction_needs_a_producer() -> None:
    gate = TransactionGate()
    nobody = header(-1, -1, -1)
    with pytest.raises(InvalidTransactionState, match="without a producer"):
        gate.check(ProducerTable(), nobody, None)
    assert not gate.is_open(ProducerTable(), nobody)
    gate.check(ProducerTable(), header(-1, -1, -1, flags=0), None)


def test_the_batches_of_one_request_are_of_one_kind() -> None:
    gate, table = TransactionGate(), in_transaction()
    check_all(gate, table, [header(sequence=1), header(sequence=2)], None)
    with pytest.raises(InvalidTransactionState, match="mixes"):
        check_all(gate, table, [header(sequence=1), header(sequence=2, flags=0)], None)


# --- markers -------------------------------------------------------------------------------------


def test_an_order_is_carried_out_once() -> None:
    gate = TransactionGate()
    assert gate.already(order()) is None
    gate.marked(order(), 41)
    assert gate.already(order()) == 41
    assert gate.already(order(serial=0)) == 41, "a later transaction has ended already"
    assert gate.already(order(serial=2)) is None
    with pytest.raises(InvalidTransactionState, match="ended otherwise"):
        gate.already(order(commits=False))
    gate.clear()
    assert gate.already(order()) is None


def test_orders_are_remembered_as_long_as_the_log_knows_the_producer() -> None:
    gate = TransactionGate()
    gate.marked(order(), 41)
    gate.forget([key_of_id(8), (1, key_of_id(7)[1])])
    assert gate.already(order()) == 41
    gate.forget([key_of_id(7)])
    assert gate.already(order()) is None


def test_late_markers_are_refused() -> None:
    check_order(order(), None)
    state = ended(coordinator_epoch=3, epoch=2).producer(7)
    check_order(order(by=3, epoch=2), state)
    check_order(order(by=4, epoch=3), state)
    with pytest.raises(TransactionCoordinatorFenced, match="coordinator epoch 2"):
        check_order(order(by=2, epoch=2), state)
    with pytest.raises(InvalidProducerEpoch, match="marker of epoch 1, newest is 2"):
        check_order(order(by=3, epoch=1), state)


def test_what_the_coordinator_does_not_know_is_ended_only_as_it_was() -> None:
    """Between its answer and the marker the producer may have begun another transaction: what is
    open here is part of that one then."""
    table = in_transaction()
    noted = table.producer(7)
    gate = TransactionGate()
    own = order(0, commits=False)._replace(noted=noted)
    check_order(own, table.producer(7))
    table.update(header(sequence=1), 1)
    with pytest.raises(InvalidTransactionState):
        check_order(own, table.producer(7))
    with pytest.raises(InvalidTransactionState):
        check_order(own, None)
    gate.marked(order(3), 7)
    assert gate.already(own) is None
    gate.marked(own, 9)
    assert gate.already(order(3)) == 7
    assert gate.already(order(4)) is None
