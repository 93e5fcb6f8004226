"""Of two offsets for a partition the one written later stays, whenever transactions end.

An offset is written when it is sent, not when its transaction ends (Kafka compares where the
records of the two commits are in the log). A family whose offsets never go back keeps the highest
instead; an operator's word counts there, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.wire.message import Utf8
from paceline_node.groups.committed_offsets import Commit, OffsetRule
from paceline_node.groups.inspection import Inspection
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.records import Pending, PendingKey, pending_entry
from tests.unit.groups.desk import Desk

KAFKA = GroupKey(Family.KAFKA, "g")
CURSUS = GroupKey(Family.CURSUS, "g", "t")
X, Y = 7, 8


def stage(desk: Desk, producer: int, offset: int, key: GroupKey = KAFKA, serial: int = 1) -> None:
    transactional = desk.engine.transactional
    ticket = transactional.ticket(key, producer)
    transactional.stage(ticket, 0, serial, [Commit("t", 0, offset)])


def settle(
    desk: Desk,
    producer: int,
    held: Sequence[int] = (),
    *,
    key: GroupKey = KAFKA,
    commits: bool = True,
) -> None:
    commits_held = [Commit("t", 0, offset) for offset in held]
    transactional = desk.engine.transactional
    assert transactional.settle(key, producer, 1, commits_held, commits=commits)
    assert not any(
        name.producer_id == producer
        for pendings in desk.engine.store.pending.values()
        for name, _ in pendings.items()
    )


def commit(
    desk: Desk, offset: int, key: GroupKey = KAFKA, rule: OffsetRule = OffsetRule.FREE
) -> None:
    """A member's plain commit, or with the free rule an operator's reset."""
    desk.engine.offsets.commit(key, [Commit("t", 0, offset)], rule)


def delete(desk: Desk, key: GroupKey = KAFKA) -> None:
    is_last = False
    while not is_last:
        kept, is_last = Inspection(desk.engine).delete_piece_of_offsets(key, [("t", 0)])
        assert not kept


def committed(desk: Desk, key: GroupKey = KAFKA) -> int | None:
    found = desk.engine.offsets.fetch(key, "t", 0)
    return None if found is None else found.offset


def go_on(desk: Desk, how: str) -> None:
    """The same coordinator, another one, or another one that finds a compacted log."""
    if how == "compacted":
        desk.compact()
    if how != "same":
        desk.fail_over()


COORDINATORS = pytest.mark.parametrize("how", ["same", "another", "compacted"])


@COORDINATORS
@pytest.mark.parametrize("before", [None, 3])
@pytest.mark.parametrize("commits", [True, False])
def test_a_plain_commit_stays_that_came_behind_those_of_a_transaction(
    how: str, before: int | None, commits: bool
) -> None:
    """It was acknowledged, and undone when the transaction ended."""
    desk = Desk()
    if before is not None:
        commit(desk, before)
    stage(desk, X, 5)
    commit(desk, 100)
    go_on(desk, how)
    settle(desk, X, commits=commits)
    assert committed(desk) == 100
    desk.check_fold()


@COORDINATORS
def test_what_a_transaction_sends_again_is_behind_a_plain_commit(how: str) -> None:
    desk = Desk()
    stage(desk, X, 5)
    commit(desk, 100)
    go_on(desk, how)
    stage(desk, X, 6)
    go_on(desk, how)
    settle(desk, X)
    assert committed(desk) == 6


@COORDINATORS
def test_of_two_transactions_the_one_that_sent_later_stays(how: str) -> None:
    desk = Desk()
    stage(desk, X, 160)
    stage(desk, Y, 190)
    go_on(desk, how)
    settle(desk, Y)
    assert committed(desk) == 190
    go_on(desk, how)
    settle(desk, X)
    assert committed(desk) == 190


@COORDINATORS
def test_of_two_transactions_the_later_one_is_heard_though_it_ends_last(how: str) -> None:
    """The end of the older one is no commit of that time."""
    desk = Desk()
    stage(desk, X, 190)
    stage(desk, Y, 160)
    go_on(desk, how)
    settle(desk, X)
    assert committed(desk) == 190
    go_on(desk, how)
    settle(desk, Y)
    assert committed(desk) == 160


@COORDINATORS
@pytest.mark.parametrize("key", [KAFKA, CURSUS])
@pytest.mark.parametrize("had", [True, False])
def test_a_deleted_offset_does_not_come_back(how: str, key: GroupKey, had: bool) -> None:
    desk = Desk()
    if had:
        commit(desk, 3, key)
    stage(desk, X, 50, key)
    delete(desk, key)
    go_on(desk, how)
    assert not desk.engine.transactional.is_pending(key, "t", 0)
    settle(desk, X, [50] if key is CURSUS else [], key=key)
    assert committed(desk, key) is None
    desk.check_fold()


def test_what_many_transactions_have_pending_is_deleted_in_pieces() -> None:
    desk = Desk()
    commit(desk, 3)
    for producer in range(600):
        stage(desk, producer, producer)
    desk.compact()
    before, pieces, is_last = len(desk.log), [], False
    while not is_last:
        assert committed(desk) == 3, "not deleted before nothing can bring it back"
        _, is_last = Inspection(desk.engine).delete_piece_of_offsets(KAFKA, [("t", 0)])
        pieces.append(len(desk.log) - before)
        before = len(desk.log)
    assert committed(desk) is None
    assert not desk.engine.store.pending
    assert max(pieces) <= 250
    assert sum(pieces) == 601


def test_a_deleted_group_does_not_come_back_with_what_a_coordinator_holds() -> None:
    desk = Desk()
    desk.engine.cursus.register(CURSUS, 1)
    stage(desk, X, 50, CURSUS)
    assert desk.engine.offsets.forget_piece(CURSUS)
    settle(desk, X, [50], key=CURSUS)
    assert committed(desk, CURSUS) is None


# --- offsets that never go back -------------------------------------------------------------------


@COORDINATORS
@pytest.mark.parametrize("plain", [45, 55])
def test_the_highest_stays_of_those_that_never_go_back(how: str, plain: int) -> None:
    desk = Desk()
    commit(desk, 40, CURSUS, OffsetRule.FORWARD)
    stage(desk, X, 50, CURSUS)
    commit(desk, plain, CURSUS, OffsetRule.FORWARD)
    go_on(desk, how)
    settle(desk, X, [50], key=CURSUS)
    assert committed(desk, CURSUS) == max(50, plain)


@COORDINATORS
def test_the_highest_of_two_transactions_stays(how: str) -> None:
    desk = Desk()
    stage(desk, X, 60, CURSUS)
    stage(desk, Y, 50, CURSUS)
    settle(desk, Y, [50], key=CURSUS)
    go_on(desk, how)
    settle(desk, X, [60], key=CURSUS)
    assert committed(desk, CURSUS) == 60


@COORDINATORS
@pytest.mark.parametrize("to", [0, 70])
@pytest.mark.parametrize("ahead", [None, 20])
def test_an_operators_reset_stays(how: str, to: int, ahead: int | None) -> None:
    """``ahead``: a member goes on from there."""
    desk = Desk()
    commit(desk, 40, CURSUS, OffsetRule.FORWARD)
    stage(desk, X, 50, CURSUS)
    commit(desk, to, CURSUS)
    if ahead is not None:
        commit(desk, to + ahead, CURSUS, OffsetRule.FORWARD)
    go_on(desk, how)
    settle(desk, X, [50], key=CURSUS)
    assert committed(desk, CURSUS) == to + (ahead or 0)


def test_a_reset_stays_where_the_end_of_a_transaction_is_told_again() -> None:
    """The transaction's coordinator failed before it noted that all had heard of it."""
    desk = Desk()
    stage(desk, X, 50, CURSUS)
    settle(desk, X, [50], key=CURSUS)
    commit(desk, 0, CURSUS)
    settle(desk, X, [50], key=CURSUS)
    assert committed(desk, CURSUS) == 0


