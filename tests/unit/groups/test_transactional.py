"""Offsets that transactions commit, and those of transactions that ended before they came."""

from __future__ import annotations

import pytest

from paceline.errors import InvalidTransactionState
from paceline_node.groups.offsets import Commit, OffsetRule
from paceline_node.groups.v1_groups import v1_key
from tests.unit.groups.desk import Desk

KEY = v1_key("g")
PRODUCER = 7


def stage(desk: Desk, serial: int, *commits: Commit) -> None:
    offsets = desk.engine.transactional
    offsets.stage(offsets.ticket(KEY, PRODUCER), 0, serial, commits)


def settle(desk: Desk, serial: int, *, commits: bool) -> None:
    desk.engine.transactional.settle(KEY, PRODUCER, serial, (), commits=commits)


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
    """A coordinator that had lost its power let them in; the next transaction is not theirs."""
    desk = Desk()
    settle(desk, 1, commits=False)
    stage(desk, 1, Commit("t", 0, 100))
    stage(desk, 2, Commit("t", 1, 6))
    settle(desk, 2, commits=True)
    assert stored(desk) == {("t", 1): 6}
    assert not desk.engine.transactional.is_pending(KEY, "t", 0)


def test_an_answer_from_before_the_end_lets_nothing_in() -> None:
    desk = Desk()
    offsets = desk.engine.transactional
    ticket = offsets.ticket(KEY, PRODUCER)
    settle(desk, 1, commits=True)
    with pytest.raises(InvalidTransactionState):
        offsets.stage(ticket, 0, 1, [Commit("t", 0, 5)])
    assert not offsets.is_pending(KEY, "t", 0)
