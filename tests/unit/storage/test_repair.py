"""Scrubbing finds damage in a live log; repair puts back what the leader still has."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
import trio

from paceline.errors import CorruptMessage, StorageError
from paceline.wire.batch import iter_batches
from paceline_node.storage import damage, epoch_file, producer_file, repair, scrubbing, segment_scan
from paceline_node.storage.damage import DamagedRange
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.producers import ProducerTable
from paceline_node.storage.torn_tail import Ending
from tests.unit.storage.repairing import replace_range
from tests.unit.storage.turns import Turns
from tests.unit.storage.world import batch, content, flush, new_log, reopen

SETTINGS = LogSettings(segment_bytes=1_000, index_interval_bytes=150, retention_ms=None)


async def written(disk: MemoryDisk, settings: LogSettings | None = None) -> tuple[Log, bytes]:
    """Thirty single-record batches, ten to an epoch, all durable; and their bytes."""
    log = await new_log(disk, settings or SETTINGS)
    for sequence in range(30):
        log.append_leader(batch(producer=(5, 0, sequence)), sequence // 10 + 1, 1_000)
    await flush(log, disk)
    await log.checkpoint()
    return log, content(log)


def spoil(disk: MemoryDisk, log: Log, *offsets: int, at: int = 70) -> None:
    """Flip a bit in the payload of the batches at these offsets."""
    for offset in offsets:
        found = log.locate(offset, 1, log.log_end_offset)
        assert found is not None
        whole = bytearray(disk.content(found.file.path))
        whole[found.position + at] ^= 1
        disk.overwrite(found.file.path, bytes(whole))


async def scrub_all(disk: MemoryDisk, log: Log) -> list[DamagedRange]:
    found: list[DamagedRange] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        result = await scrubbing.scrub(disk, log, offset)
        assert result.size_bytes > 0
        found += result.damaged
        offset = result.next_offset
    return found


def part(whole: bytes, start: int, end: int) -> memoryview:
    """The leader's bytes of some offsets."""
    size = len(whole) // 30
    return memoryview(whole)[start * size : end * size]


async def test_scrubbing_a_good_log_finds_nothing() -> None:
    disk = MemoryDisk()
    log, _ = await written(disk)
    assert await scrub_all(disk, log) == []
    assert log.damaged == ()
    log.abandon()


async def test_scrubbing_finds_damage_and_it_is_not_served() -> None:
    disk = MemoryDisk()
    log, whole = await written(disk)
    spoil(disk, log, 3, 17)
    found = await scrub_all(disk, log)
    assert [(each.start, each.end) for each in found] == [(3, 4), (17, 18)]
    assert log.damaged == tuple(found)
    with pytest.raises(CorruptMessage, match="offset 17 is damaged"):
        log.locate(17, 1, 30)
    before = log.locate(15, 10_000, 30)
    assert before is not None
    assert bytes(part(whole, 15, 17)).startswith(before.read())
    log.append_leader(batch(), 3, 1_000)  # the log goes on
    await flush(log, disk)
    disk.kill()
    again = await reopen(disk, mark=5, settings=SETTINGS)
    assert [(each.start, each.end) for each in again.damaged] == [(3, 4), (17, 18)]
    again.abandon()


async def test_two_who_find_damage_at_once_note_both() -> None:
    """A node has ended because one took the other's temporary file away."""
    disk = MemoryDisk()
    log, _ = await written(disk)
    victims = (3, 17, 25)
    spoil(disk, log, *victims)
    async with trio.open_nursery() as nursery:
        for offset in victims:
            nursery.start_soon(scrubbing.scrub, disk, log, offset)
    assert [each.start for each in log.damaged] == [*victims]
    assert await damage.read(disk, log.path) == [*log.damaged]
    log.abandon()


