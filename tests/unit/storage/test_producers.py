"""The producer table against the cases of replication/DESIGN 4.4, and against a plain model."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import (
    CorruptMessage,
    DuplicateSequence,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    PacelineError,
)
from paceline.wire.batch import BatchHeader, read_header
from paceline.wire.end_marker import EndMarker, build_end_marker
from paceline_node.storage import producer_file
from paceline_node.storage.producer_state import Duplicate
from paceline_node.storage.producers import ProducerTable
from tests.unit.storage.world import batch

LAST = 2**31 - 1


def header(first: int, count: int = 1, *, epoch: int = 0, producer: int = 7) -> BatchHeader:
    return read_header(batch(count, producer=(producer, epoch, first)))


def table_of(*batches: BatchHeader) -> ProducerTable:
    """A table that has seen these batches, at offsets in a row from 0."""
    table = ProducerTable()
    offset = 0
    for each in batches:
        table.update(each, offset)
        offset += each.last_offset_delta + 1
    return table


SIX = [header(2 * number, 2) for number in range(6)]  # sequences 0..11 at offsets 0..11
NEAR_WRAP = [header(LAST - 1, 2)]  # 2147483646..2147483647

CASES: list[tuple[str, list[BatchHeader], BatchHeader, object]] = [
    ("not idempotent", SIX, header(-1, producer=-1), None),
    ("next in order", SIX, header(12), None),
    ("older epoch", [header(0, epoch=3)], header(0, epoch=2), InvalidProducerEpoch),
    ("older epoch, even if equal to a known batch", [header(0, epoch=0), header(0, epoch=1)],
     header(0, epoch=0), InvalidProducerEpoch),
    ("newest batch again", SIX, header(10, 2), Duplicate(10, 11)),
    ("oldest batch remembered", SIX, header(2, 2), Duplicate(2, 3)),
    ("a batch that is forgotten", SIX, header(0, 2), DuplicateSequence),
    ("part of a known batch", SIX, header(10, 1), DuplicateSequence),
    ("overlapping the end", SIX, header(11, 2), OutOfOrderSequence),
    ("overlapping the begin", SIX[1:], header(1, 2), OutOfOrderSequence),
    ("never seen, before the first", SIX[1:], header(0, 2), OutOfOrderSequence),
    ("never seen, before a gap", [header(0), header(5)], header(0), Duplicate(0, 0)),
    ("never seen, within a gap", [header(0), header(5)], header(3), OutOfOrderSequence),
    ("long before the first", [header(2**30 + 9)], header(8), OutOfOrderSequence),
    ("a gap", SIX, header(13), OutOfOrderSequence),
    ("new epoch from 0", SIX, header(0, epoch=1), None),
    ("new epoch not from 0", SIX, header(12, epoch=1), OutOfOrderSequence),
    ("unknown producer, any sequence", SIX, header(99, producer=8), None),
    ("wrap to 0", NEAR_WRAP, header(0), None),
    ("wrap is not 1", NEAR_WRAP, header(1), OutOfOrderSequence),
    ("before the wrap again", [*NEAR_WRAP, header(0)], header(LAST - 1, 2), Duplicate(0, 1)),
    ("before the wrap, not a batch", [*NEAR_WRAP, header(0)], header(LAST), DuplicateSequence),
    ("before the wrap, never seen", [*NEAR_WRAP, header(0)], header(LAST - 2), OutOfOrderSequence),
    ("a batch over the wrap", [header(LAST, 3)], header(2), None),
    ("a batch over the wrap again", [header(LAST, 3)], header(LAST, 3), Duplicate(0, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "seen", "new", "outcome"), CASES, ids=[case[0] for case in CASES])
def test_check(name: str, seen: list[BatchHeader], new: BatchHeader, outcome: object) -> None:
    table = table_of(*seen)
    if isinstance(outcome, type) and issubclass(outcome, PacelineError):
        with pytest.raises(outcome):
            table.check(new)
    else:
        assert table.check(new) == outcome
    assert table == table_of(*seen)  # a check changes nothing


def marker(epoch: int, producer: int = 7) -> tuple[BatchHeader, EndMarker]:
    told = EndMarker(commits=False, coordinator_epoch=1)
    data = build_end_marker(told, producer_id=producer, producer_epoch=epoch, timestamp_ms=1)
    return read_header(data), told


def test_after_a_marker_that_raises_the_epoch_sequences_begin_at_0() -> None:
    """Any other first one would leave a gap, and its retry would be taken for stored."""
    table = table_of(header(0), header(1))
    table.update_marker(*marker(epoch=1), 2)
    for first in (1, 2, 5):
        with pytest.raises(OutOfOrderSequence):
            table.check(header(first, epoch=1))
    assert table.check(header(0, epoch=1)) is None
    with pytest.raises(InvalidProducerEpoch):
        table.check(header(2))


def test_a_marker_alone_makes_a_producer_known_that_begins_at_0() -> None:
    table = ProducerTable()
    table.update_marker(*marker(epoch=3), 0)
    with pytest.raises(OutOfOrderSequence):
        table.check(header(4, epoch=3))
    assert table.check(header(0, epoch=3)) is None


def test_a_marker_of_the_same_epoch_keeps_what_is_known() -> None:
    table = table_of(*SIX)
    table.update_marker(*marker(epoch=0), 12)
    with pytest.raises(DuplicateSequence):
        table.check(header(0, 2))
    assert table.check(header(12)) is None


def test_a_snapshot_without_the_count_vouches_for_its_batches_only() -> None:
    table = table_of(*SIX)
    rows, aborted = msgpack.unpackb(table.snapshot())
    older = msgpack.packb([[row[:-1] for row in rows], aborted])
    producer_file.restore(table, older, 12)
    with pytest.raises(OutOfOrderSequence):
        table.check(header(0, 2))
    with pytest.raises(DuplicateSequence):
        table.check(header(2, 1))
    table.update(header(12), 12)
    with pytest.raises(DuplicateSequence):
        table.check(header(2, 1))


def test_followers_never_refuse() -> None:
    table = table_of(header(0), header(50), header(3, epoch=5))
    assert table.check(header(3, epoch=5)) == Duplicate(2, 2)


def test_a_control_batch_is_nobodys_sequence() -> None:
    table = ProducerTable()
    marker = header(0)._replace(base_sequence=-1)
    table.update(marker, 0)
    assert len(table) == 0
    assert table.check(marker) is None


def test_snapshots_restore_equal_tables() -> None:
    table = table_of(*SIX, header(5, producer=1), header(0, producer=2**62))
    other = ProducerTable()
    producer_file.restore(other, table.snapshot(), 99)
    assert other == table
    assert other.snapshot() == table.snapshot()
    assert other.check(header(10, 2)) == Duplicate(10, 11)


@pytest.mark.parametrize(
    "data", [b"", b"\x91", b"\xc0", b"\x91\x93\x00\x01\x02", b"\x91\x95\x00\xc4\x01x\x00\x00\x90"]
)
def test_bad_snapshots_are_refused(data: bytes) -> None:
    table = table_of(*SIX)
    with pytest.raises(CorruptMessage):
        producer_file.restore(table, data, 5)
    assert table == table_of(*SIX)


steps = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 20), st.integers(1, 3)),
    max_size=40,
)


@given(steps, st.data())
def test_truncation_gives_the_table_of_the_shorter_log(
    drawn: list[tuple[int, int, int, int]], data: st.DataObject
) -> None:
    """Through the journal, through a mark, or by replay: always as if nothing more had come."""
    limit = data.draw(st.sampled_from([2, 5, 8192]))
    log = [header(first, count, epoch=epoch, producer=who) for who, epoch, first, count in drawn]
    table = ProducerTable(journal_batches=limit)
    starts, offset = [], 0
    for each in log:
        if data.draw(st.integers(0, 5)) == 0:
            table.mark(table.freeze(offset))
        starts.append(offset)
        table.update(each, offset)
        offset += each.last_offset_delta + 1
    for _ in range(3):
        cut = data.draw(st.sampled_from([*starts, offset]))
        replay_from = table.truncate(cut)
        assert replay_from <= cut
        for start, each in zip(starts, log, strict=True):
            if replay_from <= start < cut:
                table.update(each, start)
        kept = [each for start, each in zip(starts, log, strict=True) if start < cut]
        log, starts, offset = kept, starts[: len(kept)], cut
        assert table == table_of(*log)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4)), max_size=60))
def test_what_was_accepted_is_in_order_and_once(attempts: list[tuple[int, int]]) -> None:
    """Random retries, gaps and overlaps of one producer: the log never repeats or skips, and what
    is called a duplicate is in it."""
    table = ProducerTable()
    log: list[int] = []
    for first, count in attempts:
        new = header(first, count)
        numbers = list(range(first, first + count))
        try:
            outcome = table.check(new)
        except OutOfOrderSequence:
            continue
        except DuplicateSequence:
            assert set(numbers) <= set(log)
            continue
        if outcome is None:
            table.update(new, len(log))
            log += numbers
        else:
            assert log[outcome.base_offset : outcome.last_offset + 1] == numbers
    assert log == list(range(log[0], log[0] + len(log))) if log else True
