"""Opening a log after anything but a clean stop (storage/DESIGN 2.5, 5, 6)."""

from __future__ import annotations

import random
from itertools import pairwise
from unittest import mock

import pytest

from paceline.errors import CorruptMessage
from paceline.wire.batch import iter_batches
from paceline_node.storage.durability import Durability
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.opening import open_log
from paceline_node.storage.recovery_report import RecoveryHints, RecoveryReport
from paceline_node.storage.torn_tail import Ending
from tests.unit.storage.world import PATH, ask, batch, content, env_on, flush, new_log, reopen

ONE_FILE = LogSettings(index_interval_bytes=150, retention_ms=None)
FIRST = f"{PATH}/{0:020d}.log"


async def written(disk: MemoryDisk, settings: LogSettings = ONE_FILE) -> Log:
    """Six batches of 1, 2 and 3 records, epochs 1, 1, 2, 2, 3, 3; all durable."""
    log = await new_log(disk, settings)
    sequence = 0
    for number in range(6):
        count = number % 3 + 1
        log.append_leader(batch(count, producer=(5, 0, sequence)), number // 2 + 1, 1_000)
        sequence += count
    await flush(log, disk)
    await log.checkpoint()
    disk.kill()
    return log


def bounds(data: bytes) -> list[tuple[int, int]]:
    """(position, base offset) of each batch, then of the end."""
    heads = [(position, header) for position, header in iter_batches(data)]
    last = heads[-1][1]
    return [*((p, h.base_offset) for p, h in heads), (len(data), last.next_offset)]


async def test_a_torn_tail_is_cut_at_every_byte() -> None:
    disk = MemoryDisk()
    await written(disk)
    whole = disk.content(FIRST)
    edges = bounds(whole)
    for size in range(len(whole) + 1):
        disk.overwrite(FIRST, whole[:size])
        log = await reopen(disk, settings=ONE_FILE)
        position, end = max(edge for edge in edges if edge[0] <= size)
        assert log.log_end_offset == log.durable_offset == end
        assert content(log) == whole[:position]
        assert log.recovery.truncated_bytes == size - position
        assert not log.recovery.damaged
        assert not log.recovery.lost_tail
        whole_batches = edges.index((position, end))
        assert log.epochs.last_epoch == [-1, 1, 1, 2, 2, 3, 3][whole_batches]
        log.append_leader(batch(), 9, 1_000)
        assert log.log_end_offset == end + 1
        disk.kill()


@pytest.mark.parametrize("garbage", [b"\0" * 200, b"\xff" * 10, b"\0" * 5, b"\x02" * 300])
async def test_garbage_behind_the_end_is_cut(garbage: bytes) -> None:
    disk = MemoryDisk()
    await written(disk)
    whole = disk.content(FIRST)
    disk.overwrite(FIRST, whole + garbage)
    log = await reopen(disk, mark=12, settings=ONE_FILE)
    assert content(log) == whole
    assert log.recovery == RecoveryReport(len(whole) + len(garbage), len(garbage), 0, (), False, ())
    log.abandon()


async def test_a_flipped_bit_below_the_mark_is_damage_at_every_byte() -> None:
    disk = MemoryDisk()
    await written(disk)
    whole = disk.content(FIRST)
    edges = bounds(whole)
    names = disk.list(PATH)
    kept = {name: disk.content(f"{PATH}/{name}") for name in names}
    for at in range(len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << (at % 8)
        disk.overwrite(FIRST, bytes(flipped))
        log = await reopen(disk, mark=12, settings=ONE_FILE)
        start = max(base for position, base in edges[:-1] if position <= at)
        end = min(base for position, base in edges if position > at)
        assert [(each.start, each.end) for each in log.damaged] == [(start, end)], at
        assert log.recovery.damaged == log.damaged
        assert log.recovery.truncated_bytes == 0
        assert not log.recovery.reached_durable_mark
        assert log.log_end_offset == 12
        check_readable_around(log, whole, edges, start, end)
        disk.kill()
        restore(disk, kept)


def restore(disk: MemoryDisk, kept: dict[str, bytes]) -> None:
    for name in disk.list(PATH):
        if name not in kept:
            disk.remove(f"{PATH}/{name}")
    for name, old in kept.items():
        disk.overwrite(f"{PATH}/{name}", old)


def check_readable_around(
    log: Log, whole: bytes, edges: list[tuple[int, int]], start: int, end: int
) -> None:
    """Everything outside the damage is served, nothing inside it."""
    for (position, base), (stop, following) in pairwise(edges):
        if base == start:
            for offset in range(start, end):
                with pytest.raises(CorruptMessage, match="is damaged"):
                    log.locate(offset, 10_000, 12)
        else:
            found = log.locate(base, 1, 12)
            assert found is not None
            assert (found.read(), found.next_offset) == (whole[position:stop], following)
    first = log.locate(0, 10_000, 12) if start > 0 else None
    if first is not None:
        assert first.next_offset == start  # and no slice runs into it


async def test_above_an_exact_mark_nobody_was_promised_a_flipped_batch() -> None:
    disk = MemoryDisk()
    await written(disk)
    whole = disk.content(FIRST)
    edges = bounds(whole)
    mark = edges[3][1]
    for at in range(edges[3][0], len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << (at % 8)
        disk.overwrite(FIRST, bytes(flipped))
        log = await reopen(disk, mark=mark, ending=Ending.KILLED, settings=ONE_FILE)
        position, end = max(edge for edge in edges if edge[0] <= at)
        if at - position in range(12, 16):  # the leader epoch: nothing above the mark tells on it
            disk.kill()
            disk.overwrite(FIRST, whole)
            continue
        assert (log.log_end_offset, log.damaged) == (end, ())
        assert content(log) == whole[:position]
        if end < edges[5][1]:
            assert log.recovery.discarded_valid_bytes > 0
        disk.kill()


@pytest.mark.parametrize("ending", [Ending.CLEAN, Ending.POWER_CUT])
async def test_a_flipped_bit_that_the_ending_does_not_explain_is_damage(ending: Ending) -> None:
    """In the newest bytes, too, which no checkpoint speaks of yet: no sector of them is missing."""
    disk = MemoryDisk()
    await written(disk)
    whole = disk.content(FIRST)
    edges = bounds(whole)
    # After a clean stop opening looks at the last batch only.
    first = 5 if ending is Ending.CLEAN else 3
    for at in range(edges[first][0], len(whole)):
        position, start = max(edge for edge in edges[:-1] if edge[0] <= at)
        if at - position in range(12, 16):  # the leader epoch: its successors tell on it
            continue
        disk = MemoryDisk()
        await written(disk)
        disk.overwrite(FIRST, whole[:at] + bytes([whole[at] ^ 1 << (at % 8)]) + whole[at + 1 :])
        log = await reopen(disk, mark=edges[3][1], ending=ending, settings=ONE_FILE)
        assert log.recovery.truncated_bytes == 0
        assert log.damaged[0].start == start
        assert not log.recovery.reached_durable_mark
        log.abandon()


async def test_a_kill_without_a_mark_explains_a_batch_cut_short_and_no_more() -> None:
    disk = MemoryDisk()
    await written(disk)
    whole = disk.content(FIRST)
    position, start = bounds(whole)[-2]
    hints = RecoveryHints(Ending.KILLED, mark_exact=False)
    for size in range(position + 1, len(whole)):
        disk.overwrite(FIRST, whole[:size])
        log = await open_log(env_on(disk), PATH, ONE_FILE, hints)
        assert (log.log_end_offset, log.damaged) == (start, ())
        assert log.recovery.doubtful_tail
        disk.kill()
    for at in (*range(position, position + 12), len(whole) - 1):  # the length is among them
        disk = MemoryDisk()
        await written(disk)
        disk.overwrite(FIRST, whole[:at] + bytes([whole[at] ^ 0x11]) + whole[at + 1 :])
        log = await open_log(env_on(disk), PATH, ONE_FILE, hints)
        assert [each.start for each in log.damaged] == [start]
        assert not log.recovery.doubtful_tail
        log.abandon()


async def test_a_power_cut_leaves_sectors_unwritten_and_what_lies_behind_them() -> None:
    disk = MemoryDisk()
    log = await new_log(disk, ONE_FILE)
    for value in (b"a", b"b", b"c"):
        log.append_leader(batch(value=value * 2_000), 1, 1_000)
    await log.close()
    whole = bytearray(disk.content(FIRST))
    _, second, third, _ = bounds(bytes(whole))
    whole[4096 - 1024 : 4096] = bytes(1024)
    disk.overwrite(FIRST, bytes(whole))
    log = await reopen(disk, mark=1, ending=Ending.POWER_CUT, settings=ONE_FILE)
    assert (log.log_end_offset, log.damaged) == (second[1], ())
    assert log.recovery.discarded_valid_bytes == len(whole) - third[0]
    assert not log.recovery.doubtful_tail
    disk.kill()
    disk.overwrite(FIRST, bytes(whole))
    log = await reopen(disk, mark=2, ending=Ending.POWER_CUT, settings=ONE_FILE)
    assert [(each.start, each.end) for each in log.damaged] == [(1, 2)]  # it had been synced
    log.abandon()


async def test_a_higher_epoch_above_the_mark_cuts_what_follows_it() -> None:
    disk = MemoryDisk()
    await written(disk)
    whole = bytearray(disk.content(FIRST))
    edges = bounds(bytes(whole))
    whole[edges[3][0] + 14] ^= 1  # epoch 2 of the fourth batch becomes 258
    disk.overwrite(FIRST, bytes(whole))
    log = await reopen(disk, mark=edges[3][1], ending=Ending.KILLED, settings=ONE_FILE)
    assert log.log_end_offset == edges[4][1]
    assert log.recovery.truncated_bytes == len(whole) - edges[4][0]
    log.abandon()


async def test_a_base_offset_that_no_segment_holds_leads_nowhere() -> None:
    """It is outside the checksum; an index cannot even say it."""
    disk = MemoryDisk()
    await written(disk)
    whole = bytearray(disk.content(FIRST))
    first, second, third, *_ = bounds(bytes(whole))
    whole[first[0] + 70] ^= 1
    whole[second[0]] ^= 1
    disk.overwrite(FIRST, bytes(whole))
    log = await reopen(disk, mark=12, settings=ONE_FILE)
    assert [(each.start, each.end) for each in log.damaged] == [(0, third[1])]
    log.abandon()


async def test_damage_is_remembered_until_it_is_repaired() -> None:
    disk = MemoryDisk()
    await written(disk)
    whole = bytearray(disk.content(FIRST))
    edges = bounds(bytes(whole))
    whole[edges[2][0] + 70] ^= 1
    disk.overwrite(FIRST, bytes(whole))
    damaged = (await reopen(disk, mark=12, settings=ONE_FILE)).damaged
    assert len(damaged) == 1
    disk.kill()
    for hints in ({"mark": 0}, {"mark": 12, "clean": True}):
        log = await reopen(disk, settings=ONE_FILE, **hints)  # type: ignore[arg-type]
        assert log.damaged == damaged
        disk.kill()


async def test_damage_in_the_last_batch_keeps_its_offsets() -> None:
    disk = MemoryDisk()
    await written(disk)
    whole = bytearray(disk.content(FIRST))
    whole[-1] ^= 1
    disk.overwrite(FIRST, bytes(whole))
    log = await reopen(disk, mark=12, settings=ONE_FILE)
    assert log.log_end_offset == 12
    appended = log.append_leader(batch(), 7, 1_000)
    assert appended.base_offset == 12
    found = log.locate(12, 1_000, 13)
    assert found is not None
    assert found.base_offset == 12
    await flush(log, disk)
    mark = await log.checkpoint()
    disk.kill()
    again = await reopen(disk, mark=mark, settings=ONE_FILE)
    assert again.damaged == log.damaged
    assert again.log_end_offset == 13
    again.abandon()


async def test_a_lost_tail_is_told() -> None:
    disk = MemoryDisk()
    await written(disk)
    whole = disk.content(FIRST)
    disk.overwrite(FIRST, whole[: bounds(whole)[4][0]])
    log = await reopen(disk, mark=12, settings=ONE_FILE)
    assert log.recovery.lost_tail
    assert log.recovery.damaged == ()
    assert log.log_end_offset == bounds(whole)[4][1]
    log.abandon()


SMALL = LogSettings(segment_bytes=250, index_interval_bytes=150, retention_ms=None)


async def test_a_segment_missing_below_the_mark_is_damage() -> None:
    disk = MemoryDisk()
    log = await written(disk, SMALL)
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) >= 3
    disk.remove(f"{PATH}/{bases[1]:020d}.log")
    again = await reopen(disk, mark=12, settings=SMALL)
    # Only the recovery point's segment is scanned, but the ends of the others are looked at.
    assert [(each.start, each.end) for each in again.damaged] == [(bases[1], bases[2])]
    assert again.log_end_offset == 12
    again.abandon()


async def test_a_segment_missing_above_the_mark_ends_the_log() -> None:
    disk = MemoryDisk()
    log = await written(disk, SMALL)
    bases = [segment.base_offset for segment in log.segments]
    disk.remove(f"{PATH}/{bases[1]:020d}.log")
    again = await reopen(disk, mark=0, settings=SMALL)
    assert again.damaged == ()
    assert again.log_end_offset == bases[1]
    assert [segment.base_offset for segment in again.segments] == [0]
    again.abandon()


async def test_sealed_segments_below_the_mark_are_not_read() -> None:
    disk = MemoryDisk()
    log = await written(disk, SMALL)
    last = log.segments[-1]
    again = await reopen(disk, mark=12, settings=SMALL)
    assert again.recovery.scanned_bytes == last.size
    assert content(again) == content_of(disk, log)
    assert again.producers == log.producers
    assert again.epochs == log.epochs
    again.abandon()


def content_of(disk: MemoryDisk, log: Log) -> bytes:
    return b"".join(disk.content(segment.path()) for segment in log.segments)


@pytest.mark.parametrize("victim", [".index", ".timeindex", "epochs.ckpt", ".snap"])
@pytest.mark.parametrize("how", ["missing", "flipped", "cut", "empty"])
@pytest.mark.parametrize("clean", [True, False])
async def test_derived_files_are_rebuilt(victim: str, how: str, clean: bool) -> None:
    disk = MemoryDisk()
    log = await new_log(disk, SMALL)
    for sequence in range(20):
        part = batch(producer=(5, 0, sequence), timestamp=1_000 + sequence)
        log.append_leader(part, sequence // 7, 1_000)
    whole = content(log)
    await log.close()
    for name in disk.list(PATH):
        if name.endswith(victim):
            spoil(disk, f"{PATH}/{name}", how)
    again = await reopen(disk, mark=20, clean=clean, settings=SMALL)
    assert content(again) == whole
    assert again.damaged == ()
    assert again.epochs == log.epochs
    assert again.producers == log.producers
    assert [await ask(disk, again, 1_000 + n) for n in range(21)] == [
        *((n, 1_000 + n) for n in range(20)),
        None,
    ]
    again.abandon()


def spoil(disk: MemoryDisk, path: str, how: str) -> None:
    old = disk.content(path)
    if how == "missing":
        disk.remove(path)
    elif how == "cut":
        disk.overwrite(path, old[:-1])
    elif how == "empty":
        disk.overwrite(path, b"")
    elif old:
        disk.overwrite(path, bytes([old[0] ^ 0x40, *old[1:]]))


async def test_a_stale_snapshot_is_not_used() -> None:
    disk = MemoryDisk()
    log = await new_log(disk, SMALL)
    for sequence in range(9):
        log.append_leader(batch(producer=(5, 0, sequence)), 1, 1_000)
    await flush(log, disk)
    stale = {name: disk.content(f"{PATH}/{name}") for name in disk.list(PATH) if "snap" in name}
    assert stale
    log.truncate(1)
    for sequence in range(11):
        log.append_leader(batch(producer=(6, 0, sequence)), 2, 1_000)
    await flush(log, disk)
    await log.checkpoint()
    disk.kill()
    for name in disk.list(PATH):
        if "snap" in name:
            disk.remove(f"{PATH}/{name}")
    for name, old in stale.items():  # as if its removal had not reached the disk
        disk.create(f"{PATH}/{name}").append([old])
    again = await reopen(disk, mark=12, settings=SMALL)
    assert again.producers == log.producers
    again.abandon()


async def test_a_kill_after_a_checkpoint_reads_little() -> None:
    """The part before the last checkpointed index entry is taken as the indexes describe it, with
    its largest timestamp, its epochs and its producers."""
    disk = MemoryDisk()
    limits = LogSettings(index_interval_bytes=150, retention_ms=None, checkpoint_bytes=1_000)
    log = await new_log(disk, limits)
    times = [5_000 if number == 2 else 1_000 + number for number in range(40)]
    for number, timestamp in enumerate(times):
        part = batch(producer=(5, 0, number), timestamp=timestamp)
        log.append_leader(part, 1 + number // 10, 1_000)
        if number == 30:
            await flush(log, disk)
            mark = await log.checkpoint()
    whole = content(log)
    size = len(whole) // 40
    disk.kill()
    again = await reopen(disk, mark=mark, settings=limits)
    assert 9 * size < again.recovery.scanned_bytes < 15 * size
    assert content(again) == whole
    assert again.producers == log.producers
    assert again.epochs == log.epochs
    assert again.segments[0].max_timestamp == 5_000
    assert again.offset_for_timestamp(1_003) == (2, 5_000)
    assert again.offset_for_timestamp(5_001) is None
    again.truncate(25)  # into the part that was not read
    assert content(again) == whole[: 25 * size]
    again.abandon()


async def test_unfinished_files_are_removed() -> None:
    disk = MemoryDisk()
    await written(disk)
    for name in ("epochs.ckpt.tmp", f"{0:020d}.log.replacement", f"{77:020d}.index"):
        disk.create(f"{PATH}/{name}")
    log = await reopen(disk, settings=ONE_FILE)
    assert all(not name.endswith((".tmp", ".replacement")) for name in disk.list(PATH))
    assert f"{77:020d}.index" not in disk.list(PATH)
    log.abandon()


async def test_a_truncation_that_reached_only_the_new_file() -> None:
    """The old file kept what was cut off, the new one has what came after: the new one is right."""
    disk = MemoryDisk()
    log = await new_log(disk, ONE_FILE)
    for epoch in (1, 1, 2, 2):
        log.append_leader(batch(), epoch, 1_000)
    await flush(log, disk)
    old = disk.content(FIRST)
    log.truncate(2)
    log.append_leader(batch(3), 3, 1_000)
    right = content(log)
    await flush(log, disk)
    disk.kill()
    disk.overwrite(FIRST, old)
    again = await reopen(disk, mark=2, settings=ONE_FILE)
    assert content(again) == right
    assert again.epochs.entries == [(1, 0), (3, 2)]
    again.abandon()


async def test_records_above_the_log_start_only() -> None:
    disk = MemoryDisk()
    await written(disk)
    log = await reopen(disk, log_start=5, settings=ONE_FILE)
    assert log.log_start_offset == 5
    assert log.epochs.entries[0].start == 0
    disk.kill()
    log = await reopen(disk, log_start=500, settings=ONE_FILE)
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)
    log.abandon()


@pytest.mark.parametrize("seed", range(200))
async def test_power_cuts_keep_what_is_durable(seed: int) -> None:
    """Random appends, flushes and truncations, then a power cut: a prefix of some history."""
    rng = random.Random(seed)
    disk = MemoryDisk()
    settings = LogSettings(segment_bytes=rng.choice([300, 900, 9_000]), index_interval_bytes=150)
    log = await new_log(disk, settings)
    await flush(log, disk)
    epoch = 1
    histories = [b""]
    for _ in range(rng.randint(1, 40)):
        step = rng.random()
        if step < 0.7:
            value = bytes([rng.randrange(256)]) * rng.choice([1, 50, 5_000])
            log.append_leader(batch(rng.randint(1, 3), value=value), epoch, 1_000)
        elif step < 0.85:
            await flush(log, disk)
            histories.clear()
        elif log.log_end_offset:
            log.truncate(rng.randint(0, log.log_end_offset))
            epoch += 1
        histories.append(content(log))
    durable = log.locate(0, 1 << 30, log.durable_offset)
    safe = b"" if log.durable_offset == 0 or durable is None else prefix(log, log.durable_offset)
    disk.power_cut(rng)
    again = await reopen(disk, settings=settings)
    assert again.damaged == ()
    got = content(again)
    assert got.startswith(safe)
    assert any(history.startswith(got) for history in histories)
    again.abandon()


async def survivors_of_a_cut_tail(seed: int) -> bool:
    """Two batches are cut off and one of their size comes in their place, all of one term: are the
    records behind a power cut those of some moment?"""
    disk = MemoryDisk()
    log = await new_log(disk, ONE_FILE)
    for value in (b"a", b"b", b"c"):
        log.append_leader(batch(value=value * 700), 1, 1_000)
    await flush(log, disk)
    before = content(log)
    log.truncate(1)
    log.append_leader(batch(value=b"d" * 700), 1, 1_000)
    after = content(log)
    disk.power_cut(random.Random(seed))
    again = await reopen(disk, settings=ONE_FILE)
    got = b"damaged" if again.damaged else content(again)
    again.abandon()
    return before.startswith(got) or after.startswith(got)


async def test_what_is_cut_off_never_mixes_with_what_comes_in_its_place() -> None:
    assert all([await survivors_of_a_cut_tail(seed) for seed in range(100)])


async def test_appending_to_a_file_whose_truncation_is_not_synced_would_mix_them() -> None:
    """Or the test above could not fail."""
    never = mock.PropertyMock(return_value=False)
    with mock.patch.object(Durability, "truncation_pending", never):
        assert not all([await survivors_of_a_cut_tail(seed) for seed in range(100)])


def prefix(log: Log, end: int) -> bytes:
    data = content(log)
    for position, header in iter_batches(data):
        if header.base_offset >= end:
            return data[:position]
    return data