@pytest.mark.parametrize("victims", [(0,), (3,), (14,), (29,), (28, 29), (4, 5, 6)])
async def test_repair(victims: tuple[int, ...]) -> None:
    disk = MemoryDisk()
    log, whole = await written(disk)
    spoil(disk, log, *victims)
    (damaged,) = await scrub_all(disk, log)
    assert (damaged.start, damaged.end) == (victims[0], victims[-1] + 1)
    pieces = [part(whole, offset, offset + 1) for offset in victims]
    await replace_range(disk, log, damaged, pieces)
    assert log.damaged == ()
    assert content(log) == whole
    assert log.append_leader(batch(producer=(5, 0, 30)), 3, 1_000).base_offset == 30
    await flush(log, disk)
    disk.power_cut(random.Random(1))
    again = await reopen(disk, mark=31, settings=SETTINGS)
    assert again.damaged == ()
    assert content(again)[: len(whole)] == whole
    assert again.producers == log.producers
    assert again.epochs == log.epochs
    again.abandon()


async def test_no_snapshot_is_kept_of_a_log_with_damage() -> None:
    """Its table does not know what the damaged batches say: a start after the repair would."""
    disk = MemoryDisk()
    log, whole = await written(disk)
    known = log.producers.snapshot()
    spoil(disk, log, 29)
    disk.kill()
    disk.lose(f"{log.path}/{producer_file.name(30)}")
    log = await reopen(disk, mark=30, settings=SETTINGS)
    (damaged,) = log.damaged
    await log.checkpoint()
    await flush(log, disk)
    await replace_range(disk, log, damaged, [part(whole, 29, 30)])
    assert log.producers.snapshot() == known
    await log.checkpoint()
    await flush(log, disk)
    disk.kill()
    again = await reopen(disk, mark=30, settings=SETTINGS)
    assert again.damaged == ()
    assert again.producers.snapshot() == known
    again.abandon()


async def test_what_producers_are_told_anew_is_checked() -> None:
    """The newest snapshot is gone, so a start reads batches that it would not read otherwise."""
    settings = LogSettings(index_interval_bytes=150, checkpoint_bytes=0)
    disk = MemoryDisk()
    log, whole = await written(disk, settings)
    known = log.producers.snapshot()
    spoil(disk, log, 4, at=53)  # its first sequence
    disk.lose(f"{log.path}/{producer_file.name(30)}")
    disk.kill()
    log = await reopen(disk, mark=30, settings=settings)
    (damaged,) = log.damaged
    assert (damaged.start, damaged.end) == (4, 5)
    await replace_range(disk, log, damaged, [part(whole, 4, 5)])
    assert log.producers.snapshot() == known
    log.abandon()


async def test_repair_after_recovery_knows_the_epochs_inside() -> None:
    """An epoch that lies wholly in the damage: the table knew it, the batches cannot tell."""
    disk = MemoryDisk()
    log = await new_log(disk, LogSettings(index_interval_bytes=150))
    for offset in range(6):
        log.append_leader(batch(producer=(5, 0, offset)), (1, 1, 2, 4, 5, 5)[offset], 1_000)
    await flush(log, disk)
    mark = await log.checkpoint()
    whole = content(log)
    size = len(whole) // 6
    spoil(disk, log, 2, 3)
    disk.kill()
    log = await reopen(disk, mark=mark, settings=LogSettings(index_interval_bytes=150))
    (damaged,) = log.damaged
    assert (damaged.start, damaged.end) == (2, 4)
    assert log.epochs.entries == [(1, 0), (2, 2), (4, 3), (5, 4)]
    await replace_range(disk, log, damaged, [memoryview(whole)[2 * size : 4 * size]])
    assert content(log) == whole
    assert log.epochs.entries == [(1, 0), (2, 2), (4, 3), (5, 4)]
    state = log.producers.get((0, (5).to_bytes(16, "big")))
    assert state is not None
    assert [entry.first_sequence for entry in state.window] == [1, 2, 3, 4, 5]
    log.abandon()


async def test_several_holes_in_one_segment() -> None:
    disk = MemoryDisk()
    log, whole = await written(disk)
    spoil(disk, log, 2, 5)
    await scrub_all(disk, log)
    repair = scrubbing.begin_repair(disk, log, log.damaged[0])
    asked = []
    while repair.missing is not None:
        asked.append(repair.missing)
        await repair.fill(part(whole, *repair.missing))
    assert asked == [(2, 3), (5, 6)]
    await scrubbing.finish_repair(disk, log, repair)
    assert log.damaged == ()
    assert content(log) == whole
    log.abandon()


