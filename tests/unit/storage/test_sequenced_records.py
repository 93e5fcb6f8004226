"""Producers that number their records, against a plain model: a set of numbers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import Throttled
from paceline.wire.batch import BatchExtension, PayloadKind, ProducerNamespace, read_header
from paceline_node.sequence_numbers import (
    Number,
    Rule,
    SequenceGap,
    StaleProducerEpoch,
    producer_key,
)
from paceline_node.storage.sequenced_records import (
    MAX_RUNS,
    STREAM_EPOCH,
    SequencedState,
    after,
    contains,
    from_row,
    select_new,
    silent,
    stream_key,
    table_key,
    to_row,
    with_run,
)
from tests.unit.storage.world import batch

KEY = producer_key(b"py-1")
HEADER = read_header(batch(2, timestamp=77))


def number(sequence: int, epoch: int = 1, producer: str = "py-1") -> Number:
    return Number(producer_key(producer.encode()), producer, epoch, sequence)


def state(*runs: tuple[int, int], epoch: int = 1) -> SequencedState:
    return SequencedState(epoch, runs, 9, 5)


def known(found: SequencedState | None):  # type: ignore[no-untyped-def]
    return {table_key(KEY): found}.get


NOTHING = known(None)
SEEN = known(state((1, 3), (6, 6)))

SELECTED = [
    ("strict: all new", [1, 2, 3], NOTHING, Rule.STRICT, [0, 1, 2]),
    ("strict: a batch again", [1, 2, 3], known(state((1, 3))), Rule.STRICT, []),
    ("strict: the end is new", [2, 3, 4], known(state((1, 3))), Rule.STRICT, [2]),
    ("strict: twice in one request", [1, 1, 2], NOTHING, Rule.STRICT, [0, 2]),
    ("window: any beginning", [7, 9], NOTHING, Rule.WINDOW, [0, 1]),
    ("window: into a gap", [3, 4, 5, 6, 7], SEEN, Rule.WINDOW, [1, 2, 4]),
    ("window: twice in one request", [9, 9, 8], SEEN, Rule.WINDOW, [0, 2]),
]


@pytest.mark.parametrize(
    ("name", "sequences", "lookup", "rule", "new"), SELECTED, ids=[case[0] for case in SELECTED]
)
def test_selected(name, sequences, lookup, rule, new) -> None:  # type: ignore[no-untyped-def]
    assert select_new([number(each) for each in sequences], lookup, rule) == new


@pytest.mark.parametrize("rule", Rule)
def test_epochs(rule: Rule) -> None:
    assert select_new([number(1, epoch=2)], SEEN, rule) == [0]
    with pytest.raises(StaleProducerEpoch) as caught:
        select_new([None, number(7, epoch=0)], SEEN, rule)
    assert (caught.value.current, caught.value.number.epoch) == (1, 0)
    with pytest.raises(StaleProducerEpoch):  # within one request
        select_new([number(1, epoch=3), number(1, epoch=2)], NOTHING, rule)


@pytest.mark.parametrize(
    ("sequences", "lookup", "expected"),
    [
        ([2], NOTHING, 1),
        ([4, 6], known(state((1, 3))), 5),
        ([8], SEEN, 7),
        ([4], SEEN, 7),  # in a gap, so never stored: no duplicate
    ],
)
def test_strict_refuses_gaps(sequences, lookup, expected) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SequenceGap) as caught:
        select_new([number(each) for each in sequences], lookup, Rule.STRICT)
    assert caught.value.expected == expected


def test_a_new_epoch_begins_at_1_where_it_is_strict() -> None:
    with pytest.raises(SequenceGap):
        select_new([number(2, epoch=2)], SEEN, Rule.STRICT)
    assert select_new([number(2, epoch=2)], SEEN, Rule.WINDOW) == [0]


def test_records_without_a_number_are_always_stored() -> None:
    assert select_new([None, number(1), None, number(1)], NOTHING, Rule.WINDOW) == [0, 1, 2]


def test_producers_do_not_mix() -> None:
    wanted = [number(1), number(1, producer="other"), number(2), number(9, producer="other")]
    assert select_new(wanted, SEEN, Rule.WINDOW) == [1, 3]


def test_too_many_gaps_are_refused_for_now() -> None:
    full = known(state(*[(2 * each, 2 * each) for each in range(1, MAX_RUNS + 1)]))
    with pytest.raises(Throttled, match="256 gaps are open"):
        select_new([number(1000)], full, Rule.WINDOW)
    assert select_new([number(3)], full, Rule.WINDOW) == [0]  # closing one is welcome
    assert Throttled("").retriable


runs = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 4)), max_size=25)


@given(runs)
@settings(deadline=None)
def test_runs_are_the_set_of_their_numbers(added: list[tuple[int, int]]) -> None:
    found: tuple[tuple[int, int], ...] = ()
    model: set[int] = set()
    for first, more in added:
        found = with_run(found, first, first + more)
        model |= set(range(first, first + more + 1))
        assert {n for first, last in found for n in range(first, last + 1)} == model
        assert all(a[1] + 1 < b[0] for a, b in itertools.pairwise(found))
        assert all(contains(found, n) == (n in model) for n in range(50))


def extension(first: int, last: int, epoch: int = 1) -> BatchExtension:
    return BatchExtension(
        PayloadKind.RECORDS, ProducerNamespace.CURSUS, KEY, epoch, first, last, 0, 0
    )


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 30), st.integers(0, 4)), max_size=30))
@settings(deadline=None)
def test_what_a_leader_stores_is_stored_once(sent: list[tuple[int, int, int]]) -> None:
    """Requests in any order, any epoch: the log holds no number of an epoch twice, and a replica
    that is told batch by batch knows exactly those numbers."""
    log: list[tuple[int, int]] = []
    replica: SequencedState | None = None
    for epoch, first, more in sent:
        wanted = [number(each, epoch) for each in range(first, first + more + 1)]
        try:
            new = select_new(wanted, known(replica), Rule.WINDOW)
        except StaleProducerEpoch:
            assert epoch < max(each[0] for each in log)
            continue
        for index in new:
            log.append((epoch, wanted[index].sequence))
            told = extension(wanted[index].sequence, wanted[index].sequence, epoch)
            replica = after(replica, HEADER, told, len(log))
    assert len(log) == len(set(log))
    if replica is not None:
        stored = {sequence for epoch, sequence in log if epoch == replica.epoch}
        assert {n for first, last in replica.runs for n in range(first, last + 1)} == stored
        assert from_row(to_row(replica)) == replica


def test_a_replica_notes_offset_and_time() -> None:
    first = after(None, HEADER, extension(1, 2), 10)
    assert first == SequencedState(1, ((1, 2),), 11, 77)
    assert after(first, HEADER, extension(3, 4), 12) == SequencedState(1, ((1, 4),), 13, 77)
    assert after(first, HEADER, extension(1, 2, epoch=2), 12).runs == ((1, 2),)


@pytest.mark.parametrize("row", [[1, 2, 3], [1, 2, 3, []], [1, 2, 3, [[1]]], [1, 2, 3, [["a", 2]]]])
def test_bad_rows_are_refused(row: list[object]) -> None:
    with pytest.raises((ValueError, TypeError)):
        from_row(row)


def test_event_streams_are_never_silent() -> None:
    """A forgotten version would be given again."""
    stream = SequencedState(STREAM_EPOCH, ((1, 6),), 5, 1_000)
    producer = SequencedState(1, ((1, 6),), 5, 1_000)
    states = [(table_key(stream_key(b"k")), stream), (table_key(producer_key(b"k")), producer)]
    assert list(silent(states, 2_000)) == [table_key(producer_key(b"k"))]
