"""Offsets that transactions commit, and those of transactions that ended before they came."""

from __future__ import annotations

import pytest

from paceline.errors import InvalidTransactionState, NotCoordinator, TransactionTooLarge
from paceline_node.groups.committed_offsets import Commit, OffsetRule
from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.v1_groups import v1_key
from tests.unit.groups.desk import Desk

KEY = v1_key("g")
PRODUCER = 7


def stage(desk: Desk, serial: int, *commits: Commit) -> None:
    offsets = desk.engine.transactional
    offsets.stage(offsets.ticket(KEY, PRODUCER), 0, serial, commits)


def settle(desk: Desk, serial: int, *, commits: bool) -> None:
    assert desk.engine.transactional.settle(KEY, PRODUCER, serial, (), commits=commits)


def stored(desk: Desk) -> dict[tuple[str, int], int]:
    return {name: each.offset for name, each in desk.engine.store.offsets.get(KEY, {}).items()}


@pytest.mark.parametrize("commits", [True, False])
def test_what_is_pending_is_committed_or_dropped_at_the_end(commits: bool) -> None:
    desk = Desk()
    stage(desk, 1, Commit("t", 0, 5), Commit("t", 1, 6))
    assert desk.engine.transactional.is_pending(KEY, "t", 0)
    assert stored(desk) == {}
    for _ in range(2):
        settle(desk, 1, commits=commits)
        assert stored(desk) == ({("t", 0): 5, ("t", 1): 6} if commits else {})
        assert not desk.engine.transactional.is_pending(KEY, "t", 0)


@pytest.mark.parametrize(("before", "after"), [(None, 5), (3, 5), (7, 7)])
def test_what_is_pending_and_held_is_committed_but_never_backwards(
    before: int | None, after: int
) -> None:
    desk = Desk()
    if before is not None:
        desk.engine.offsets.commit(KEY, [Commit("t", 0, before)], OffsetRule.FREE)
    stage(desk, 1, Commit("t", 0, 5))
    transactional = desk.engine.transactional
    assert transactional.is_pending(KEY, "t", 0, beyond=4)
    assert not transactional.is_pending(KEY, "t", 0, beyond=5)
    for _ in range(2):
        transactional.settle(KEY, PRODUCER, 1, [Commit("t", 0, 5)], commits=True)
        assert stored(desk) == {("t", 0): after}
        assert not transactional.is_pending(KEY, "t", 0)
    desk.check_fold()


def test_offsets_that_came_after_their_transaction_was_aborted_are_never_committed() -> None:
    """A coordinator that had lost leadership let them in; the next transaction is not theirs."""
    desk = Desk()
    settle(desk, 1, commits=False)
    stage(desk, 1, Commit("t", 0, 100))
    stage(desk, 2, Commit("t", 1, 6))
    settle(desk, 2, commits=True)
    assert stored(desk) == {("t", 1): 6}
    assert not desk.engine.transactional.is_pending(KEY, "t", 0)


def test_what_hangs_is_dropped_unless_it_was_staged_again() -> None:
    desk = Desk()
    stage(desk, 1, Commit("t", 0, 5), Commit("t", 1, 6))
    noted = list(desk.engine.store.pending[KEY].items())
    stage(desk, 1, Commit("t", 1, 6))
    desk.engine.transactional.drop_hanging(KEY, noted)
    assert not desk.engine.transactional.is_pending(KEY, "t", 0)
    assert desk.engine.transactional.is_pending(KEY, "t", 1)
    settle(desk, 1, commits=True)
    desk.engine.transactional.drop_hanging(KEY, noted)
    assert stored(desk) == {("t", 1): 6}


def test_an_answer_from_before_the_end_lets_nothing_in() -> None:
    desk = Desk()
    offsets = desk.engine.transactional
    ticket = offsets.ticket(KEY, PRODUCER)
    settle(desk, 1, commits=True)
    with pytest.raises(InvalidTransactionState):
        offsets.stage(ticket, 0, 1, [Commit("t", 0, 5)])
    assert not offsets.is_pending(KEY, "t", 0)


def test_a_coordinator_that_leads_again_wants_to_be_asked_again() -> None:
    """Nothing is wrong with the transaction: clients must not be told that there is."""
    desk = Desk()
    offsets = desk.engine.transactional
    ended, ticket = offsets.ticket(KEY, PRODUCER + 1), offsets.ticket(KEY, PRODUCER)
    offsets.drop(ended)
    offsets.resign()
    with pytest.raises(NotCoordinator):
        offsets.stage(ticket, 0, 1, [Commit("t", 0, 5)])
    with pytest.raises(InvalidTransactionState):
        offsets.stage(ended, 0, 1, [Commit("t", 0, 5)])


def stage_much(desk: Desk, count: int, metadata: str) -> None:
    """In requests of 700 partitions, as a client sends them one after the other."""
    commits = [Commit("t", number, 5, metadata=metadata) for number in range(count)]
    for at in range(0, count, 700):
        stage(desk, 1, *commits[at : at + 700])


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("holds", [False, True])
def test_what_is_too_much_for_one_batch_is_settled_in_pieces(commits: bool, holds: bool) -> None:
    """One batch for all of it was refused by the log, for ever: id and group stood still. A
    coordinator dies between any two pieces; nobody who wants stable offsets hears of an old one
    beside a new one."""
    desk = Desk()
    count = 2000
    stage_much(desk, count, "m" * 3900)
    held = [Commit("t", number, 5, metadata="held") for number in range(count)] if holds else []
    desk.largest_batch = 0
    pieces, is_last = 0, False
    while not is_last:
        transactional = desk.engine.transactional
        is_last = transactional.settle(KEY, PRODUCER, 1, held, commits=commits)
        pieces += 1
        desk.fail_over()
        known = stored(desk)
        for number in range(count):
            is_pending = desk.engine.transactional.is_pending(KEY, "t", number)
            assert is_pending != (("t", number) in known) if commits else not known
    assert stored(desk) == ({("t", number): 5 for number in range(count)} if commits else {})
    assert pieces > 1
    assert desk.largest_batch < 2 * 1024 * 1024
    assert not desk.engine.store.pending
    desk.check_fold()


@pytest.mark.parametrize(
    ("count", "metadata", "limits"),
    [(4200, "m" * 4000, GroupLimits()), (4200, "", GroupLimits(pending_max=4000))],
)
def test_more_than_one_transaction_may_commit_is_refused_before_it_is_accepted(
    count: int, metadata: str, limits: GroupLimits
) -> None:
    desk = Desk(limits)
    with pytest.raises(TransactionTooLarge, match="in one transaction, at most"):
        stage_much(desk, count, metadata)
    accepted = len(desk.log)
    again = [Commit("t", number, 6, metadata=metadata) for number in range(700)]
    stage(desk, 1, *again)  # in the place of what is pending already: no more than it was
    assert len(desk.log) == accepted + 700
    while not desk.engine.transactional.settle(KEY, PRODUCER, 1, (), commits=False):
        pass
    stage(desk, 2, *again)  # of the next transaction