@pytest.mark.parametrize(
    "fault", ["wrong offset", "too long", "bad checksum", "wrong epoch", "short"]
)
async def test_a_wrong_replacement_is_refused(fault: str) -> None:
    disk = MemoryDisk()
    log, whole = await written(disk)
    spoil(disk, log, 4, 5)
    (damaged,) = await scrub_all(disk, log)
    data = bytearray(part(whole, 4, 6))
    if fault == "wrong offset":
        data = bytearray(part(whole, 5, 6))
    elif fault == "too long":
        data = bytearray(part(whole, 4, 7))
    elif fault == "bad checksum":
        data[-1] ^= 1
    elif fault == "wrong epoch":
        data[15] = 2
    else:
        data = bytearray(part(whole, 4, 5))
    names = disk.list(log.path)
    with pytest.raises(CorruptMessage):
        await replace_range(disk, log, damaged, [memoryview(data)])
    assert log.damaged == (damaged,)
    assert [n for n in disk.list(log.path) if "replacement" in n] == []
    assert set(disk.list(log.path)) >= set(names)
    await replace_range(disk, log, damaged, [part(whole, 4, 6)])
    assert content(log) == whole
    log.abandon()


async def test_the_leaders_epoch_table_decides() -> None:
    disk = MemoryDisk()
    log, whole = await written(disk)
    spoil(disk, log, 4)
    (damaged,) = await scrub_all(disk, log)
    other = EpochCache([(1, 0), (2, 4), (3, 20)])
    with pytest.raises(CorruptMessage, match="does not fit offset 4, epoch 2"):
        await replace_range(disk, log, damaged, [part(whole, 4, 5)], other)
    log.abandon()


async def test_bytes_behind_the_end_of_a_damaged_log_stay_damage() -> None:
    """A rotten epoch made all behind it look bad, so the log ended there; read again by a better
    table it is good. The bytes that nobody counts any more must neither be kept nor appended to."""
    disk = MemoryDisk()
    log, whole = await written(disk, replace(SETTINGS, segment_bytes=1 << 20))
    theirs = EpochCache(log.epochs.entries)
    spoil(disk, log, 4, at=14)
    log.abandon()
    disk.remove(f"{log.path}/{epoch_file.NAME}")
    log = await reopen(disk, mark=2, ending=Ending.POWER_CUT, settings=log.settings)
    assert log.log_end_offset == 6
    log.epochs.lower(3)
    await scrubbing.scrub(disk, log, 4)
    assert log.damaged
    while log.damaged:
        damaged = log.damaged[0]
        repair = scrubbing.begin_repair(disk, log, damaged, theirs)
        while repair.missing is not None:
            await repair.fill(part(whole, *repair.missing))
        await scrubbing.finish_repair(disk, log, repair)
    assert content(log) == bytes(part(whole, 0, 6))
    log.append_follower(part(whole, 6, 30))
    assert content(log) == whole
    assert await scrub_all(disk, log) == []
    log.abandon()


@pytest.mark.parametrize("change", ["truncated", "retained"])
async def test_a_segment_that_changed_meanwhile(change: str) -> None:
    disk = MemoryDisk()
    log, whole = await written(disk)
    spoil(disk, log, 4)
    (damaged,) = await scrub_all(disk, log)
    repair = scrubbing.begin_repair(disk, log, damaged)
    await repair.fill(part(whole, 4, 5))
    if change == "truncated":
        log.truncate(6)
    else:
        log.advance_start(30)
        log.start_written(30)
    with pytest.raises(LookupError):
        await scrubbing.finish_repair(disk, log, repair)
    repair.abandon()
    assert [n for n in disk.list(log.path) if "replacement" in n] == []
    if change == "retained":
        assert log.damaged == ()
        with pytest.raises(LookupError):
            scrubbing.begin_repair(disk, log, damaged)
    log.abandon()


