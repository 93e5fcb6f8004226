"""A coordinator behind an unclean election: what it has forgotten it says nothing of."""

from __future__ import annotations

import pytest

from paceline.errors import (
    ConcurrentTransactions,
    InvalidProducerMapping,
    InvalidTransactionState,
    PacelineError,
    ProducerFenced,
    TransactionNotFound,
)
from paceline_node.transaction_names import Family, ProducerIdentity, TransactionKey
from paceline_node.transactions.records import Staged, State
from paceline_node.transactions.sinks import Attempt
from tests.unit.transactions.desk import KEY, P0, Desk

COPIER = TransactionKey(Family.CURSUS, "copier")
ATTEMPT = Attempt("table", "q", "run", 0, 0, 0)


def run_one(desk: Desk, who: ProducerIdentity, *, bumps: bool) -> ProducerIdentity:
    """One transaction, committed everywhere; whom the next is written by."""
    desk.engine.producers.add_partitions(KEY, who, [P0])
    ended = desk.engine.producers.end(KEY, who, commits=True, bumps=bumps)
    assert ended is not None
    desk.finish()
    return ended.identity


@pytest.mark.parametrize("again", [False, True])
def test_no_identity_is_given_out_twice(again: bool) -> None:
    """Logs knew it with its sequences, so took the new batches for old ones, and the commit was
    answered OK. It holds for the next coordinator, too, and for the next loss."""
    desk = Desk()
    first = desk.init()
    kept = len(desk.batches)
    given = {first, desk.init(), desk.init()}
    for _ in range(1 + again):
        desk.set_back(kept)
        desk.fail_over()
        renewed = desk.init()
        assert renewed not in given
        assert renewed.producer_id not in {each.producer_id for each in given}
        given.add(renewed)
    desk.fail_over()
    assert desk.init() == ProducerIdentity(renewed.producer_id, 1)
    desk.check_fold()


def test_whoever_has_an_identity_of_before_is_nobody() -> None:
    desk = Desk()
    who = desk.init()
    run_one(desk, who, bumps=False)
    kept = len(desk.batches)
    desk.engine.producers.add_partitions(KEY, who, [P0])
    desk.set_back(kept)
    producers = desk.engine.producers
    with pytest.raises(InvalidProducerMapping, match="set the transaction log back"):
        producers.add_partitions(KEY, who, [P0])
    with pytest.raises(InvalidProducerMapping):
        producers.verify(KEY, who, P0)
    with pytest.raises(ProducerFenced):
        desk.init(expected=ProducerIdentity(who.producer_id, who.epoch + 1))
    assert desk.init(expected=who).producer_id != who.producer_id


