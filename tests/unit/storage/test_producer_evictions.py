"""The record that forgets producers by name (pure): a function of the log, like all forgetting."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from paceline.errors import CorruptMessage
from paceline.wire.batch import build_raw_batch
from paceline.wire.batch_header import ProducerNamespace, read_extension, read_header
from paceline.wire.records import decode_records
from paceline_node.sequence_numbers import Number, SequencedRecords, producer_key
from paceline_node.storage import byte_segment_state, producer_file
from paceline_node.storage.byte_segment_batches import Run, run_batch
from paceline_node.storage.byte_segment_state import EMPTY
from paceline_node.storage.producer_evictions import MOST, Eviction, eviction_batch
from paceline_node.storage.producer_state import ProducerKey, key_of_id
from paceline_node.storage.producers import ProducerTable, idle_before, read_detail
from paceline_node.storage.sequenced_batches import build_batches
from paceline_node.storage.sequenced_records import STREAM_EPOCH, table_key
from tests.unit.storage import world
from tests.unit.storage.test_transaction_index import FoldedLog, data, marker, plain


def numbered(name: str, first: int, count: int = 1, *, epoch: int = 1) -> bytearray:
    key = producer_key(name.encode())
    numbers = [Number(key, name, epoch, first + at) for at in range(count)]
    [built] = build_batches(SequencedRecords(numbers, [b"v"] * count), timestamp_ms=5)
    return built.data


def sequenced_key(name: str) -> ProducerKey:
    return table_key(producer_key(name.encode()))


def known(table: ProducerTable) -> set[ProducerKey]:
    return {key for key, _ in table}


def test_those_that_it_names_are_forgotten_and_nobody_else() -> None:
    log = FoldedLog(
        world.batch(3, producer=(1, 0, 0)),
        world.batch(1, producer=(2, 0, 0)),
        numbered("a", 1, 4),
        numbered("b", 1),
    )
    before = log.table.snapshot()
    log.append(log.table.eviction([key_of_id(1), sequenced_key("b"), key_of_id(77)], 5))
    assert known(log.table) == {key_of_id(2), sequenced_key("a")}
    assert log.table.producer_count == 2
    assert log.table == log.anew()
    log.truncate(log.end - 1)
    assert log.table.snapshot() == before, "a truncation brings them back"


def test_whoever_comes_back_is_unknown_and_never_a_false_duplicate() -> None:
    log = FoldedLog(world.batch(3, producer=(1, 0, 0)))
    log.append(log.table.eviction([key_of_id(1)], 5))
    for first in (0, 3, 9):
        assert log.table.check(read_header(world.batch(1, producer=(1, 0, first)))) is None


def test_open_transactions_and_streams_stay_whoever_names_them() -> None:
    log = FoldedLog(data(1, 0), data(2, 0), marker(2, commits=True))
    log.append(numbered("stream", 1, epoch=STREAM_EPOCH))
    assert (len(log.table), log.table.producer_count) == (3, 2)
    log.append(log.table.eviction([key_of_id(1), key_of_id(2), sequenced_key("stream")], 5))
    assert known(log.table) == {key_of_id(1), sequenced_key("stream")}
    assert log.table.transactions.open == {1: 0}
    assert log.table.producer_count == 1
    restored = ProducerTable()
    producer_file.restore(restored, log.table.snapshot(), log.end)
    assert restored.producer_count == 1
    log.truncate(log.end - 1)
    assert log.table.producer_count == 2
    log.table.load(log.table.freeze(log.end))
    assert log.table.producer_count == 2


def test_a_segment_goes_on_at_the_same_byte() -> None:
    writer = bytes(15) + b"\1"
    run = Run(ProducerNamespace.SEGMENT_SEED, writer, 0, 9, 1, b"\0\0\0\0\0\0\0\1x")
    log = FoldedLog(run_batch(run, EMPTY, 5))
    record = log.table.eviction([(ProducerNamespace.SEGMENT_SEED, writer)], 5)
    log.append(record)
    assert not log.table.writers()
    assert (log.table.marks.end_position, log.table.marks.last_offset) == (9, log.end - 1)
    assert read_extension(record).base_position == 9
    assert known(log.table) == {byte_segment_state.MARKS_KEY}
    assert log.table == log.anew()


def test_readers_see_no_records_in_it() -> None:
    record = eviction_batch([key_of_id(each) for each in range(MOST)], 5)
    header = read_header(record)
    assert (header.record_count, header.last_offset_delta) == (0, 0)
    assert decode_records(record) == []
    detail = read_detail(record, 0, header)
    assert isinstance(detail, Eviction)
    assert len(detail.keys) == MOST


def test_a_version_that_does_not_know_the_form_forgets_nobody() -> None:
    """It takes the record for one that forgets who has written nothing since an offset."""
    log = FoldedLog(world.batch(3, producer=(1, 0, 0)), plain())
    extension = read_extension(eviction_batch([key_of_id(1)], 5))
    assert list(idle_before(log.table, extension.first_sequence)) == []


@pytest.mark.parametrize("size", [1, 16, 18, 17 * (MOST + 1)])
def test_names_that_cannot_be_read_are_damage(size: int) -> None:
    extension = read_extension(eviction_batch([], 5))
    bad = build_raw_batch(bytes(size), record_count=0, last_offset_delta=0, extension=extension)
    with pytest.raises(CorruptMessage, match=f"{size} bytes of names"):
        read_detail(bad, 0, read_header(bad))


def test_evictions_at_random_are_a_function_of_the_log() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        log = FoldedLog(journal=20)
        sequences: dict[int, int] = {}
        for _ in range(150):
            who = rng.randrange(8)
            match rng.randrange(6):
                case 0 | 1 | 2:
                    first = sequences.get(who, 0)
                    sequences[who] = first + 1
                    log.append(data(who, first))
                case 3:
                    log.append(marker(who, commits=rng.random() < 0.5))
                case 4:
                    keys = [key for key, _ in islice(log.table, rng.randrange(4))]
                    log.append(log.table.eviction(keys, 5))
                case 5 if log.batches:
                    log.table.mark(log.table.freeze(log.end))
                    log.truncate(rng.choice(log.batches[-10:])[0])
        assert log.table == log.anew()
        assert log.table.transactions.open == log.anew().transactions.open
        assert log.table.producer_count == len(log.table)
