"""Group commits: every way to fail that the broker decides (transactions/DESIGN 5)."""

from __future__ import annotations

from uuid import UUID

import pytest

from paceline.errors import (
    AlreadyCommitted,
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidRequest,
    InvalidTransactionState,
    SinkConflict,
    SinkFenced,
    SinkForgotten,
    TransactionTooLarge,
)
from paceline.wire.peer.names import PartitionName
from paceline_node.transaction_names import Family, TransactionKey
from paceline_node.transactions.limits import TransactionLimits
from paceline_node.transactions.records import KnownTopic, State
from paceline_node.transactions.sinks import Attempt, SinkTransaction
from tests.unit.transactions.desk import P0, P1, Desk


def begin(
    desk: Desk,
    batch: int = 0,
    *,
    run: str = "run-1",
    query: str = "query",
    partition: int = 0,
    number: int = 0,
    sink: str = "sink",
    planned_ms: int = -1,
) -> SinkTransaction:
    attempt = Attempt(sink, query, run, batch, partition, number, planned_ms)
    return desk.engine.sinks.begin(attempt, 60_000, next(desk.spares))


def key_of(opened: SinkTransaction) -> TransactionKey:
    return TransactionKey(Family.SINK, opened.name)


def state_of(desk: Desk, opened: SinkTransaction) -> State | None:
    found = desk.engine.store.transactions.get(key_of(opened))
    return None if found is None else found.state


def commit(desk: Desk, *opened: SinkTransaction, batch: int = 0, run: str = "run-1") -> None:
    desk.engine.sinks.commit("sink", run, batch, [each.name for each in opened])


def test_one_record_batch_decides_all_and_aborts_whatever_is_not_listed() -> None:
    desk = Desk()
    wanted = [begin(desk, partition=n) for n in range(3)]
    twin = begin(desk, partition=0, number=1)
    for each in (*wanted, twin):
        desk.engine.producers.add_partitions(key_of(each), each.identity, [P0])
    before = len(desk.batches)
    commit(desk, *wanted)
    assert len(desk.batches) == before + 1
    assert {state_of(desk, each) for each in wanted} == {State.PREPARE_COMMIT}
    assert state_of(desk, twin) is State.PREPARE_ABORT
    for each in (*wanted, twin):
        assert desk.finish(key_of(each)).partitions == (P0,)
        assert state_of(desk, each) is None
    sink = desk.engine.sinks.state("sink")
    assert sink is not None
    assert sink.last_batch == 0
    desk.check_fold()


def test_half_of_a_batch_is_not_committed_where_its_topic_was_made_anew() -> None:
    """What was written before is gone, and the rest was committed as if it were all."""
    desk = Desk()
    old, new = (KnownTopic("t", UUID(int=number)) for number in (1, 2))
    first, second = begin(desk, partition=0), begin(desk, partition=1)
    for each, topic in ((first, old), (second, new)):
        desk.engine.producers.add_partitions(key_of(each), each.identity, [P0], topics=[topic])
    before = desk.batches[:]
    with pytest.raises(InvalidTransactionState, match=r"batch 0: t was deleted and made anew"):
        commit(desk, first, second)
    with pytest.raises(InvalidTransactionState, match=r": t was deleted and made anew"):
        desk.engine.producers.add_partitions(key_of(first), first.identity, [P1], topics=[new])
    assert desk.batches == before
    again = [begin(desk, partition=n, run="run-2") for n in range(2)]
    for each in again:
        desk.engine.producers.add_partitions(key_of(each), each.identity, [P0], topics=[new])
    commit(desk, *again, run="run-2")
    assert {state_of(desk, each) for each in again} == {State.PREPARE_COMMIT}


def test_identities_of_attempts_differ() -> None:
    desk = Desk()
    found = [begin(desk, number=n % 2) for n in range(6)]
    assert len({each.identity.producer_id for each in found}) == 6
    assert len({each.name for each in found}) == 6


def test_a_commit_with_one_that_is_not_open_changes_nothing() -> None:
    desk = Desk()
    first, second = begin(desk, partition=0), begin(desk, partition=1)
    other = begin(desk, batch=1)
    desk.engine.sinks.abort("sink", 0, [second.name])
    before = desk.batches[:]
    for listed in (
        (first, second),
        (first, other),
        (first, SinkTransaction("no such", first.identity)),
    ):
        with pytest.raises(InvalidTransactionState):
            commit(desk, *listed)
    with pytest.raises(InvalidTransactionState):
        commit(desk, first, run="a run never seen")
    with pytest.raises(InvalidTransactionState):
        desk.engine.sinks.commit("no such sink", "run-1", 0, [])
    assert desk.batches == before