@pytest.mark.parametrize("bumps", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_nobody_is_told_how_a_forgotten_transaction_ended(bumps: bool, commits: bool) -> None:
    """It was answered like the transaction before, of the same identity, or as one in which
    nothing was begun."""
    desk = Desk()
    who = run_one(desk, desk.init(), bumps=bumps)
    kept = len(desk.batches)
    desk.engine.producers.add_partitions(KEY, who, [P0])
    desk.set_back(kept)
    with pytest.raises((InvalidProducerMapping, InvalidTransactionState)):
        desk.engine.producers.end(KEY, who, commits=commits, bumps=bumps)
    assert desk.engine.store.transactions[KEY].state is State.COMPLETE_COMMIT


def test_what_was_open_is_aborted_and_not_gone_on_with() -> None:
    desk = Desk()
    who = desk.init(timeout_ms=600_000)
    desk.engine.producers.add_partitions(KEY, who, [P0])
    desk.set_back(len(desk.batches))
    with pytest.raises(InvalidProducerMapping):
        desk.engine.producers.end(KEY, who, commits=True, bumps=False)
    desk.advance(0)
    found = desk.engine.store.transactions[KEY]
    assert found.state is State.PREPARE_ABORT
    assert "set the transaction log back" in found.reason
    with pytest.raises(ConcurrentTransactions):
        desk.init()
    ending = desk.finish()
    assert ending.set_back
    assert ending.identity.epoch > who.epoch
    assert desk.init().producer_id != who.producer_id


def test_what_was_decided_is_told_all_the_same() -> None:
    desk = Desk()
    who = desk.init()
    desk.engine.producers.add_partitions(KEY, who, [P0])
    desk.engine.producers.end(KEY, who, commits=True, bumps=True)
    desk.set_back(len(desk.batches))
    ended = desk.engine.producers.end(KEY, who, commits=True, bumps=True)
    assert ended is not None
    ending = desk.finish()
    assert (ending.identity, ending.commits, ending.set_back) == (who, True, True)
    with pytest.raises(InvalidProducerMapping):
        desk.engine.producers.add_partitions(KEY, ended.identity, [P0])


def test_an_election_that_loses_nothing_changes_nothing() -> None:
    desk = Desk()
    who = desk.init()
    desk.set_back(len(desk.batches))
    renewed = desk.init()
    assert renewed.producer_id != who.producer_id
    desk.fail_over()
    desk.engine.producers.add_partitions(KEY, renewed, [P0])
    desk.fail_over()
    desk.advance(1)
    assert desk.engine.producers.end(KEY, renewed, commits=True, bumps=False) is not None
    ending = desk.finish()
    assert not ending.set_back


def test_an_epoch_on_the_wire_is_not_given_out_twice() -> None:
    """Two clients had the same one: the older could write and commit in the newer's name."""
    desk = Desk()
    kept = len(desk.batches)
    epochs = []
    for is_kept in (False, True, True):
        for _ in range(3):
            desk.init(COPIER)
            epochs.append(desk.engine.store.transactions[COPIER].wire_epoch)
            kept = len(desk.batches) if is_kept else kept
        desk.set_back(kept)
    assert epochs[0] == 0
    assert len(set(epochs)) == len(epochs)
    assert epochs == sorted(epochs)
    assert epochs[-1] < 2**31


def test_a_staged_transaction_of_before_is_not_known() -> None:
    desk = Desk()
    desk.init(COPIER)
    staging = desk.engine.staging
    staging.begin(COPIER, 0)
    staging.stage(COPIER, 0, [Staged("orders", 0, 1, 0, None, b"m")])
    staging.end(COPIER, 0, commits=True)
    desk.finish(COPIER)
    desk.set_back(len(desk.batches))
    staging = desk.engine.staging
    with pytest.raises(TransactionNotFound):
        staging.end(COPIER, 0, commits=True)
    with pytest.raises(TransactionNotFound):
        staging.begin(COPIER, 0)
    with pytest.raises(TransactionNotFound):
        staging.known(COPIER)
    desk.init(COPIER)
    renewed = staging.known(COPIER).wire_epoch
    with pytest.raises(ProducerFenced):
        staging.begin(COPIER, renewed - 1)
    staging.begin(COPIER, renewed)


def test_a_task_attempt_of_before_is_committed_no_more() -> None:
    """It may have written to partitions that are forgotten."""
    desk = Desk()
    name, who = desk.engine.sinks.begin(ATTEMPT, 60_000, 7)
    key = TransactionKey(Family.SINK, name)
    desk.set_back(len(desk.batches))
    sinks = desk.engine.sinks
    assert sinks.touch("table", "run", 0) == 0
    refused: list[PacelineError] = []
    for command in (
        lambda: sinks.commit("table", "run", 0, [name]),
        lambda: desk.engine.producers.add_partitions(key, who, [P0]),
    ):
        with pytest.raises(InvalidTransactionState) as caught:
            command()
        refused.append(caught.value)
    desk.advance(0)
    assert desk.engine.store.transactions[key].state is State.PREPARE_ABORT
    again, _ = sinks.begin(ATTEMPT, 60_000, 8)
    sinks.commit("table", "run", 0, [again])


def test_a_task_attempt_whose_sink_has_decided_is_committed() -> None:
    desk = Desk()
    name, _ = desk.engine.sinks.begin(ATTEMPT, 60_000, 7)
    desk.writes_left = -1
    before = len(desk.batches)
    desk.engine.sinks.commit("table", "run", 0, [name])
    sink, *_ = desk.batches[before]
    desk.batches[before:] = [(sink,)]
    desk.set_back(before + 1)
    ending = desk.engine.ending(TransactionKey(Family.SINK, name))
    assert ending is not None
    assert ending.commits
