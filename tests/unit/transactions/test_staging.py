"""Staged transactions: what they hold, and what is left to do at commit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    DuplicateSequence,
    InvalidTransactionState,
    ProducerFenced,
    TransactionNotFound,
    TransactionTooLarge,
)
from paceline.wire.peer.names import GroupName, PartitionName
from paceline_node.detailed_errors import SequenceReused
from paceline_node.services.transactions.connection_transactions import ConnectionTransactions
from paceline_node.transaction_names import Family, TransactionKey
from paceline_node.transactions.keys import LAST_EPOCH
from paceline_node.transactions.limits import TransactionLimits
from paceline_node.transactions.records import (
    Header,
    Staged,
    StagedOffset,
    State,
    Transaction,
)
from tests.unit.transactions.desk import Desk

KEY = TransactionKey(Family.CURSUS, "orders-worker")


def record(sequence: int, partition: int = 0, value: bytes = b"v") -> Staged:
    return Staged("orders", partition, sequence, 7, b"k", value, (Header("a", b"b"),))


def offset(at: int, partition: int = 0) -> StagedOffset:
    return StagedOffset(GroupName("cursus", "g", "in"), "in", partition, at)


def opened(limits: TransactionLimits | None = None) -> Desk:
    desk = Desk(limits)
    desk.init(KEY)
    desk.engine.staging.begin(KEY, 0)
    return desk


def test_an_end_that_is_asked_for_again_does_not_come_behind_later_ones() -> None:
    desk = Desk()
    other = TransactionKey(Family.CURSUS, "other")
    for key in (KEY, other):
        desk.init(key)
        epoch = desk.engine.store.transactions[key].wire_epoch
        desk.engine.staging.begin(key, epoch)
        desk.engine.staging.end(key, epoch, commits=True)
    desk.engine.staging.end(KEY, desk.engine.store.transactions[KEY].wire_epoch, commits=True)
    assert desk.engine.endings() == [KEY, other]
    desk.check_fold()


def test_what_was_dropped_is_known_until_the_next_transaction() -> None:
    desk = opened()
    desk.engine.staging.stage(KEY, 0, [record(1), record(2, partition=1)])
    desk.engine.staging.end(KEY, 0, commits=True)
    found = desk.engine.store.transactions[KEY]
    desk.engine.producers.complete(KEY, found.serial, dropped=1)
    desk.fail_over()
    found = desk.engine.staging.known(KEY)
    assert (found.state, found.staged, found.dropped) == (State.COMPLETE_COMMIT, 2, 1)
    desk.check_fold()
    begun = desk.engine.staging.begin(KEY, 0)
    assert begun is not None
    assert (begun.staged, begun.dropped) == (0, 0)
    desk.engine.staging.end(KEY, 0, commits=True)
    desk.engine.producers.complete(KEY, begun.serial, dropped=1)
    desk.init(KEY)
    assert desk.engine.staging.known(KEY).dropped == 0


def test_a_record_without_dropped_ones_is_as_before_they_were_counted() -> None:
    found = opened().engine.store.transactions[KEY]
    some = replace(found, dropped=3)
    assert len(found.pack()) == len(some.pack()) - 1
    for each in (found, some):
        assert Transaction.from_bytes(each.to_bytes()) == each


def test_a_commit_has_the_records_in_order_each_number_once() -> None:
    desk = opened()
    staging = desk.engine.staging
    assert staging.stage(KEY, 0, [record(1), record(2, partition=1)]).staged == 2
    assert staging.stage(KEY, 0, [record(2, partition=1), record(3), record(3)]).staged == 3
    staging.stage_offsets(KEY, 0, [offset(5), offset(7, 1)])
    staging.stage_offsets(KEY, 0, [offset(6)])
    desk.fail_over()
    with pytest.raises(ConcurrentTransactions, match="not pending in their group"):
        desk.engine.staging.end(KEY, 0, commits=True)
    pending = desk.engine.store.transactions[KEY]
    ended = desk.engine.staging.end(KEY, 0, commits=True, pending=pending)
    assert ended is not None
    assert not ended.complete
    ending = desk.engine.ending(KEY)
    assert ending is not None
    assert [each.sequence for each in ending.staged] == [1, 2, 3]
    assert ending.partitions == (PartitionName("orders", 0), PartitionName("orders", 1))
    assert [each.offset for each in ending.offsets] == [6, 7]
    desk.finish(KEY)
    assert desk.engine.store.staged == {}
    assert desk.engine.store.total_staged_bytes == 0
    assert desk.engine.store.transactions[KEY].staged == 3
    desk.check_fold()


def test_a_number_that_is_staged_is_of_no_other_record() -> None:
    desk = opened()
    desk.engine.staging.stage(KEY, 0, [record(1)])
    for _ in range(2):
        for other in (
            record(1, partition=1),
            record(1, value=b"w"),
            replace(record(1), topic="payments"),
            replace(record(1), headers=()),
        ):
            with pytest.raises(DuplicateSequence):
                desk.engine.staging.stage(KEY, 0, [record(2), other])
        assert desk.engine.store.transactions[KEY].staged == 1
        repeated = replace(record(1), timestamp_ms=9)
        assert desk.engine.staging.stage(KEY, 0, [repeated]).staged == 1
        elsewhere = replace(repeated, partition=1)
        assert desk.engine.staging.stage(KEY, 0, [elsewhere], chosen=[0]).staged == 1
        desk.fail_over()
    again = [record(2), record(1, 1), record(2, 1), record(2)]
    with pytest.raises(SequenceReused) as caught:
        desk.engine.staging.stage(KEY, 0, again)
    assert caught.value.places == (1, 2)
    desk.engine.staging.end(KEY, 0, commits=False)
    desk.finish(KEY)
    desk.engine.staging.begin(KEY, 0)
    assert desk.engine.staging.stage(KEY, 0, [record(1, 1)]).staged == 1, "another transaction"
    desk.check_fold()


def test_a_connection_acts_in_no_transaction_that_another_one_began() -> None:
    desk = opened()
    staging, old, new = desk.engine.staging, ConnectionTransactions(), ConnectionTransactions()
    staging.stage(KEY, 0, [record(1)], acted=old)
    staging.end(KEY, 0, commits=False, acted=new)
    desk.finish(KEY)
    staging.begin(KEY, 0, acted=new)
    for command in (
        lambda: staging.begin(KEY, 0, acted=old),
        lambda: staging.stage(KEY, 0, [record(2)], acted=old),
        lambda: staging.stage_offsets(KEY, 0, [offset(5)], acted=old),
        lambda: staging.end(KEY, 0, commits=True, acted=old),
        lambda: staging.end(KEY, 0, commits=False, acted=old),
    ):
        with pytest.raises(ProducerFenced, match="another connection"):
            command()
    found = desk.engine.store.transactions[KEY]
    assert (found.state, found.staged, found.offsets) == (State.ONGOING, 0, ())
    staging.begin(KEY, 0, acted=new)
    staging.stage(KEY, 0, [record(2)], acted=ConnectionTransactions())
    staging.end(KEY, 0, commits=True, acted=new)
    staging.end(KEY, 0, commits=True, acted=old)  # says how the last one ended, and does nothing
    desk.finish(KEY)
    staging.begin(KEY, 0, acted=old)
    staging.stage(KEY, 0, [record(3)], acted=old)
    with pytest.raises(ProducerFenced):
        staging.stage(KEY, 0, [record(3)], acted=new)


def test_a_begin_that_was_not_committed_is_not_the_next_one() -> None:
    """It may be asked again on its connection, and what another one begins has its number."""
    desk = opened()
    acted = ConnectionTransactions()
    desk.engine.staging.end(KEY, 0, commits=True)
    desk.finish(KEY)
    batches = len(desk.batches)
    desk.engine.staging.begin(KEY, 0, acted=acted)
    desk.engine.staging.begin(KEY, 0, acted=acted)
    del desk.batches[batches:]
    desk.fail_over()
    desk.advance(1)
    desk.engine.staging.begin(KEY, 0, acted=ConnectionTransactions())
    with pytest.raises(ProducerFenced):
        desk.engine.staging.stage(KEY, 0, [record(1)], acted=acted)


def test_a_new_client_of_the_id_may_use_any_connection() -> None:
    desk = opened()
    old = ConnectionTransactions()
    desk.engine.staging.stage(KEY, 0, [record(1)], acted=old)
    desk.engine.staging.end(KEY, 0, commits=True)
    desk.finish(KEY)
    desk.init(KEY)
    desk.engine.staging.begin(KEY, 1, acted=ConnectionTransactions())
    assert desk.engine.staging.stage(KEY, 1, [record(1)], acted=old).staged == 1


def test_a_connection_is_remembered_for_so_many_ids_only() -> None:
    found, acted = opened().engine.store.transactions[KEY], ConnectionTransactions()
    for number in range(1000):
        acted.act(TransactionKey(Family.CURSUS, f"id-{number}"), found)
    later = replace(found, serial=found.serial + 1)
    acted.act(TransactionKey(Family.CURSUS, "id-0"), later)
    with pytest.raises(ProducerFenced):
        acted.act(TransactionKey(Family.CURSUS, "id-999"), later)


@pytest.mark.parametrize("later", ["offsets", "transaction"])
def test_only_the_offsets_that_are_pending_are_committed(later: str) -> None:
    """Others would be handed out as they were before, after it was decided that they move."""
    desk = opened()
    staging = desk.engine.staging
    pending = staging.stage_offsets(KEY, 0, [offset(5)])
    if later == "offsets":
        staging.stage_offsets(KEY, 0, [offset(6)])
    else:
        staging.end(KEY, 0, commits=False)
        desk.finish(KEY)
        staging.begin(KEY, 0)
        staging.stage_offsets(KEY, 0, [offset(5)])
    with pytest.raises(ConcurrentTransactions):
        staging.end(KEY, 0, commits=True, pending=pending)
    assert desk.engine.store.transactions[KEY].state is State.ONGOING
    assert staging.end(KEY, 0, commits=False) is not None, "an abort moves no offset"


def test_an_abort_leaves_nothing_to_do() -> None:
    desk = opened()
    desk.engine.staging.stage(KEY, 0, [record(1)])
    desk.engine.staging.stage_offsets(KEY, 0, [offset(5)])
    desk.engine.staging.end(KEY, 0, commits=False)
    ending = desk.finish(KEY)
    assert (ending.staged, ending.partitions, ending.offsets) == ((), (), ())
    assert desk.engine.store.staged == {}


def test_one_client_runs_many_transactions_under_one_wire_epoch() -> None:
    desk = opened()
    identities = set()
    for commits in (True, False, True):
        desk.engine.staging.begin(KEY, 0)
        desk.engine.staging.stage(KEY, 0, [record(1)])
        desk.engine.staging.end(KEY, 0, commits=commits)
        with pytest.raises(ConcurrentTransactions):
            desk.engine.staging.begin(KEY, 0)
        identities.add(desk.finish(KEY).identity)
    assert len(identities) == 3
    assert desk.engine.store.transactions[KEY].wire_epoch == 0


def test_the_end_may_be_repeated_but_not_turned() -> None:
    desk = opened()
    staging = desk.engine.staging
    for complete in (False, True):
        ended = staging.end(KEY, 0, commits=True)
        assert ended is not None
        if complete:
            assert ended.complete
        with pytest.raises(InvalidTransactionState):
            staging.end(KEY, 0, commits=False)
        if not complete:
            desk.finish(KEY)


def test_a_repeated_end_is_written_for_it_may_be_that_of_another_transaction() -> None:
    """A client keeps its epoch; only the coordinator of a later transaction knows of that."""
    desk = opened()
    desk.engine.staging.end(KEY, 0, commits=True)
    for complete in (False, True):
        desk.refuses = True
        with pytest.raises(CoordinatorNotAvailable):
            desk.engine.staging.end(KEY, 0, commits=True)
        desk.refuses = False
        written = len(desk.batches)
        ended = desk.engine.staging.end(KEY, 0, commits=True)
        assert ended is not None
        assert ended.complete is complete
        assert len(desk.batches) > written
        desk.check_fold()
        if not complete:
            desk.finish(KEY)


def test_a_newer_client_fences_the_older_and_drops_what_it_staged() -> None:
    desk = opened()
    desk.engine.staging.stage(KEY, 0, [record(1)])
    with pytest.raises(ConcurrentTransactions):
        desk.init(KEY)
    desk.finish(KEY)
    desk.init(KEY)
    with pytest.raises(ProducerFenced):
        desk.engine.staging.stage(KEY, 0, [record(2)])
    with pytest.raises(InvalidTransactionState):
        desk.engine.staging.stage(KEY, 1, [record(2)])
    with pytest.raises(InvalidTransactionState):
        desk.engine.staging.end(KEY, 1, commits=True)
    assert desk.engine.store.staged == {}


def test_a_fenced_client_is_fenced_by_the_next_coordinator_too() -> None:
    desk = Desk()
    for _ in range(2):
        desk.init(KEY)
    desk.engine.staging.begin(KEY, 1)
    pending = desk.engine.staging.stage_offsets(KEY, 1, [offset(5)])
    desk.fail_over()
    for commits in (True, False):
        with pytest.raises(ProducerFenced):
            desk.engine.staging.end(KEY, 0, commits=commits, pending=pending)
    with pytest.raises(ProducerFenced):
        desk.engine.staging.stage_offsets(KEY, 0, [offset(9)])


def test_nobody_is_known_by_a_name_never_heard() -> None:
    with pytest.raises(TransactionNotFound):
        Desk().engine.staging.begin(KEY, 0)


def test_what_is_staged_is_bounded_for_each_and_for_all() -> None:
    desk = opened(TransactionLimits(staged_bytes_max=1000, staged_total_bytes_max=1500))
    desk.engine.staging.stage(KEY, 0, [record(1, value=bytes(700))])
    with pytest.raises(TransactionTooLarge, match="staged_bytes_max"):
        desk.engine.staging.stage(KEY, 0, [record(2, value=bytes(700))])
    other = TransactionKey(Family.CURSUS, "other")
    desk.init(other)
    desk.engine.staging.begin(other, 0)
    with pytest.raises(TransactionTooLarge, match="staged_total_bytes_max"):
        desk.engine.staging.stage(other, 0, [record(1, value=bytes(800))])
    assert desk.engine.store.transactions[KEY].staged == 1


def test_an_open_transaction_times_out_and_its_records_go() -> None:
    desk = opened()
    desk.engine.staging.stage(KEY, 0, [record(1)])
    desk.advance(61)
    assert desk.engine.store.transactions[KEY].state is State.PREPARE_ABORT
    desk.finish(KEY)
    with pytest.raises(InvalidTransactionState):
        desk.engine.staging.end(KEY, 0, commits=True)
    desk.check_fold()


def test_epochs_that_time_outs_use_up_are_followed_by_a_new_producer_id() -> None:
    """Each fences the one before, and this client need never INIT again."""
    desk = opened()
    store = desk.engine.store
    last = replace(store.transactions[KEY], producer_epoch=LAST_EPOCH - 1)
    store.transactions[KEY] = last
    desk.advance(61)
    desk.finish(KEY)
    assert store.transactions[KEY].producer_epoch == LAST_EPOCH
    assert desk.engine.staging.begin(KEY, 0) is None
    begun = desk.engine.staging.begin(KEY, 0, spare=77)
    assert begun is not None
    assert begun.identity == (77, 0)
    desk.advance(61)
    desk.finish(KEY)
    assert store.transactions[KEY].identity == (77, 1)


LONG = TransactionKey(Family.CURSUS, "x" * 1000)


def long_commit(count: int = 17_000) -> Desk:
    """A committed transaction of more records than can be forgotten in one batch."""
    desk = Desk()
    desk.init(LONG)
    staging = desk.engine.staging
    staging.begin(LONG, 0)
    for start in range(0, count, 1000):
        staging.stage(LONG, 0, [record(start + number) for number in range(1000)])
    staging.end(LONG, 0, commits=True)
    return desk


def test_what_many_staged_records_leave_is_forgotten_in_pieces() -> None:
    desk = long_commit()
    assert len(desk.finish(LONG).staged) == 17_000
    assert desk.engine.store.transactions[LONG].state is State.COMPLETE_COMMIT
    assert desk.engine.store.total_staged_bytes == 0
    assert not desk.engine.store.staged
    desk.check_fold()


def test_it_is_complete_before_anything_of_it_is_forgotten_and_the_rest_goes_later() -> None:
    """Another coordinator, finding a part of it only, would append that part alone."""
    desk = long_commit(2000)
    ending = desk.engine.ending(LONG)
    assert ending is not None
    desk.writes_left = 2  # the completion, and one piece
    with pytest.raises(CoordinatorNotAvailable):
        desk.engine.producers.complete(LONG, ending.serial)
    desk.writes_left = -1
    desk.fail_over()
    assert desk.engine.ending(LONG) is None
    assert len(desk.engine.store.staged[LONG]) > 0
    desk.advance(2)
    assert not desk.engine.store.staged
    desk.engine.staging.begin(LONG, 0)
    assert desk.engine.staging.stage(LONG, 0, [record(1)]).staged == 1


def test_what_is_committed_with_a_transaction_is_bounded() -> None:
    """Otherwise its decision could be larger than a batch may be, and would never be taken."""
    desk = opened()
    many = [
        StagedOffset(GroupName("cursus", "g", "in"), "in", at, 1, metadata="m" * 4000)
        for at in range(2_500)
    ]
    with pytest.raises(TransactionTooLarge, match="at most 8388608"):
        desk.engine.staging.stage_offsets(KEY, 0, many)
    assert desk.engine.staging.end(KEY, 0, commits=True) is not None