@pytest.mark.parametrize("seed", range(30))
async def test_a_power_cut_during_repair_leaves_damage_or_the_repaired_log(seed: int) -> None:
    rng = random.Random(seed)
    disk = MemoryDisk()
    log, whole = await written(disk)
    spoil(disk, log, 4)
    (damaged,) = await scrub_all(disk, log)
    repair = scrubbing.begin_repair(disk, log, damaged)
    await repair.fill(part(whole, 4, 5))
    if seed % 3:
        replaced = await repair.finish()
        if seed % 3 == 2:
            log.adopt(repair.damaged, replaced)
    disk.power_cut(rng)
    again = await reopen(disk, mark=30, settings=SETTINGS)
    if again.damaged:
        (still,) = again.damaged
        assert (still.start, still.end) == (4, 5)
        await replace_range(disk, again, still, [part(whole, 4, 5)])
    assert content(again) == whole
    again.abandon()


async def test_truncation_and_retention_forget_damage() -> None:
    disk = MemoryDisk()
    log, _ = await written(disk)
    spoil(disk, log, 4, 25)
    await scrub_all(disk, log)
    log.truncate(20)
    assert [each.start for each in log.damaged] == [4]
    log.advance_start(log.segments[-1].base_offset)
    assert log.damaged == ()
    log.abandon()


async def test_a_failed_log_is_not_repaired() -> None:
    disk = MemoryDisk()
    log, whole = await written(disk)
    spoil(disk, log, 4)
    (damaged,) = await scrub_all(disk, log)
    repair = scrubbing.begin_repair(disk, log, damaged)
    await repair.fill(part(whole, 4, 5))
    log.fail(OSError(5, "Input/output error"))
    with pytest.raises(StorageError):
        await scrubbing.finish_repair(disk, log, repair)
    repair.abandon()
    assert [n for n in disk.list(log.path) if "replacement" in n] == []
    log.abandon()


def test_part_is_one_batch() -> None:
    data = bytes(batch()) * 30
    assert len(list(iter_batches(bytes(part(data, 3, 4))))) == 1


# --- the event loop -------------------------------------------------------------------------------

FEW = 4


async def steps_of_a_repair(monkeypatch: pytest.MonkeyPatch) -> dict[str, Counter[int]]:
    """How many batches are looked at in each turn of the loop while 17 are put back: in what is
    fetched, in the check of the new segment, and in what the producers are to know again."""
    turns = Turns()
    steps = {what: Counter[int]() for what in ("fetched", "checked", "noted")}
    disk = MemoryDisk()
    log, whole = await written(disk, LogSettings())
    spoil(disk, log, *range(3, 20))
    (damaged,) = await scrub_all(disk, log)
    monkeypatch.setattr(repair, "verify", turns.counting(steps["fetched"], repair.verify))
    monkeypatch.setattr(
        segment_scan, "batch_crc", turns.counting(steps["checked"], segment_scan.batch_crc)
    )
    noted = turns.counting(steps["noted"], ProducerTable.note)
    monkeypatch.setattr(ProducerTable, "note", noted)
    log.producers._forgot_at = log.log_end_offset  # nothing is known of what the repair brings
    before = log.producers.snapshot()
    async with turns.counted():
        await replace_range(disk, log, damaged, [part(whole, 3, 20)])
    assert content(log) == whole
    assert log.producers.snapshot() == before
    assert log.producers.transactions.known_to is None
    assert all(counts.total() >= 17 for counts in steps.values())
    return steps


async def test_a_repair_works_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two turns of the loop a few batches are looked at, however many there are."""
    for module in (segment_scan, repair, producer_file):
        monkeypatch.setattr(module, "SLICE_BATCHES", FEW)
    for what, counts in (await steps_of_a_repair(monkeypatch)).items():
        assert max(counts.values()) <= FEW, (what, counts)


async def test_a_repair_that_holds_the_loop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: no pause, however many batches there are."""
    for module in (segment_scan, repair, producer_file):
        monkeypatch.setattr(module, "SLICE_BATCHES", 1_000_000)
    for what, counts in (await steps_of_a_repair(monkeypatch)).items():
        assert max(counts.values()) > FEW, (what, counts)
