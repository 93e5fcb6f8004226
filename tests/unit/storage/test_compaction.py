"""What compaction keeps of a log, and that the log is whole at every step of it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import CorruptMessage
from paceline.types import Compression
from paceline.wire.batch import (
    DELETE_HORIZON,
    BatchExtension,
    PayloadKind,
    ProducerNamespace,
    build_raw_batch,
    iter_batches,
    read_extension,
)
from paceline_node.storage import scrubbing
from paceline_node.storage.cleaner import CleanerLimits, cleanable
from paceline_node.storage.compacted_sizes import Rewritten
from paceline_node.storage.compaction import CompactionRules
from paceline_node.storage.compaction_file import COPY_NAME, NAME, CompactionState
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.producer_state import ProducerKey, ProducerState
from paceline_node.storage.producers import FrozenTable
from paceline_node.storage.removed_tombstones import Removals
from paceline_node.storage.replica_comparison import compare_replicas
from paceline_node.storage.verify import Problem, verify_log
from tests.unit.storage.keyed import RULES, compact, keyed, keyed_log, last_values, visible
from tests.unit.storage.world import PATH, StillHost, content, flush, new_log, reopen


def headers(log: Log) -> list[tuple[int, int, int]]:
    """(base offset, last offset, records) of every batch."""
    return [(h.base_offset, h.last_offset, h.record_count) for _, h in iter_batches(content(log))]


async def test_the_last_value_of_each_key_stays_at_its_offset() -> None:
    disk = MemoryDisk()
    log = await keyed_log(disk, 20)
    assert len(log.segments) == 4
    statistics = await compact(disk, log)
    records = visible(log)
    assert [(r.offset, r.key, r.value) for r in records] == [
        (57, b"k0", b"v19"),
        (58, b"k1", b"v19"),
        (59, b"k2", b"v19"),
    ]
    assert statistics.dropped_records == 57
    # One placeholder for all that went, one file for all that was sealed.
    left = Rewritten(0, 60, log.segments[0].size)
    assert log.compaction == CompactionState(60, rewritten=(left,))
    assert headers(log) == [(0, 56, 0), (57, 59, 3)]
    assert len(log.segments) == 2
    assert (log.log_start_offset, log.log_end_offset) == (0, 60)
    assert (await verify_log(disk, PATH)).findings == ()
    log.abandon()


async def test_a_batch_that_loses_some_records_keeps_the_rest() -> None:
    for codec in Compression:
        disk = MemoryDisk()
        log = await new_log(disk)
        log.append_leader(
            keyed(
                [(b"a", b"old"), (b"b", b"kept"), (b"c", b"old"), (None, b"no key")], codec=codec
            ),
            3,
            1_000,
        )
        log.append_leader(keyed([(b"c", b"new"), (b"a", b"new")], timestamp=5_000), 3, 1_000)
        log.seal()
        await compact(disk, log)
        records = visible(log)
        assert [tuple(record) for record in records] == [
            (1, 1_001, b"b", b"kept", ()),
            (3, 1_003, None, b"no key", ()),
            (4, 5_000, b"c", b"new", ()),
            (5, 5_001, b"a", b"new", ()),
        ]
        [(_, first), _] = iter_batches(content(log))
        assert (first.compression, first.record_count, first.last_offset) == (codec, 2, 3)
        assert first.leader_epoch == 3
        log.abandon()


async def test_placeholders_are_never_joined_across_leader_epochs() -> None:
    disk = MemoryDisk()
    log = await new_log(disk)
    for epoch in (1, 1, 2, 2, 5):
        log.append_leader(keyed([(b"k", b"%d" % epoch)]), epoch, 1_000)
    log.seal()
    before = log.epochs.entries
    await compact(disk, log)
    assert headers(log) == [(0, 1, 0), (2, 3, 0), (4, 4, 1)]
    epochs = [header.leader_epoch for _, header in iter_batches(content(log))]
    assert epochs == [1, 2, 5]
    await flush(log, disk)
    log.abandon()
    disk.remove(f"{PATH}/epochs.ckpt")
    log = await reopen(disk, mark=5)
    assert log.epochs.entries == before
    log.abandon()


async def test_neither_the_active_segment_nor_what_is_not_stable_is_touched() -> None:
    disk = MemoryDisk()
    log = await keyed_log(disk)
    log.append_leader(keyed([(b"k0", b"active")]), 1, 1_000)
    stable = log.segments[1].base_offset + 1
    await compact(disk, log, stable_offset=stable)
    end = log.compaction.cleaned_offset
    assert end <= stable
    values = [(r.key, r.value) for r in visible(log) if r.offset < end]
    assert len(values) == 3
    assert visible(log)[-1].value == b"active"
    assert sum(r.key == b"k0" for r in visible(log)) > 2
    log.abandon()


async def test_a_log_start_inside_a_segment() -> None:
    disk = MemoryDisk()
    log = await new_log(disk)
    for epoch in range(1, 9):
        log.append_leader(keyed([(b"k", b"%d" % epoch), (b"e%d" % epoch, b"")]), epoch, 1_000)
    log.seal()
    log.advance_start(7)
    await compact(disk, log)
    assert log.log_start_offset == 7
    assert [r.key for r in visible(log)][-2:] == [b"k", b"e8"]
    assert sum(r.key == b"k" for r in visible(log)) == 1
    log.abandon()


async def test_a_tombstone_goes_after_its_time_and_not_before() -> None:
    disk, host = MemoryDisk(), StillHost()
    log = await new_log(disk, host=host)
    log.append_leader(keyed([(b"k", b"v"), (b"other", b"x")]), 1, 1_000)
    log.append_leader(keyed([(b"k", None), (b"z", b"z")], timestamp=1_500), 1, 1_000)
    log.seal()
    host.wall = 5_000
    await compact(disk, log, host)
    assert [(r.offset, r.timestamp_ms, r.key, r.value) for r in visible(log)] == [
        (1, 1_001, b"other", b"x"),
        (2, 1_500, b"k", None),
        (3, 1_501, b"z", b"z"),
    ]
    *_, (_, header) = iter_batches(content(log))
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == 6_000 == log.compaction.horizon_ms
    judged = cleanable(log, RULES, stable_offset=4, now_ms=5_999)
    assert not judged.is_due
    host.wall = 6_000
    # Nothing dirty, yet a tombstone's time has come.
    assert cleanable(log, RULES, stable_offset=4, now_ms=host.wall).is_due
    await compact(disk, log, host)
    assert [(r.offset, r.timestamp_ms, r.key) for r in visible(log)] == [
        (1, 1_001, b"other"),
        (3, 1_501, b"z"),
    ]
    assert log.compaction.horizon_ms == -1
    log.abandon()


async def test_a_horizon_set_by_a_leader_is_set_anew() -> None:
    """A replica that fetched the tombstone may still have served the value a moment ago."""
    disk, host = MemoryDisk(), StillHost()
    log = await new_log(disk, host=host)
    log.append_leader(keyed([(b"k", b"v")]), 1, 1_000)
    log.append_leader(keyed([(b"k", None)], flags=DELETE_HORIZON, timestamp=2_000), 1, 1_000)
    log.seal()
    host.wall = 9_000
    await compact(disk, log, host)
    assert [(r.offset, r.key, r.value) for r in visible(log)] == [(1, b"k", None)]
    assert log.compaction.horizon_ms == 10_000
    log.abandon()


async def test_what_it_does_not_understand_stays() -> None:
    disk = MemoryDisk()
    log = await new_log(disk)

    def extended(kind: PayloadKind) -> bytearray:
        extension = BatchExtension(kind, ProducerNamespace.CURSUS, b"p" * 16, 7, 1, 2, 0, 0)
        plain = keyed([(b"k", b"v")])[61:]
        return build_raw_batch(plain, record_count=1, extension=extension)

    events = extended(PayloadKind.EVENTS)
    log.append_leader(events, 1, 1_000)
    log.append_leader(extended(PayloadKind.RECORDS), 1, 1_000)
    log.append_leader(keyed([(b"k", b"last")]), 1, 1_000)
    log.seal()
    await compact(disk, log)
    data = content(log)
    batches = list(iter_batches(data))
    assert [header.record_count for _, header in batches] == [1, 0, 1]
    assert data.startswith(events)
    kept = read_extension(data, batches[1][0])
    assert (kept.producer_key, kept.last_sequence) == (b"p" * 16, 2)
    log.abandon()


async def test_a_tombstone_behind_what_nobody_can_decode_stays() -> None:
    """An older value may lie in there."""
    disk, host = MemoryDisk(), StillHost()
    log = await new_log(disk, host=host)
    log.append_leader(build_raw_batch(b"garbage", record_count=1), 1, 1_000)
    log.append_leader(keyed([(b"k", None)]), 1, 1_000)
    log.seal()
    await compact(disk, log, host)
    host.wall += 1_000_000
    await compact(disk, log, host)
    assert [header.record_count for _, header in iter_batches(content(log))] == [1, 1]
    log.abandon()


def judged(log: Log) -> dict[ProducerKey, object]:
    """What decides which batches are taken: all but how many are known for certain."""
    states = {}
    for key, state in log.producers:
        assert isinstance(state, ProducerState)
        states[key] = state._replace(known=0)
    return states


def sequenced_of(key: ProducerKey) -> int:
    """How many records a producer of the next test writes."""
    return 41 if key[1][-1] == 7 else 9


async def test_producer_state_survives_recovery_from_the_log_alone() -> None:
    disk = MemoryDisk()
    log = await new_log(disk)
    for sequence in range(40):
        for producer in (7, 8):
            if producer == 7 or sequence < 9:
                log.append_leader(
                    keyed([(b"k", b"%d" % sequence)], producer=(producer, 0, sequence)), 1, 1_000
                )
    log.seal()
    before = judged(log)
    await compact(disk, log)
    # Five batches of each producer keep their headers; the rest are joined.
    producing = [h for _, h in iter_batches(content(log)) if h.has_producer]
    assert [h.producer_id for h in producing].count(7) == 5
    assert [h.producer_id for h in producing].count(8) == 5
    # A second compaction, of a little more, keeps what the first one kept as long as it is needed.
    log.append_leader(keyed([(b"k", b"end")], producer=(7, 0, 40)), 1, 1_000)
    log.seal()
    await compact(disk, log)
    after = judged(log)
    await flush(log, disk)
    whole = content(log)
    log.abandon()
    for name in disk.list(PATH):
        if name.endswith(".snap"):
            disk.remove(f"{PATH}/{name}")
    log = await reopen(disk)
    assert judged(log) == after != before
    for key, state in log.producers:
        assert isinstance(state, ProducerState)
        # Those of batches that were joined it does not vouch for any more; nor for any others.
        assert 0 < state.known < sequenced_of(key)
    log.abandon()
    # And on a replica that fetches all of it.
    other = await new_log(MemoryDisk())
    other.append_follower(memoryview(whole))
    assert judged(other) == after
    other.abandon()


async def test_more_keys_than_the_map_holds_take_several_rounds() -> None:
    disk = MemoryDisk()
    log = await keyed_log(disk, 30, keys=7)
    expected = last_values(visible(log))
    limits = CleanerLimits(max_keys=10, bytes_per_s=1 << 60, piece_bytes=300)
    statistics = await compact(disk, log, limits=limits)
    assert statistics.rounds > 2
    assert len(visible(log)) == 7
    assert last_values(visible(log)) == expected
    log.abandon()


async def test_how_far_it_came_is_known_after_a_power_cut() -> None:
    disk = MemoryDisk()
    log = await keyed_log(disk)
    log.append_leader(keyed([(b"k0", None)]), 1, 1_000)
    log.seal()
    await flush(log, disk)
    await compact(disk, log)
    reached, end = log.compaction, log.log_end_offset
    assert reached.cleaned_offset == end
    assert reached.horizon_ms > 0
    disk.power_cut(random.Random(1))
    log = await reopen(disk, mark=end)
    assert log.compaction == reached
    log.abandon()


async def test_a_slice_in_flight_stays_readable() -> None:
    disk = MemoryDisk()
    log = await keyed_log(disk)
    found = log.locate(0, 10_000, log.log_end_offset)
    assert found is not None
    before = found.read()
    await compact(disk, log)
    log.enforce_retention(1_000, 30)
    log.start_written(log.log_start_offset)
    assert found.read() == before
    log.abandon()


async def test_retention_reset_and_damage_end_a_round() -> None:
    async def retain(log: Log, disk: MemoryDisk) -> None:
        await flush(log, disk)
        log.advance_start(log.segments[2].base_offset)
        log.start_written(log.log_start_offset)

    async def reset(log: Log, disk: MemoryDisk) -> None:
        log.begin_at(FrozenTable(5), is_kept=True)
        log.append_leader(keyed([(b"new", b"life")]), 1, 1_000)

    async def rot(log: Log, disk: MemoryDisk) -> None:
        disk.rot(log.segments[0].path(), random.Random(1), start=30)
        await scrubbing.scrub(disk, log, 0)

    for interfere in (retain, reset, rot):
        disk = MemoryDisk()
        log = await keyed_log(disk, 20, settings=LogSettings(700, index_interval_bytes=150))
        expected = last_values(visible(log)) if interfere is not reset else {b"new": b"life"}
        async with trio.open_nursery() as nursery:

            async def work(log: Log = log, disk: MemoryDisk = disk) -> None:
                with pytest.raises((LookupError, CorruptMessage)):
                    await compact(disk, log)

            nursery.start_soon(work)
            for _ in range(30):
                await trio.lowlevel.checkpoint()
            await interfere(log, disk)
        assert not [name for name in disk.list(PATH) if name.endswith(".cleaned")]
        if interfere is not rot:
            assert last_values(visible(log)) == expected
        await flush(log, disk)
        log.abandon()
        disk.kill()
        log = await reopen(disk, mark=log.durable_offset)
        if interfere is not rot:
            assert last_values(visible(log)) == expected
        log.abandon()


async def test_a_bad_batch_is_named_and_nothing_replaced() -> None:
    disk = MemoryDisk()
    log = await keyed_log(disk)
    found = log.locate(12, 1, 30)
    assert found is not None
    disk.rot(found.file.path, random.Random(1), start=found.position + 30)
    before = content(log)
    with pytest.raises(CorruptMessage):
        await compact(disk, log)
    assert content(log) == before
    log.abandon()


async def test_a_full_disk_leaves_everything_as_it_was() -> None:
    disk = MemoryDisk()
    log = await keyed_log(disk)
    before = content(log)
    disk.capacity_bytes = disk.total_bytes() - disk.free_bytes() + 40
    with pytest.raises(OSError, match="No space"):
        await compact(disk, log)
    assert content(log) == before
    assert not [name for name in disk.list(PATH) if name.endswith(".cleaned")]
    disk.capacity_bytes = None
    await compact(disk, log)
    assert len(visible(log)) == 3
    log.abandon()


async def test_replicas_compacted_at_other_times_have_the_same_last_values() -> None:
    one, two = MemoryDisk(), MemoryDisk()
    log = await keyed_log(one, 20)
    whole = content(log)
    await compact(one, log)
    other = await new_log(two)
    other.append_follower(memoryview(whole))
    await flush(other, two)
    places = {"a": (one, PATH), "b": (two, PATH)}
    assert await compare_replicas(places, high_watermark=60) == []
    # A key more above the high watermark does not count, below it does.
    other.append_follower(memoryview(keyed([(b"more", b"x")], base_offset=60, leader_epoch=1)))
    assert await compare_replicas(places, high_watermark=60) == []
    [finding] = await compare_replicas(places, high_watermark=61)
    assert (finding.problem, finding.offset) == (Problem.DIVERGED, 60)
    assert finding.message == "b: 1 keys have another last value than in a"
    log.abandon()
    other.abandon()


async def test_a_follower_in_the_middle_of_a_joined_placeholder() -> None:
    """It has the batches one by one that its leader has joined, up to some place."""
    disk = MemoryDisk()
    log = await keyed_log(disk, 20)
    whole = content(log)
    await compact(disk, log)
    for position, _ in iter_batches(whole):
        follower = await new_log(MemoryDisk())
        if position:
            follower.append_follower(memoryview(whole)[:position])
        while follower.log_end_offset < log.log_end_offset:
            found = log.locate(follower.log_end_offset, 1 << 20, log.log_end_offset)
            assert found is not None
            follower.append_follower(memoryview(found.read()))
        assert last_values(visible(follower)) == last_values(visible(log))
        follower.abandon()
    log.abandon()


# --- when ----------------------------------------------------------------------------------------


async def test_when_a_log_is_due() -> None:
    disk, host = MemoryDisk(), StillHost()
    log = await keyed_log(disk)
    end = log.log_end_offset

    def due(rules: CompactionRules, now_ms: int = 2_000) -> bool:
        return cleanable(log, rules, stable_offset=end, now_ms=now_ms).is_due

    assert due(CompactionRules(min_cleanable_ratio=1.0))
    assert not due(CompactionRules(min_cleanable_ratio=1.0, min_lag_ms=5_000))
    await compact(disk, log, host)
    assert not due(CompactionRules(min_cleanable_ratio=0.01))
    log.append_leader(keyed([(b"k0", b"w")], timestamp=3_000), 1, 3_000)
    log.seal()
    end = log.log_end_offset
    assert due(CompactionRules(min_cleanable_ratio=0.1), 4_000)
    assert not due(CompactionRules(min_cleanable_ratio=0.9), 4_000)
    assert due(CompactionRules(min_cleanable_ratio=0.9, max_lag_ms=500), 4_000)
    assert not due(CompactionRules(min_cleanable_ratio=0.9, max_lag_ms=5_000), 4_000)
    log.abandon()


async def test_segments_of_different_age_are_not_joined_where_age_counts() -> None:
    disk = MemoryDisk()
    settings = LogSettings(700, index_interval_bytes=150, retention_ms=10_000)
    log = await keyed_log(disk, settings=settings)
    before = [segment.base_offset for segment in log.segments]
    await compact(disk, log)
    assert [segment.base_offset for segment in log.segments] == before
    assert len(visible(log)) == 3
    log.abandon()


# --- what was kept wrong, or sent wrong ---------------------------------------------------------


async def test_a_rotten_state_file_means_compacting_again() -> None:
    disk = MemoryDisk()
    log = await keyed_log(disk)
    await compact(disk, log)
    await log.close()
    for name in (NAME, COPY_NAME):
        disk.rot(f"{PATH}/{name}", random.Random(1), start=14)
    log = await reopen(disk, mark=30, clean=True)
    assert NAME in log.recovery.rebuilt
    # Any tombstone may be missing from it, for all it knows.
    assert log.compaction == CompactionState(removals=Removals(30))
    await compact(disk, log)
    assert len(visible(log)) == 3
    log.abandon()


def run(work: Callable[[], Awaitable[None]]) -> None:
    trio.run(work)


@given(data=st.binary(max_size=300))
def test_a_batch_that_nobody_can_decode_stays_as_it_is(data: bytes) -> None:
    """Clients' bytes behind a checksum that holds."""

    async def main() -> None:
        disk = MemoryDisk()
        log = await new_log(disk)
        for codec in (0, 1, 7):
            strange = build_raw_batch(data, record_count=3, attributes=codec)
            log.append_leader(strange, 1, 1_000)
        log.append_leader(keyed([(b"k", b"1"), (b"k", b"2")]), 1, 1_000)
        log.seal()
        before = content(log)
        statistics = await compact(disk, log)
        strange_bytes = 3 * (61 + len(data))
        assert content(log)[:strange_bytes] == before[:strange_bytes]
        assert statistics.opaque_batches == 3
        assert statistics.dropped_records == 1
        log.abandon()

    run(main)