# --- making room, older versions ------------------------------------------------------------------


def test_what_holds_an_older_offset_back_does_not_make_room() -> None:
    """An offset goes for another client's, but not one that keeps an older one out."""
    desk = Desk(GroupLimits(offsets_max=8))
    desk.engine.offsets.commit(KAFKA, [Commit("t", 0, 3)], OffsetRule.FREE, "greedy")
    stage(desk, X, 5)
    commit(desk, 100)
    some = [Commit("t", number, 1) for number in (1, 2, 3)]
    desk.engine.offsets.commit(KAFKA, some[:2], OffsetRule.FREE, "greedy")
    desk.engine.offsets.commit(GroupKey(Family.KAFKA, "others"), some, OffsetRule.FREE)
    modest = GroupKey(Family.KAFKA, "modest")
    desk.engine.offsets.commit(modest, some[:2], OffsetRule.FREE, "modest")
    assert set(desk.engine.store.offsets[KAFKA]) == {("t", 0), ("t", 2)}
    settle(desk, X)
    assert committed(desk) == 100


def test_what_an_older_version_wrote_counts_as_it_did() -> None:
    """Its records say nothing of their order: what is pending is committed when it ends."""
    desk = Desk()
    stage(desk, X, 5)
    commit(desk, 100)
    name = PendingKey(KAFKA, "t", 0, X)
    desk.log.append(pending_entry(name, Pending(6, -1, Utf8(b""), 0, 1)))
    desk.fail_over()
    settle(desk, X)
    assert committed(desk) == 6


# --- against the rule itself ----------------------------------------------------------------------

_STEPS = st.one_of(
    st.tuples(st.just("stage"), st.sampled_from([X, Y]), st.integers(0, 50)),
    st.tuples(st.just("commit"), st.just(0), st.integers(0, 50)),
    st.tuples(st.sampled_from(["delete", "another", "compacted"]), st.just(0), st.just(0)),
    st.tuples(st.sampled_from(["settle", "abort"]), st.sampled_from([X, Y]), st.just(0)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_STEPS, max_size=25))
def test_what_is_committed_is_what_was_written_last(steps: Sequence[tuple[str, int, int]]) -> None:
    desk = Desk()
    standing: tuple[int, int] | None = None
    pending: dict[int, tuple[int, int]] = {}
    for at, (what, producer, offset) in enumerate(steps):
        match what:
            case "stage":
                stage(desk, producer, offset)
                pending[producer] = (at, offset)
            case "commit":
                commit(desk, offset)
                standing = (at, offset)
            case "delete":
                delete(desk)
                standing = None
                pending.clear()
            case "settle" | "abort":
                settle(desk, producer, commits=what == "settle")
                ended = pending.pop(producer, None)
                if what == "settle" and ended is not None:
                    standing = ended if standing is None else max(standing, ended)
            case _:
                go_on(desk, what)
        assert committed(desk) == (None if standing is None else standing[1])
