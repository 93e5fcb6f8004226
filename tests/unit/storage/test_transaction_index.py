"""Transactions in one log: what is stable, what was aborted, through truncations and snapshots."""

from __future__ import annotations

import random

import pytest

from paceline.errors import CorruptMessage
from paceline.wire.batch import (
    CONTROL,
    TRANSACTIONAL,
    ProducerNamespace,
    build_batch,
    read_header,
)
from paceline.wire.end_marker import (
    EndMarker,
    build_end_marker,
    is_end_marker,
    read_end_marker,
)
from paceline.wire.records import Record
from paceline_node.storage import producer_file
from paceline_node.storage.producers import ProducerTable, idle_before, read_detail
from paceline_node.storage.sequenced_batches import expire_batch
from paceline_node.storage.transaction_index import (
    AbortedRanges,
    AbortedTransaction,
    TransactionIndex,
    is_aborted,
)
from tests.unit.storage import world


def data(producer: int, sequence: int, count: int = 1, *, epoch: int = 0) -> bytearray:
    return build_batch(
        [Record(-1, 5, None, b"x")] * count,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        flags=TRANSACTIONAL,
    )


def marker(producer: int, *, commits: bool, epoch: int = 0, coordinator: int = 3) -> bytearray:
    return build_end_marker(
        EndMarker(commits, coordinator),
        producer_id=producer,
        producer_epoch=epoch,
        timestamp_ms=5,
    )


def plain(count: int = 1) -> bytearray:
    return build_batch([Record(-1, 5, None, b"x")] * count)


def key_of_id(producer_id: int) -> tuple[int, bytes]:
    return (0, producer_id.to_bytes(16, "big"))


class FoldedLog:
    """Batches at offsets in a row, and the table that they make."""

    def __init__(self, *batches: bytearray, journal: int = 8192) -> None:
        self.table = ProducerTable(journal_batches=journal)
        self.batches: list[tuple[int, bytearray]] = []
        self.end = 0
        for each in batches:
            self.append(each)

    def append(self, batch: bytearray) -> None:
        self._note(batch, self.end)
        self.batches.append((self.end, batch))
        self.end += read_header(batch).last_offset_delta + 1

    def _note(self, batch: bytearray, offset: int) -> None:
        header = read_header(batch)
        self.table.note(header, read_detail(batch, 0, header), offset)

    def truncate(self, offset: int) -> None:
        self.batches = [each for each in self.batches if each[0] < offset]
        self.end = offset
        replay_from = self.table.truncate(offset)
        for at, batch in self.batches:
            if at >= replay_from:
                self._note(batch, at)

    def anew(self) -> ProducerTable:
        """The same log, folded from its start."""
        return FoldedLog(*(batch for _, batch in self.batches)).table


def test_a_marker_carries_kafkas_bytes() -> None:
    made = marker(9, commits=True, epoch=2, coordinator=7)
    header = read_header(made)
    assert (header.attributes, header.base_sequence, header.record_count) == (0x30, -1, 1)
    assert (header.producer_id, header.producer_epoch) == (9, 2)
    # length, attributes, deltas, then key and value, each behind its length, and no headers.
    assert made[61:].hex() == "2000000008000000010c00000000000700"
    assert is_end_marker(header)
    assert read_end_marker(made) == EndMarker(True, 7)
    assert not is_end_marker(read_header(data(9, 0)))


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b"\0" * 6), (b"\0\0\0\2", b"\0" * 6), (b"\0\1\0\1", b"\0" * 6), (b"\0" * 4, b"\0")],
)
def test_a_control_batch_that_is_no_marker_is_refused(key: bytes | None, value: bytes) -> None:
    flags = CONTROL | TRANSACTIONAL
    bad = build_batch([Record(-1, 5, key, value)], flags=flags, producer_id=1, producer_epoch=0)
    with pytest.raises(CorruptMessage):
        read_end_marker(bad)


def test_nothing_behind_an_open_transaction_is_stable() -> None:
    log = FoldedLog(plain(3), data(1, 0), plain(), data(2, 0))
    index = log.table.transactions
    assert index.first_unstable(6) == 3
    log.append(marker(1, commits=True))  # offset 6
    assert index.first_unstable(6) == 3, "the marker itself is not committed yet"
    assert index.first_unstable(7) == 5
    log.append(marker(2, commits=False))
    assert index.first_unstable(8) == 8
    assert index.aborted == [AbortedTransaction(2, 5, 7)]


def test_a_marker_without_a_transaction_changes_no_view() -> None:
    log = FoldedLog(plain(), marker(1, commits=False))
    assert log.table.transactions.first_unstable(2) == 2
    assert log.table.transactions.aborted == []


def test_a_fencing_marker_raises_the_epoch() -> None:
    log = FoldedLog(data(1, 0), marker(1, commits=False, epoch=1, coordinator=4))
    state = log.table.producer(1)
    assert state is not None
    assert (state.epoch, state.window, state.coordinator_epoch) == (1, (), 4)
    assert not state.is_open