def test_a_repeated_commit_is_told_so_and_what_is_open_aborts() -> None:
    desk = Desk()
    first = begin(desk)
    commit(desk, first)
    with pytest.raises(AlreadyCommitted):
        commit(desk, first)
    with pytest.raises(AlreadyCommitted):
        begin(desk, batch=0)
    late = begin(desk, batch=1)
    commit(desk, late, batch=1)
    with pytest.raises(AlreadyCommitted):
        commit(desk, first)
    assert state_of(desk, late) is State.PREPARE_COMMIT


def test_a_zombie_after_the_commit_can_neither_write_nor_begin() -> None:
    desk = Desk()
    winner, zombie = begin(desk, number=0), begin(desk, number=1)
    for each in (winner, zombie):
        desk.engine.producers.add_partitions(key_of(each), each.identity, [P0])
    commit(desk, winner)
    for each in (winner, zombie):
        desk.finish(key_of(each))
        with pytest.raises(InvalidTransactionState):
            desk.engine.producers.add_partitions(key_of(each), each.identity, [P0])
        with pytest.raises(InvalidTransactionState):
            desk.engine.producers.verify(key_of(each), each.identity, P0)


def test_a_later_run_fences_the_former_and_aborts_what_it_has_open() -> None:
    desk = Desk()
    old = begin(desk, batch=3)
    new = begin(desk, batch=3, run="run-2")
    assert state_of(desk, old) is State.PREPARE_ABORT
    for call in (
        lambda: begin(desk, batch=4),
        lambda: desk.engine.sinks.touch("sink", "run-1", 3),
        lambda: commit(desk, old, batch=3),
    ):
        with pytest.raises(SinkFenced):
            call()
    assert state_of(desk, new) is State.ONGOING
    commit(desk, new, batch=3, run="run-2")
    desk.check_fold()


def test_fenced_runs_are_forgotten_after_a_week() -> None:
    desk = Desk(TransactionLimits(fenced_runs_kept_s=100))
    begin(desk, run="a")
    begin(desk, run="b")
    desk.advance(200)
    begin(desk, run="c")
    sink = desk.engine.sinks.state("sink")
    assert sink is not None
    assert [each.run for each in sink.fenced] == ["b"]


def test_another_query_under_the_same_name_is_refused_once_batches_are_committed() -> None:
    desk = Desk()
    first = begin(desk, query="q1")
    begin(desk, query="q2", run="run-1")
    first = begin(desk, query="q1")
    commit(desk, first)
    with pytest.raises(SinkConflict):
        begin(desk, batch=1, query="q3", run="run-9")
    begin(desk, batch=1, query="", run="run-1")


def test_touches_keep_finished_tasks_open_and_silence_does_not() -> None:
    desk = Desk()
    finished, running = begin(desk, partition=0), begin(desk, partition=1)
    other = begin(desk, batch=1)
    for _ in range(5):
        desk.advance(30)
        desk.engine.sinks.touch("sink", "run-1", 0)
    assert state_of(desk, other) is State.PREPARE_ABORT
    desk.fail_over()
    desk.advance(59)
    assert state_of(desk, finished) is state_of(desk, running) is State.ONGOING
    desk.advance(2)
    assert state_of(desk, finished) is State.PREPARE_ABORT
    with pytest.raises(InvalidTransactionState):
        commit(desk, finished, running)
    assert desk.engine.sinks.touch("no such sink", "r", 0) == 0


