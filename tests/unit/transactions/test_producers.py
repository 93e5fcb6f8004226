"""Transactions of producers: begun, decided, completed, fenced, timed out, forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerMapping,
    InvalidRequest,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    ProducerFenced,
    TransactionNotFound,
    TransactionTooLarge,
)
from paceline.wire.peer.names import GroupName
from paceline_node.transaction_names import Family, ProducerIdentity, TransactionKey
from paceline_node.transactions.keys import LAST_EPOCH
from paceline_node.transactions.limits import TransactionLimits
from paceline_node.transactions.records import State, transaction_entry
from tests.unit.transactions.desk import KEY, P0, P1, Desk

GROUP = GroupName("kafka", "billing")


def state_of(desk: Desk) -> State:
    return desk.engine.store.transactions[KEY].state


def test_a_commit_from_the_first_write_to_the_last_marker() -> None:
    desk = Desk()
    who = desk.init()
    producers = desk.engine.producers
    producers.add_partitions(KEY, who, [P1])
    producers.add_partitions(KEY, who, [P0, P1])
    producers.add_group(KEY, who, GROUP)
    producers.verify(KEY, who, P0)
    producers.verify(KEY, who, GROUP)
    ended = producers.end(KEY, who, commits=True, bumps=False)
    assert ended == (who, False)
    assert desk.engine.endings() == [KEY]
    ending = desk.finish()
    assert (ending.identity, ending.commits) == (who, True)
    assert (ending.partitions, ending.groups) == ((P0, P1), (GROUP,))
    assert state_of(desk) is State.COMPLETE_COMMIT
    assert desk.engine.endings() == []
    desk.check_fold()


@pytest.mark.parametrize("bumps", [False, True])
def test_who_was_overtaken_in_a_log_gets_another_producer_id(bumps: bool) -> None:
    """An unclean election made the coordinator forget epochs that partitions know."""
    desk = Desk()
    who = desk.init()
    desk.engine.producers.add_partitions(KEY, who, [P0])
    ended = desk.engine.producers.end(KEY, who, commits=False, bumps=bumps)
    assert ended is not None
    ending = desk.engine.ending(KEY)
    assert ending is not None
    desk.engine.producers.complete(KEY, ending.serial, overtaken=True)
    with pytest.raises(ProducerFenced):
        desk.engine.producers.add_partitions(KEY, ended.identity, [P0])
    renewed = desk.init()
    assert renewed.producer_id != who.producer_id
    assert renewed.epoch == 0
    desk.engine.producers.add_partitions(KEY, renewed, [P0])
    desk.check_fold()


def test_the_same_write_again_is_no_record() -> None:
    desk = Desk()
    who = desk.init()
    desk.engine.producers.add_partitions(KEY, who, [P0])
    before = len(desk.batches)
    desk.engine.producers.add_partitions(KEY, who, [P0])
    assert len(desk.batches) == before


def test_a_transaction_takes_no_member_it_was_not_told_of() -> None:
    desk = Desk()
    who = desk.init()
    with pytest.raises(InvalidTransactionState):
        desk.engine.producers.verify(KEY, who, P0)
    desk.engine.producers.add_partitions(KEY, who, [P0])
    for stranger in (P1, GROUP):
        with pytest.raises(InvalidTransactionState):
            desk.engine.producers.verify(KEY, who, stranger)


def test_an_end_may_be_repeated_but_not_turned() -> None:
    desk = Desk()
    who = desk.init()
    producers = desk.engine.producers
    producers.add_partitions(KEY, who, [P0])
    first = producers.end(KEY, who, commits=True, bumps=True)
    assert first == ((who.producer_id, 1), False)
    for complete in (False, True):
        assert producers.end(KEY, who, commits=True, bumps=True) == (first.identity, complete)
        with pytest.raises(InvalidTransactionState):
            producers.end(KEY, who, commits=False, bumps=True)
        if not complete:
            desk.finish()


def test_without_a_new_epoch_an_empty_end_is_refused() -> None:
    desk = Desk()
    who = desk.init()
    with pytest.raises(InvalidTransactionState):
        desk.engine.producers.end(KEY, who, commits=True, bumps=False)


@pytest.mark.parametrize("commits", [True, False])
def test_an_empty_end_has_a_new_epoch_follow(commits: bool) -> None:
    """A write that was given up, and comes late, would be taken into the next transaction."""
    desk = Desk()
    who = desk.init()
    producers = desk.engine.producers
    ended = producers.end(KEY, who, commits=commits, bumps=True)
    assert ended == ((who.producer_id, who.epoch + 1), True)
    with pytest.raises(ProducerFenced):
        producers.add_partitions(KEY, who, [P0])
    assert producers.end(KEY, who, commits=commits, bumps=True) == ended
    with pytest.raises(InvalidTransactionState):
        producers.end(KEY, who, commits=not commits, bumps=True)
    producers.add_partitions(KEY, ended.identity, [P0])


def test_a_repeated_end_is_written_where_it_may_be_that_of_another_transaction() -> None:
    """One that keeps its epoch may have begun another since, of which only the coordinator of that
    knows; who coordinates no more must not say that it ended as the last one here did."""
    desk = Desk()
    who = desk.init()
    producers = desk.engine.producers
    producers.add_partitions(KEY, who, [P0])
    producers.end(KEY, who, commits=True, bumps=False)
    for complete in (False, True):
        written = len(desk.batches)
        assert producers.end(KEY, who, commits=True, bumps=False) == (who, complete)
        assert len(desk.batches) > written
        desk.check_fold()
        desk.refuses = True
        with pytest.raises(CoordinatorNotAvailable):
            producers.end(KEY, who, commits=True, bumps=False)
        desk.refuses = False
        if not complete:
            desk.finish()


def test_nothing_is_added_while_the_end_is_under_way() -> None:
    desk = Desk()
    who = desk.init()
    producers = desk.engine.producers
    producers.add_partitions(KEY, who, [P0])
    ended = producers.end(KEY, who, commits=True, bumps=True)
    assert ended is not None
    for identity in (who, ended.identity):
        with pytest.raises(ConcurrentTransactions):
            producers.add_partitions(KEY, identity, [P0])
        with pytest.raises(ConcurrentTransactions):
            producers.verify(KEY, identity, P0)
    with pytest.raises(ConcurrentTransactions):
        desk.init()
    desk.finish()
    with pytest.raises(ProducerFenced):  # the old epoch can open nothing any more
        producers.add_partitions(KEY, who, [P0])
    producers.add_partitions(KEY, ended.identity, [P0])


def test_init_fences_and_aborts_whoever_was_writing() -> None:
    desk = Desk()
    old = desk.init()
    producers = desk.engine.producers
    producers.add_partitions(KEY, old, [P0])
    with pytest.raises(ConcurrentTransactions):
        desk.init()
    ending = desk.finish()
    assert not ending.commits
    assert ending.identity == ProducerIdentity(old.producer_id, 1)
    new = desk.init()
    assert new == ProducerIdentity(old.producer_id, 2)
    for commits in (True, False):
        with pytest.raises(ProducerFenced):
            producers.end(KEY, old, commits=commits, bumps=False)
    with pytest.raises(ProducerFenced):
        producers.add_partitions(KEY, old, [P0])
    desk.check_fold()


def test_who_is_not_the_one_it_says_is_refused() -> None:
    desk = Desk()
    who = desk.init()
    producers = desk.engine.producers
    with pytest.raises(InvalidProducerMapping):
        producers.add_partitions(KEY, ProducerIdentity(who.producer_id + 1, 0), [P0])
    with pytest.raises(InvalidProducerEpoch):
        producers.add_partitions(KEY, ProducerIdentity(who.producer_id, 1), [P0])
    with pytest.raises(InvalidProducerMapping):
        producers.end(TransactionKey(Family.KAFKA, "x"), who, commits=True, bumps=True)


def test_init_of_one_who_believes_to_be_somebody() -> None:
    desk = Desk()
    first = desk.init()
    second = desk.init(expected=first)
    assert second.epoch == first.epoch + 1
    assert desk.init(expected=first) == second  # the answer was lost
    desk.init()
    with pytest.raises(ProducerFenced):
        desk.init(expected=second)


def test_epochs_run_out_and_a_new_producer_id_follows() -> None:
    desk = Desk()
    who = desk.init()
    last = replace(desk.engine.store.transactions[KEY], producer_epoch=LAST_EPOCH - 1)
    desk.write(KEY, [transaction_entry(KEY, last)])
    who = ProducerIdentity(who.producer_id, LAST_EPOCH - 1)
    producers = desk.engine.producers
    producers.add_partitions(KEY, who, [P0])
    assert producers.end(KEY, who, commits=True, bumps=True) is None
    ended = producers.end(KEY, who, commits=True, bumps=True, spare=77)
    assert ended == ((77, 0), False)
    assert desk.finish().identity == who
    assert desk.engine.store.transactions[KEY].identity == (77, 0)
    # The coordinator may fence even the last epoch that is given out.
    desk.write(KEY, [transaction_entry(KEY, last)])
    producers.add_partitions(KEY, who, [P0])
    with pytest.raises(ConcurrentTransactions):
        desk.init()
    assert desk.finish().identity.epoch == LAST_EPOCH
    assert desk.init().epoch == 0


def test_a_transaction_left_open_is_aborted_and_its_producer_fenced() -> None:
    desk = Desk()
    who = desk.init(timeout_ms=5000)
    desk.engine.producers.add_partitions(KEY, who, [P0])
    desk.advance(4.9)
    assert state_of(desk) is State.ONGOING
    desk.advance(0.2)
    assert state_of(desk) is State.PREPARE_ABORT
    with pytest.raises(ProducerFenced):
        desk.engine.producers.end(KEY, who, commits=True, bumps=True)
    desk.finish()
    with pytest.raises(ProducerFenced):
        desk.engine.producers.end(KEY, who, commits=True, bumps=True)


def test_a_time_out_goes_on_running_under_another_coordinator() -> None:
    desk = Desk()
    who = desk.init(timeout_ms=5000)
    desk.engine.producers.add_partitions(KEY, who, [P0])
    desk.advance(2)
    desk.fail_over()
    desk.advance(2.9)
    assert state_of(desk) is State.ONGOING
    desk.advance(0.2)
    assert state_of(desk) is State.PREPARE_ABORT


def test_a_time_out_that_cannot_be_stored_is_tried_again() -> None:
    desk = Desk()
    who = desk.init(timeout_ms=5000)
    desk.engine.producers.add_partitions(KEY, who, [P0])
    desk.refuses = True
    desk.advance(6)
    assert state_of(desk) is State.ONGOING
    desk.refuses = False
    desk.advance(1)
    assert state_of(desk) is State.PREPARE_ABORT


def test_a_commit_decided_is_finished_by_the_next_coordinator_and_never_timed_out() -> None:
    desk = Desk()
    who = desk.init(timeout_ms=5000)
    producers = desk.engine.producers
    producers.add_partitions(KEY, who, [P0])
    ended = producers.end(KEY, who, commits=True, bumps=True)
    assert ended is not None
    desk.fail_over()
    desk.advance(3600)
    assert desk.engine.endings() == [KEY]
    assert desk.finish().commits
    desk.fail_over()
    assert desk.engine.producers.end(KEY, who, commits=True, bumps=True) == (ended.identity, True)


def test_completing_twice_or_another_transaction_changes_nothing() -> None:
    desk = Desk()
    who = desk.init()
    producers = desk.engine.producers
    producers.add_partitions(KEY, who, [P0])
    producers.end(KEY, who, commits=True, bumps=False)
    first = desk.finish()
    producers.complete(KEY, first.serial)
    producers.add_partitions(KEY, who, [P0])
    producers.end(KEY, who, commits=False, bumps=False)
    producers.complete(KEY, first.serial)
    assert state_of(desk) is State.PREPARE_ABORT


def test_what_cannot_be_written_has_not_happened() -> None:
    desk = Desk()
    who = desk.init()
    desk.engine.producers.add_partitions(KEY, who, [P0])
    desk.refuses = True
    with pytest.raises(CoordinatorNotAvailable):
        desk.engine.producers.end(KEY, who, commits=True, bumps=True)
    assert state_of(desk) is State.ONGOING
    assert desk.engine.endings() == []


def test_limits() -> None:
    desk = Desk(TransactionLimits(ids_max=1, partitions_max=1, groups_max=1))
    for timeout_ms in (0, 10**9):
        with pytest.raises(InvalidTransactionTimeout):
            desk.init(timeout_ms=timeout_ms)
    for name in ("", "x" * 2000, "\udc00"):
        with pytest.raises(InvalidRequest):
            desk.init(TransactionKey(Family.KAFKA, name))
    who = desk.init()
    with pytest.raises(TransactionTooLarge):
        desk.init(TransactionKey(Family.KAFKA, "another"))
    with pytest.raises(TransactionTooLarge):
        desk.engine.producers.add_partitions(KEY, who, [P0, P1])
    desk.engine.producers.add_group(KEY, who, GROUP)
    with pytest.raises(TransactionTooLarge):
        desk.engine.producers.add_group(KEY, who, GroupName("kafka", "other"))


def test_an_idle_id_is_forgotten_and_an_open_transaction_is_not() -> None:
    limits = TransactionLimits(ids_kept_s=100, expiry_check_s=10, timeout_max_s=10**6)
    desk = Desk(limits)
    desk.init()
    open_key = TransactionKey(Family.KAFKA, "open")
    who = desk.init(open_key, timeout_ms=10**8)
    desk.engine.producers.add_partitions(open_key, who, [P0])
    desk.advance(90)
    assert KEY in desk.engine.store.transactions
    desk.advance(30)
    assert set(desk.engine.store.transactions) == {open_key}
    desk.check_fold()


def test_epochs_that_clients_are_shown_go_on_when_their_ids_were_forgotten() -> None:
    """Cursus: otherwise an old client could be taken for that of the same id, made anew."""
    desk = Desk(TransactionLimits(ids_kept_s=100, expiry_check_s=10))
    one, two = (TransactionKey(Family.CURSUS, name) for name in ("one", "two"))
    for _ in range(5):
        desk.init(one)
    desk.init(two)
    desk.engine.staging.begin(one, 4)
    desk.engine.staging.end(one, 4, commits=True)
    desk.advance(50)
    desk.finish(one)
    desk.advance(80)
    assert set(desk.engine.store.transactions) == {one}
    desk.advance(80)
    assert not desk.engine.store.transactions
    desk.check_fold()
    desk.fail_over()
    with pytest.raises(TransactionNotFound):
        desk.engine.staging.begin(one, 4)
    for key in (one, two):
        desk.init(key)
        assert desk.engine.store.transactions[key].wire_epoch == 5
        with pytest.raises(ProducerFenced):
            desk.engine.staging.begin(key, 4)
    desk.check_fold()


def test_a_coordinator_whose_clock_is_ahead_aborts_nothing_at_once() -> None:
    desk = Desk()
    who = desk.init()
    desk.engine.producers.add_partitions(KEY, who, [P0])
    desk.advance(1)
    desk.ahead_ms = 3_600_000
    desk.fail_over()
    desk.advance(29)
    assert desk.engine.producers.verify(KEY, who, P0) == 1
    desk.advance(2)
    assert desk.engine.store.transactions[KEY].state is State.PREPARE_ABORT
    desk.ahead_ms = -3_600_000  # behind: the time-out is a whole one, no longer
    desk.finish()
    who = desk.init()
    desk.engine.producers.add_partitions(KEY, who, [P0])
    desk.fail_over()
    desk.advance(61)
    assert desk.engine.store.transactions[KEY].state is State.PREPARE_ABORT


def test_many_ids_are_forgotten_in_many_batches() -> None:
    desk = Desk(TransactionLimits(ids_kept_s=100, expiry_check_s=10))
    for number in range(500):
        desk.init(TransactionKey(Family.CURSUS, f"id-{number}"))
    before = len(desk.batches)
    desk.advance(120)
    assert not desk.engine.store.transactions
    assert len(desk.batches) - before == 3


def test_no_family_uses_up_the_ids_of_another() -> None:
    desk = Desk(TransactionLimits(ids_max=2))
    for number in range(2):
        desk.init(TransactionKey(Family.CURSUS, str(number)))
    with pytest.raises(TransactionTooLarge, match="of family cursus"):
        desk.init(TransactionKey(Family.CURSUS, "more"))
    desk.init(KEY)


def test_ids_that_nobody_has_used_make_room_for_new_ones() -> None:
    desk = Desk(TransactionLimits(ids_max=3))
    keys = [TransactionKey(Family.KAFKA, str(number)) for number in range(3)]
    desk.init(keys[0])
    open_one = desk.init(keys[1])
    desk.engine.producers.add_partitions(keys[1], open_one, [P0])
    desk.advance(59)
    young = desk.init(keys[2])
    with pytest.raises(TransactionTooLarge, match="ids_max"):
        desk.init(KEY)
    desk.advance(2)
    desk.init(KEY)
    assert set(desk.engine.store.transactions) == {keys[1], keys[2], KEY}
    with pytest.raises(TransactionTooLarge, match="ids_max"):
        desk.init(keys[0])
    desk.engine.producers.add_partitions(keys[2], young, [P0])
    desk.advance(60)
    desk.init(keys[0])  # one that is used stays
    assert set(desk.engine.store.transactions) == {*keys}


def test_whoever_held_a_forgotten_id_is_told_so_and_epochs_of_cursus_go_on() -> None:
    desk = Desk(TransactionLimits(ids_max=1))
    mine = TransactionKey(Family.CURSUS, "mine")
    before = desk.init(mine)
    epoch = desk.engine.store.transactions[mine].wire_epoch
    desk.advance(61)
    desk.init(TransactionKey(Family.CURSUS, "other"))
    with pytest.raises(InvalidProducerMapping):
        desk.engine.producers.add_partitions(mine, before, [P0])
    desk.advance(61)
    desk.init(mine)
    assert desk.engine.store.transactions[mine].wire_epoch > epoch


def test_operators_see_and_abort() -> None:
    desk = Desk()
    inspection = desk.engine.inspection
    with pytest.raises(TransactionNotFound):
        inspection.describe(KEY)
    who = desk.init()
    with pytest.raises(InvalidTransactionState):
        inspection.abort(KEY, "by an operator")
    desk.engine.producers.add_partitions(KEY, who, [P0])
    desk.advance(2)
    (listed,) = inspection.listed(inspection.keys(), frozenset({State.ONGOING}))
    assert (listed.key, listed.open_s) == (KEY, 2.0)
    assert inspection.listed(inspection.keys(), frozenset({State.EMPTY})) == []
    inspection.abort(KEY, "by an operator")
    assert inspection.describe(KEY).transaction.reason == "by an operator"
    with pytest.raises(ProducerFenced):
        desk.engine.producers.end(KEY, who, commits=True, bumps=True)
