"""Appending, reading, truncating, rolling, retaining: the log while nothing fails."""

from __future__ import annotations

import pytest

from paceline.errors import CorruptMessage, OffsetOutOfRange
from paceline.wire.batch import iter_batches, verify
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.offset_assignment import Appended
from paceline_node.storage.producers import FrozenTable
from tests.unit.storage.world import PATH, SMALL, StillHost, batch, content, flush, new_log, reopen


def heads(data: bytes) -> list[tuple[int, int]]:
    """(base offset, leader epoch) of each batch, CRCs checked."""
    return [
        (verify(data, position).base_offset, header.leader_epoch)
        for position, header in iter_batches(data)
    ]


async def test_the_leader_stamps_offsets_and_epoch() -> None:
    log = await new_log()
    sent = batch(3) + batch(2)
    assert log.append_leader(sent, 4, 1_000) == Appended(0, 4, len(sent))
    assert log.append_leader(batch(), 5, 1_000).base_offset == 5
    assert heads(content(log)) == [(0, 4), (3, 4), (5, 5)]
    assert log.epochs.entries == [(4, 0), (5, 5)]
    assert (log.log_start_offset, log.log_end_offset, log.durable_offset) == (0, 6, 0)
    log.abandon()


async def test_a_follower_copies_bytes() -> None:
    leader, follower = await new_log(), await new_log()
    for epoch in (1, 1, 3):
        leader.append_leader(batch(2), epoch, 1_000)
    appended = follower.append_follower(memoryview(content(leader)))
    assert (appended.base_offset, appended.last_offset) == (0, 5)
    assert content(follower) == content(leader)
    assert follower.epochs == leader.epochs
    leader.abandon()
    follower.abandon()


@pytest.mark.parametrize(
    "fault", ["gap", "overlap", "older epoch", "epoch to come", "bad checksum", "cut short"]
)
async def test_a_follower_refuses_and_appends_nothing(fault: str) -> None:
    source, log = await new_log(), await new_log()
    for _ in range(4):
        source.append_leader(batch(1), 2, 1_000)
    data = bytearray(content(source))
    size = len(data) // 4
    log.append_follower(memoryview(data)[:size])
    part = {
        "gap": data[2 * size :],
        "overlap": data,
        "older epoch": data[size:],
        "epoch to come": data[size:],
        "bad checksum": data[size:],
        "cut short": data[size:-1],
    }[fault]
    if fault == "older epoch":
        part[size + 15] = 1  # leader epoch of the second batch: 2 -> 1
    if fault == "epoch to come":
        part[2 * size + 13] ^= 0x10  # of the last batch: the next one would tell it as older
    if fault == "bad checksum":
        part[-1] ^= 1
    before = content(log)
    with pytest.raises(CorruptMessage):
        log.append_follower(memoryview(part), 2)
    assert content(log) == before
    assert log.log_end_offset == 1
    source.abandon()
    log.abandon()


async def test_epochs_never_go_back() -> None:
    log = await new_log()
    log.append_leader(batch(), 5, 1_000)
    with pytest.raises(AssertionError, match="epoch 4 behind"):
        log.append_leader(batch(), 4, 1_000)
    log.abandon()


async def test_rolling_by_size() -> None:
    log = await new_log()
    for _ in range(30):
        log.append_leader(batch(), 1, 1_000)
    assert len(log.segments) > 3
    assert all(segment.size <= SMALL.segment_bytes for segment in log.segments)
    assert [s.base_offset for s in log.segments[1:]] == [s.next_offset for s in log.segments[:-1]]
    assert [head for head, _ in heads(content(log))] == list(range(30))
    log.abandon()


async def test_a_batch_larger_than_a_segment_rides_alone() -> None:
    log = await new_log()
    for size in (10, 2_000, 10):
        log.append_leader(batch(value=b"x" * size), 1, 1_000)
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]
    log.abandon()


async def test_rolling_by_age() -> None:
    settings = LogSettings(segment_ms=100, retention_ms=None)
    log = await new_log(settings=settings)
    for now in (1_000, 1_099, 1_100, 1_150, 1_300):
        log.append_leader(batch(), 1, now)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    log.abandon()


async def test_locate_gives_whole_batches_within_limits() -> None:
    log = await new_log(settings=LogSettings(index_interval_bytes=300))
    for count in (1, 4, 2, 3) * 20:
        log.append_leader(batch(count), 1, 1_000)
    bases = [base for base, _ in heads(content(log))]
    size = log.size_bytes
    for offset in range(200):
        for max_bytes in (1, 250, 1_000, size):
            for end in (offset, offset + 1, min(200, offset + 7), 200):
                check_slice(log, bases, offset, max_bytes, end)
    log.abandon()