def test_aborted_transactions_of_a_range() -> None:
    log = FoldedLog(
        data(1, 0),  # 0
        data(2, 0),  # 1
        marker(2, commits=False),  # 2
        plain(),  # 3
        marker(1, commits=False),  # 4
        data(2, 1),  # 5
        marker(2, commits=False),  # 6
    )
    index = log.table.transactions
    first, second, third = (
        AbortedTransaction(2, 1, 2),
        AbortedTransaction(1, 0, 4),
        AbortedTransaction(2, 5, 6),
    )
    assert index.aborted_in(0, 7) == [first, second, third]
    assert index.aborted_in(3, 4) == [second]
    assert index.aborted_in(0, 1) == [second]
    assert index.aborted_in(5, 6) == [third]
    index.forget_below(3)
    assert index.aborted_in(0, 7) == [second, third]


def test_finding_those_of_a_range_among_many() -> None:
    rng = random.Random(5)
    index = TransactionIndex()
    entries = []
    for number in range(300):
        marker_at = number * 10
        entry = AbortedTransaction(number, max(0, marker_at - rng.randrange(1, 200)), marker_at)
        entries.append(entry)
        index.ended(number, entry.first_offset, marker_at, commits=False)
    for _ in range(200):
        start = rng.randrange(3000)
        end = start + rng.randrange(1, 300)
        expected = [e for e in entries if e.last_offset >= start and e.first_offset < end]
        assert index.aborted_in(start, end) == expected


def test_many_ranges_are_found_by_producer() -> None:
    rng = random.Random(6)
    entries = []
    begun = dict.fromkeys(range(5), 0)
    for marker_at in range(10, 2000, 10):
        producer = rng.randrange(5)
        entries.append(AbortedTransaction(producer, begun[producer] + 3, marker_at))
        begun[producer] = marker_at
    ranges = AbortedRanges(entries)
    for offset in range(2010):
        for producer in range(6):
            header = read_header(data(producer, 0))._replace(base_offset=offset)
            assert ranges.contains(header) == is_aborted(header, entries)
    assert not ranges.contains(read_header(plain())._replace(base_offset=15))


@pytest.mark.parametrize("journal", [8192, 5])
@pytest.mark.parametrize("seed", range(15))
def test_truncations_and_snapshots_leave_a_function_of_the_log(seed: int, journal: int) -> None:
    rng = random.Random(seed)
    log = FoldedLog(journal=journal)
    sequences = dict.fromkeys(range(4), 0)
    for _ in range(150):
        match rng.randrange(8):
            case 0 | 1 | 2 | 3:
                producer = rng.randrange(4)
                log.append(data(producer, sequences[producer], count := rng.randrange(1, 4)))
                sequences[producer] += count
            case 4 | 5:
                log.append(marker(rng.randrange(4), commits=rng.random() < 0.5))
            case 6 if log.batches:
                log.truncate(rng.choice(log.batches[-20:])[0])
            case 7 if rng.random() < 0.3:
                log.table.mark(log.table.freeze(log.end))
        anew = log.anew()
        assert log.table == anew
        assert log.table.transactions.open == anew.transactions.open
    restored = ProducerTable()
    producer_file.restore(restored, log.table.snapshot(), log.end)
    assert restored == log.table
    assert restored.transactions.open == log.table.transactions.open
    assert restored.snapshot() == log.table.snapshot()
    assert restored.transactions.aborted_in(0, log.end) == log.table.transactions.aborted_in(
        0, log.end
    )


# --- forgetting -----------------------------------------------------------------------------------


def forget_before(offset: int) -> bytearray:
    return expire_batch(offset, 5, ProducerNamespace.NONE)


def test_producers_that_wrote_nothing_since_an_offset_are_forgotten() -> None:
    log = FoldedLog(
        data(1, 0),  # offset 0: ended at 2
        data(2, 0),  # open from 1 on
        marker(1, commits=True),
        world.batch(3, producer=(3, 0, 0)),  # offsets 3 to 5
        world.batch(1, producer=(4, 0, 0)),
    )
    assert sorted(idle_before(log.table, 6)) == [key_of_id(1), key_of_id(3)]
    assert list(idle_before(log.table, 2)) == []
    log.append(forget_before(6))
    assert [log.table.producer(each) is None for each in (1, 2, 3, 4)] == [True, False, True, False]
    assert log.table.transactions.open == {2: 1}
    assert log.table.check(read_header(world.batch(1, producer=(3, 0, 3)))) is None
    before = log.table.snapshot()
    log.append(marker(2, commits=False))
    log.append(forget_before(9))
    assert len(log.table) == 0
    assert log.table.transactions.aborted == [AbortedTransaction(2, 1, 8)]
    log.truncate(8)
    assert log.table.snapshot() == before == log.anew().snapshot()


def test_forgetting_at_random_is_a_function_of_the_log() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        log = FoldedLog(journal=rng.choice((3, 8192)))
        sequences = dict.fromkeys(range(6), 0)
        for _ in range(60):
            who = rng.randrange(6)
            match rng.randrange(4):
                case 0:
                    log.append(forget_before(max(0, log.end - rng.randrange(12))))
                case 1:
                    log.append(marker(who, commits=rng.random() < 0.5))
                case 2:
                    log.append(data(who, sequences[who]))
                    sequences[who] += 1
                case 3 if log.end:
                    log.truncate(rng.randrange(max(1, log.end - 8), log.end + 1))
            assert log.table == log.anew(), seed