def test_a_task_that_begins_when_its_driver_has_given_the_batch_up_is_refused() -> None:
    """Nobody would have ended what it opened: readers waited for its time-out."""
    desk = Desk()
    commit(desk, begin(desk))
    first, second = begin(desk, 1), begin(desk, 1, number=1)
    desk.engine.sinks.abort("sink", 1, [first.name])  # a task's own: others go on
    assert state_of(desk, begin(desk, 1, number=2)) is State.ONGOING
    desk.engine.sinks.abort("sink", 1, [], run="run-1")
    assert state_of(desk, second) is State.PREPARE_ABORT
    with pytest.raises(SinkFenced, match="its driver"):
        begin(desk, 1, number=3)
    desk.engine.sinks.abort("sink", 1, [], run="run-1")
    again = begin(desk, 1, run="run-2")
    with pytest.raises(SinkFenced, match="run-2"):
        begin(desk, 1, number=4)
    desk.engine.sinks.abort("sink", 1, [], run="run-1")  # late: not of the run that writes now
    commit(desk, again, batch=1, run="run-2")
    desk.check_fold()


def test_an_abort_is_never_an_error_and_leaves_the_decided_alone() -> None:
    desk = Desk()
    opened, committed = begin(desk, batch=1), begin(desk)
    commit(desk, committed)
    stranger = begin(desk, sink="other")
    desk.engine.sinks.abort("sink", 1, [opened.name, opened.name, "unknown", stranger.name])
    desk.engine.sinks.abort("sink", 0, [committed.name])
    desk.engine.sinks.abort("no such sink", 0, ["x"])
    assert state_of(desk, opened) is State.PREPARE_ABORT
    assert state_of(desk, committed) is State.PREPARE_COMMIT
    assert state_of(desk, stranger) is State.ONGOING


def test_a_commit_is_bounded() -> None:
    desk = Desk(TransactionLimits(group_commit_max=1))
    opened = [begin(desk, partition=n) for n in range(2)]
    with pytest.raises(TransactionTooLarge):
        commit(desk, *opened)


def test_a_sink_is_forgotten_long_after_its_last_change() -> None:
    desk = Desk(TransactionLimits(sinks_kept_s=100, expiry_check_s=10))
    commit(desk, first := begin(desk))
    desk.finish(key_of(first))
    desk.advance(90)
    assert desk.engine.sinks.state("sink") is not None
    desk.advance(30)
    assert desk.engine.sinks.state("sink") is None
    desk.check_fold()


def test_a_batch_that_may_have_been_committed_and_forgotten_is_not_taken_for_new() -> None:
    """A query that was stopped for long wrote its last batch again."""
    desk = Desk(TransactionLimits(sinks_kept_s=100, expiry_check_s=10))
    planned_ms = desk.wall_ms()
    commit(desk, first := begin(desk, planned_ms=planned_ms))
    desk.finish(key_of(first))
    desk.advance(80)
    with pytest.raises(AlreadyCommitted):
        begin(desk, run="run-2", planned_ms=planned_ms)
    begin(desk, sink="another", run="run-2", planned_ms=planned_ms)  # never committed then
    desk.advance(40)
    assert desk.engine.sinks.state("sink") is None
    with pytest.raises(SinkForgotten, match=r"batch 0 was planned 120 s ago: .*_kept_ms is 100000"):
        begin(desk, run="run-2", planned_ms=planned_ms)
    begin(desk, run="run-2", batch=7, planned_ms=desk.wall_ms())
    desk.check_fold()


def test_a_batch_that_was_planned_anew_is_not_taken_for_the_one_that_is_committed() -> None:
    """A checkpoint was put back from a backup, or copied: a query left out what it read then."""
    desk = Desk()
    now_ms = desk.wall_ms()
    commit(desk, begin(desk, planned_ms=now_ms))
    commit(desk, begin(desk, batch=1, planned_ms=now_ms + 1), batch=1)
    with pytest.raises(AlreadyCommitted):
        begin(desk, batch=1, run="run-2", planned_ms=now_ms + 1)
    with pytest.raises(AlreadyCommitted):  # nobody can know
        begin(desk, batch=1, run="run-2")
    for batch, planned_ms in ((1, now_ms + 2), (0, now_ms), (0, -1)):
        with pytest.raises(SinkConflict, match=r"batch 1, and batch \d was planned anew"):
            begin(desk, batch, run="run-2", planned_ms=planned_ms)
    begin(desk, batch=2, run="run-2", planned_ms=now_ms + 3)
    with pytest.raises(AlreadyCommitted):  # a task of the run before: it has nothing to write
        begin(desk, batch=0, run="run-1", planned_ms=now_ms)
    with pytest.raises(SinkConflict):
        begin(desk, batch=1, run="run-2", planned_ms=now_ms + 3)
    desk.check_fold()


