"""Sequenced producers on a log: through restarts, lost snapshots and truncations."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import MessageTooLarge
from paceline.types import MAX_BATCH_BYTES, MAX_RECORD_BYTES
from paceline.wire.batch import read_extension
from paceline.wire.records import decode_records, encode_headers
from paceline_node.sequence_numbers import Number, Rule, SequencedRecords, producer_key
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.producers import ProducerTable
from paceline_node.storage.sequenced_batches import build_batches, expire_batch
from paceline_node.storage.sequenced_records import select_new, table_key
from tests.unit.storage.world import PATH, flush, new_log, reopen

FINE = LogSettings(segment_bytes=2000, index_interval_bytes=150, retention_ms=None)


def number(sequence: int, producer: str = "a", epoch: int = 1) -> Number:
    return Number(producer_key(producer.encode()), producer, epoch, sequence)


def append(log: Log, numbers: list[Number | None], now_ms: int = 5) -> int:
    """Append what is new; how many records that were."""
    new = select_new(numbers, log.producers.sequenced, Rule.WINDOW)
    records = SequencedRecords(numbers, [b"v" * 9] * len(numbers)).chosen(new)
    for built in build_batches(records, timestamp_ms=now_ms):
        log.append_leader(built.data, 0, now_ms)
    return len(new)


def expire(log: Log, cutoff_ms: int, now_ms: int) -> None:
    log.append_leader(expire_batch(cutoff_ms, now_ms), 0, now_ms)


def runs(log: Log, producer: str = "a") -> tuple[tuple[int, int], ...]:
    state = log.producers.sequenced(table_key(producer_key(producer.encode())))
    return () if state is None else state.runs


async def filled(disk: MemoryDisk, seed: int) -> Log:
    rng = random.Random(seed)
    log = await new_log(disk, FINE)
    for now_ms in range(50):
        first, who = rng.randint(1, 40), rng.choice("ab" if now_ms > 5 else "abc")
        append(log, [number(first + at, who) for at in range(rng.randint(1, 5))], now_ms)
        if now_ms == 40:
            expire(log, 10, now_ms)
    return log


@pytest.mark.parametrize("how", ["clean", "killed", "snapshots lost"])
async def test_a_restart_knows_the_same(how: str) -> None:
    disk = MemoryDisk()
    log = await filled(disk, 1)
    table = log.producers.snapshot()
    assert len(runs(log)) > 1
    assert not runs(log, "c"), "silent since 5 ms"
    await flush(log, disk)
    if how == "killed":
        log.abandon()
    else:
        await log.close()
    if how == "snapshots lost":
        for name in disk.list(PATH):
            if name.startswith("producers-"):
                disk.remove(f"{PATH}/{name}")
    log = await reopen(disk, clean=how != "killed", settings=FINE)
    assert log.producers.snapshot() == table
    end = log.log_end_offset
    assert append(log, [number(n) for first, last in runs(log) for n in (first, last)]) == 0
    assert log.log_end_offset == end
    log.abandon()


async def test_truncation_takes_the_numbers_back() -> None:
    for seed in range(5):
        rng = random.Random(seed)
        log = await new_log(MemoryDisk(), FINE)
        states = [(0, log.producers.snapshot())]
        for now_ms in range(40):
            if rng.random() < 0.2:
                expire(log, now_ms - rng.randint(1, 5), now_ms)
            else:
                append(log, [number(rng.randint(1, 60), rng.choice("abc"))], now_ms)
            states.append((log.log_end_offset, log.producers.snapshot()))
        for _ in range(3):
            end, table = states[rng.randrange(len(states))]
            log.truncate(end)
            assert log.producers.snapshot() == table
            states = [each for each in states if each[0] <= end]
        log.abandon()


async def test_what_was_forgotten_comes_back_when_its_record_goes() -> None:
    """Also behind more updates than can be undone one by one."""
    log = await new_log(MemoryDisk(), FINE)
    log.producers = log.state.table = ProducerTable(journal_batches=2)
    for who in "abcd":
        append(log, [number(1, who)], 1)
    before, end = log.producers.snapshot(), log.log_end_offset
    expire(log, 2, 9)
    assert not len(log.producers)
    log.truncate(end)
    assert log.producers.snapshot() == before
    log.abandon()


# --- batches --------------------------------------------------------------------------------------

numbers = st.lists(
    st.none() | st.builds(number, st.integers(1, 6), st.sampled_from("ab"), st.integers(1, 2)),
    max_size=30,
)


@given(numbers)
@settings(deadline=None)
def test_batches_hold_all_records_in_order(wanted: list[Number | None]) -> None:
    values = [b"%d" % at for at in range(len(wanted))]
    keys = [None if at % 2 else b"k" for at in range(len(wanted))]
    headers = [(("h", b"x"),) if at % 3 else () for at in range(len(wanted))]
    encoded = [encode_headers(each) for each in headers]
    built = list(build_batches(SequencedRecords(wanted, values, keys, encoded), timestamp_ms=5))
    read = [record for each in built for record in decode_records(each.data)]
    assert [record.value for record in read] == values
    assert [record.key for record in read] == keys
    assert [record.headers for record in read] == headers
    for each in built:
        held = wanted[each.start : each.stop]
        assert each.header.record_count == len(held)
        if held[0] is None:
            assert set(held) == {None}
            assert not each.header.is_extended
            continue
        told = read_extension(each.data)
        span = range(told.first_sequence, told.last_sequence + 1)
        key, epoch = told.producer_key, told.producer_epoch
        assert [(n.key, n.epoch, n.sequence) for n in held if n] == [(key, epoch, n) for n in span]


def test_batches_stay_below_a_mebibyte_unless_one_record_is_larger() -> None:
    sizes = [300_000] * 7 + [3 * MAX_BATCH_BYTES, 10]
    records = SequencedRecords([None] * 9, [bytes(size) for size in sizes])
    built = list(build_batches(records, timestamp_ms=0))
    assert [each.header.record_count for each in built] == [3, 3, 1, 1, 1]
    assert [each.header.size_bytes > MAX_BATCH_BYTES for each in built] == [
        *[False] * 3,
        True,
        False,
    ]
    with pytest.raises(MessageTooLarge):
        list(build_batches(SequencedRecords([None], [bytes(MAX_RECORD_BYTES)]), timestamp_ms=0))