def check_slice(log, bases: list[int], offset: int, max_bytes: int, end: int) -> None:  # type: ignore[no-untyped-def]
    starts = [*bases, log.log_end_offset]
    at = max(index for index, base in enumerate(bases) if base <= offset)
    found = log.locate(offset, max_bytes, end)
    if starts[at + 1] > end:
        assert found is None
        return
    assert found.base_offset == bases[at]
    got = heads(found.read())
    assert [base for base, _ in got] == bases[at : at + len(got)]
    assert found.next_offset == starts[at + len(got)] <= end
    assert found.size <= max_bytes or len(got) == 1
    if found.next_offset < end and starts[at + len(got) + 1] <= end:
        following = log.locate(found.next_offset, 1, end)
        assert found.size + following.size > max_bytes  # nothing more would have fitted


async def test_locate_after_reopening_uses_the_indexes() -> None:
    disk = MemoryDisk()
    settings = LogSettings(segment_bytes=3_000, index_interval_bytes=300)
    log = await new_log(disk, settings)
    for count in (1, 4, 2, 3) * 20:
        log.append_leader(batch(count), 1, 1_000)
    bases = [base for base, _ in heads(content(log))]
    await log.close()
    log = await reopen(disk, mark=200, clean=True, settings=settings)
    assert log.recovery.scanned_bytes == 0
    for offset in range(200):
        segment = next(s for s in log.segments if s.base_offset <= offset < s.next_offset)
        for max_bytes in (1, 700):
            check_slice_in(log, segment, bases, offset, max_bytes)
    log.abandon()


def check_slice_in(log, segment, bases: list[int], offset: int, max_bytes: int) -> None:  # type: ignore[no-untyped-def]
    at = max(index for index, base in enumerate(bases) if base <= offset)
    found = log.locate(offset, max_bytes, log.log_end_offset)
    got = heads(found.read())
    assert [base for base, _ in got] == bases[at : at + len(got)]
    assert found.size <= max_bytes or len(got) == 1
    assert found.next_offset <= segment.next_offset


async def test_locate_outside_the_log() -> None:
    log = await new_log()
    log.append_leader(batch(3), 1, 1_000)
    assert log.locate(3, 100, 3) is None
    log.advance_start(2)
    for offset in (1, 4):
        with pytest.raises(OffsetOutOfRange, match=r"outside 2\.\.3"):
            log.locate(offset, 100, 3)
    found = log.locate(2, 100, 3)
    assert found is not None
    assert found.base_offset == 0  # the batch that contains it
    log.abandon()


async def test_truncation_removes_what_it_made_untrue() -> None:
    disk = MemoryDisk()
    log = await new_log(disk, LogSettings(checkpoint_bytes=1, index_interval_bytes=150))
    for _ in range(3):
        log.append_leader(batch(3), 1, 1_000)
        await flush(log, disk)
        await log.checkpoint()
    kinds = {name.rpartition(".")[2] for name in disk.list(PATH)}
    assert {"index", "timeindex", "snap"} <= kinds
    log.truncate(5)
    left = [name for name in disk.list(PATH) if not name.endswith((".metadata", ".ckpt"))]
    assert left == [f"{0:020d}.log", f"producers-{3:020d}.snap"]
    log.abandon()