def test_an_older_version_of_a_named_write_is_as_it_was() -> None:
    desk = Desk()
    commit(desk, begin(desk, batch=3, query=""), batch=3)
    for batch in (2, 3):
        with pytest.raises(AlreadyCommitted):
            begin(desk, batch, query="", run="run-2")
    with pytest.raises(SinkConflict):
        begin(desk, batch=2, query="", run="run-2", planned_ms=desk.wall_ms())


# --- more than fits in one batch ------------------------------------------------------------------

WIDE = [PartitionName("t" * 249, number) for number in range(500)]


def wide(desk: Desk, count: int) -> list[SinkTransaction]:
    """Attempts of many partitions each: 160 of them are more than one batch may hold."""
    opened = [begin(desk, partition=number) for number in range(count)]
    for each in opened:
        desk.engine.producers.add_partitions(key_of(each), each.identity, WIDE)
    return opened


def test_a_commit_of_any_size_is_decided_by_one_record() -> None:
    desk = Desk()
    opened = wide(desk, 160)
    commit(desk, *opened[:150])
    assert {state_of(desk, each) for each in opened[:150]} == {State.PREPARE_COMMIT}
    assert {state_of(desk, each) for each in opened[150:]} == {State.PREPARE_ABORT}
    assert len(desk.engine.endings()) == 160
    desk.check_fold()
    with pytest.raises(AlreadyCommitted):
        commit(desk, *opened[:150])


@pytest.mark.parametrize("written", [1, 2, 4])
@pytest.mark.parametrize("fails_over", [False, True])
def test_whoever_comes_next_goes_on_with_it(written: int, fails_over: bool) -> None:
    """The coordinator cannot write any more in the middle of it: all are committed, all the same,
    or aborted, as decided, and nobody can write in them meanwhile."""
    desk = Desk()
    opened = wide(desk, 40)
    desk.writes_left = written
    with pytest.raises(CoordinatorNotAvailable):
        commit(desk, *opened[:35])
    desk.writes_left = -1
    for each in opened:
        with pytest.raises((InvalidTransactionState, ConcurrentTransactions)):
            desk.engine.producers.verify(key_of(each), each.identity, WIDE[0])
    if fails_over:
        desk.fail_over()
    else:
        with pytest.raises(AlreadyCommitted):
            commit(desk, *opened[:35])
    assert {state_of(desk, each) for each in opened[:35]} == {State.PREPARE_COMMIT}
    assert {state_of(desk, each) for each in opened[35:]} == {State.PREPARE_ABORT}
    begin(desk, batch=1)
    desk.check_fold()


def test_a_time_out_takes_nothing_back() -> None:
    """Nobody repeats the commit of which a part was written down."""
    desk = Desk()
    opened = wide(desk, 40)
    desk.writes_left = 1
    with pytest.raises(CoordinatorNotAvailable):
        commit(desk, *opened[:35])
    desk.writes_left = -1
    desk.advance(61)
    assert {state_of(desk, each) for each in opened[:35]} == {State.PREPARE_COMMIT}
    assert {state_of(desk, each) for each in opened[35:]} == {State.PREPARE_ABORT}


def test_a_run_that_left_much_open_is_fenced_in_pieces() -> None:
    desk = Desk()
    opened = wide(desk, 160)
    begin(desk, run="run-2")
    assert {state_of(desk, each) for each in opened} == {State.PREPARE_ABORT}
    desk.check_fold()


def test_sinks_that_never_committed_make_room_for_new_ones() -> None:
    desk = Desk(TransactionLimits(ids_max=1))
    opened = begin(desk, sink="greedy")
    desk.advance(59)
    with pytest.raises(TransactionTooLarge, match="sinks already"):
        begin(desk, sink="mine")
    desk.engine.sinks.abort("greedy", 0, [opened.name])
    desk.finish(TransactionKey(Family.SINK, opened.name))
    desk.advance(2)
    begin(desk, sink="mine")
    assert set(desk.engine.store.sinks) == {"mine"}


@pytest.mark.parametrize("name", ["sink", "query", "run"])
def test_names_are_bounded(name: str) -> None:
    desk = Desk()
    with pytest.raises(InvalidRequest, match=f"a {name} of 513 bytes"):
        begin(desk, **{name: "x" * 513})
    begin(desk, **{name: "x" * 512})