@pytest.mark.parametrize("end", range(31))
async def test_truncate_at_every_offset(end: int) -> None:
    disk = MemoryDisk()
    log = await new_log(disk)
    for epoch in range(30):
        log.append_leader(batch(producer=(7, 0, epoch)), epoch // 4, 1_000)
    whole = content(log)
    size = len(whole) // 30
    await flush(log, disk)
    log.truncate(end)
    assert content(log) == whole[: size * end]
    assert (log.log_end_offset, log.durable_offset) == (end, end)
    assert [epoch for epoch, start in log.epochs.entries] == sorted({e // 4 for e in range(end)})
    if end < 30:
        log.append_follower(memoryview(whole)[size * end :])
    assert content(log) == whole
    await flush(log, disk)
    disk.kill()
    again = await reopen(disk, mark=30)
    assert content(again) == whole
    assert again.producers == log.producers
    assert not again.recovery.damaged
    again.abandon()


async def test_truncating_inside_a_batch_removes_the_batch() -> None:
    log = await new_log()
    log.append_leader(batch(2), 1, 1_000)
    log.append_leader(batch(4), 1, 1_000)
    log.truncate(4)
    assert log.log_end_offset == 2
    log.abandon()


async def test_truncating_below_the_start_is_a_bug() -> None:
    log = await new_log()
    log.append_leader(batch(4), 1, 1_000)
    log.advance_start(2)
    with pytest.raises(ValueError, match="below the log start"):
        log.truncate(1)
    log.abandon()


async def test_truncating_to_a_start_inside_a_batch_is_a_bug_that_removes_nothing() -> None:
    """The batch goes as a whole: the log would end below its start, and give out offsets there."""
    log = await new_log()
    for _ in range(2):
        log.append_leader(batch(4), 1, 1_000)
    log.advance_start(6)
    for offset in (6, 7):
        assert log.end_if_cut(offset) == 4
        with pytest.raises(ValueError, match="begins below the log start"):
            log.truncate(offset)
        assert (log.log_start_offset, log.log_end_offset) == (6, 8)
    log.abandon()


async def test_appends_after_an_unsynced_truncation_go_to_a_new_file() -> None:
    disk = MemoryDisk()
    log = await new_log(disk)
    log.append_leader(batch(1) + batch(1) + batch(1), 1, 1_000)
    await flush(log, disk)
    log.truncate(2)
    log.append_leader(batch(), 2, 1_000)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    log.truncate(1)
    await flush(log, disk)
    log.append_leader(batch(), 3, 1_000)
    assert [segment.base_offset for segment in log.segments] == [0]
    log.abandon()


async def test_a_sync_that_began_before_a_truncation_counts_only_below_it() -> None:
    log = await new_log()
    log.append_leader(batch(5), 1, 1_000)
    log.append_leader(batch(5), 1, 1_000)
    ticket = log.files_to_sync()
    log.truncate(5)
    log.append_leader(batch(9), 2, 1_000)
    log.synced(ticket)
    assert (log.durable_offset, log.log_end_offset) == (5, 14)
    log.abandon()


async def test_reset_starts_anew() -> None:
    disk = MemoryDisk()
    log = await new_log(disk)
    for _ in range(20):
        log.append_leader(batch(producer=(1, 0, 0)), 3, 1_000)
    await flush(log, disk)
    log.begin_at(FrozenTable(1_000), is_kept=True)
    assert (log.log_start_offset, log.log_end_offset, log.durable_offset) == (1_000,) * 3
    assert log.epochs.entries == []
    assert len(log.producers) == 0
    log.append_leader(batch(2), 4, 1_000)
    await flush(log, disk)
    disk.kill()
    again = await reopen(disk, mark=1_002)
    assert (again.log_start_offset, again.log_end_offset) == (1_000, 1_002)
    assert again.epochs.entries == [(4, 1_000)]
    again.abandon()


async def test_a_written_start_deletes_whole_segments_only() -> None:
    disk = MemoryDisk()
    log = await new_log(disk)
    for epoch in range(20):
        log.append_leader(batch(), epoch, 1_000)
    await flush(log, disk)
    bases = [segment.base_offset for segment in log.segments]
    log.advance_start(bases[2] + 1)
    assert [segment.base_offset for segment in log.segments] == bases
    log.start_written(bases[1] + 1)  # of an earlier start
    assert [segment.base_offset for segment in log.segments] == bases[1:]
    log.start_written(bases[2] + 1)
    assert [segment.base_offset for segment in log.segments] == bases[2:]
    assert log.log_start_offset == bases[2] + 1
    assert log.epochs.entries[0] == (bases[2], bases[2])  # of all that is on disk
    log.advance_start(0)
    assert log.log_start_offset == bases[2] + 1
    log.advance_start(20)
    log.start_written(20)
    assert len(log.segments) == 1  # the active one stays
    with pytest.raises(ValueError, match="beyond the log end"):
        log.advance_start(21)
    log.abandon()


async def test_retention_by_size() -> None:
    settings = LogSettings(segment_bytes=700, retention_ms=None, retention_bytes=1_500)
    disk = MemoryDisk()
    log = await new_log(disk, settings)
    for _ in range(50):
        log.append_leader(batch(), 1, 1_000)
    await flush(log, disk)
    assert log.enforce_retention(1_000, high_watermark=0) == 0
    assert log.enforce_retention(1_000, high_watermark=50) > 0
    assert log.enforce_retention(1_000, high_watermark=50) == 0
    assert log.segments[0].base_offset == 0  # until a restart would find the new start
    log.start_written(log.log_start_offset)
    assert 1_500 <= log.size_bytes < 1_500 + 700
    assert log.log_start_offset == log.segments[0].base_offset > 0
    log.abandon()


async def test_retention_by_age_of_the_youngest_record() -> None:
    settings = LogSettings(segment_bytes=300, segment_ms=10_000, retention_ms=1_000)
    disk = MemoryDisk()
    log = await new_log(disk, settings)
    for timestamp in (5_000, 1_000, 2_000, 3_000, 9_000):  # two to a segment
        log.append_leader(batch(value=b"v" * 70, timestamp=timestamp), 1, 9_000)
    await flush(log, disk)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    assert log.enforce_retention(5_500, 5) == 0  # 5,000 is young and protects what is behind it
    assert log.enforce_retention(6_001, 5) == 2
    log.start_written(4)
    assert log.log_start_offset == 4
    assert log.enforce_retention(1_000_000, 4) == 0  # sealed, but not committed
    assert [segment.base_offset for segment in log.segments] == [4, 5]
    log.abandon()


async def test_an_idle_log_expires_too() -> None:
    settings = LogSettings(segment_ms=500, retention_ms=1_000)
    disk = MemoryDisk()
    log = await new_log(disk, settings)
    log.append_leader(batch(timestamp=100), 1, 100)
    log.append_leader(batch(timestamp=300), 1, 300)
    assert log.enforce_retention(599, 2) == 0
    assert len(log.segments) == 1
    assert log.enforce_retention(1_300, 2) == 0
    assert log.enforce_retention(1_301, 2) == 1
    log.start_written(2)  # but what it said is not on disk yet
    assert (log.log_start_offset, log.oldest_offset) == (2, 0)
    await flush(log, disk)
    assert len(log.segments) == 1
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    log.abandon()


async def test_a_deleted_file_can_be_read_for_a_whole_round() -> None:
    disk = MemoryDisk()
    log = await new_log(disk)
    for _ in range(20):
        log.append_leader(batch(), 1, 1_000)
    await flush(log, disk)
    found = log.locate(0, 100, 20)
    assert found is not None
    before = found.read()
    log.advance_start(20)
    log.start_written(20)
    assert found.read() == before
    log.enforce_retention(1_000, 20)  # may come right behind the deletion
    assert found.read() == before
    log.enforce_retention(1_000, 20)
    with pytest.raises(OSError, match="closed"):
        found.read()
    log.abandon()


async def test_a_clean_stop_and_start() -> None:
    disk = MemoryDisk()
    log = await new_log(disk)
    for sequence in range(40):
        log.append_leader(batch(producer=(9, 0, sequence)), sequence // 10, 1_000)
    log.advance_start(5)
    before = content(log)
    await log.close()
    again = await reopen(disk, mark=40, clean=True, log_start=5)
    assert content(again) == before
    assert again.recovery.scanned_bytes == 0
    assert again.recovery.rebuilt == ()
    assert (again.log_start_offset, again.durable_offset) == (5, 40)
    assert again.epochs == log.epochs
    assert again.producers == log.producers
    again.append_leader(batch(), 4, 1_000)
    assert again.log_end_offset == 41
    again.abandon()


async def test_the_identity_is_kept() -> None:
    disk = MemoryDisk()
    log = await new_log(disk)
    await log.close()
    again = await reopen(disk)
    assert again.identity == log.identity
    again.abandon()
    disk.remove(f"{PATH}/partition.metadata")
    with pytest.raises(CorruptMessage, match="is missing"):
        await reopen(disk)


async def test_followers_seal_by_their_own_clock() -> None:
    host = StillHost()
    settings = LogSettings(segment_ms=100, retention_ms=None)
    leader = await new_log(settings=settings)
    for _ in range(3):
        leader.append_leader(batch(), 1, 1_000)
    data = memoryview(content(leader))
    size = len(data) // 3
    follower = await new_log(settings=settings, host=host)
    for number, now in enumerate((1_000, 1_050, 1_100)):
        host.wall = now
        follower.append_follower(data[number * size : (number + 1) * size])
    assert [segment.base_offset for segment in follower.segments] == [0, 2]
    leader.abandon()
    follower.abandon()


async def test_a_flush_passes_over_files_that_were_removed_before_it() -> None:
    """A file begun, removed and closed between two flushes ended the node as a failed disk."""
    disk = MemoryDisk()
    log = await new_log(disk)
    log.append_leader(batch(), 1, 1_000)
    log.seal()
    log.truncate(0)
    for _ in range(3):
        log.enforce_retention(1_000, 0)  # closes what was removed
    await flush(log, disk)
    assert log.durable_offset == log.log_end_offset == 0
    log.abandon()
