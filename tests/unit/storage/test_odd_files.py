"""Files of a log that say what they cannot mean, and repairs that are called out of turn."""

from __future__ import annotations

import struct

import msgpack
import pytest

from paceline.errors import CorruptMessage
from paceline.wire.batch import iter_batches
from paceline_node.storage import checkpoint, damage, scrubbing
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.log import Log
from paceline_node.storage.log_segment import Boundary
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.segment_scan import ScanRules, SegmentScan
from paceline_node.storage.torn_tail import Ending
from tests.unit.storage.test_recovery import FIRST, ONE_FILE, SMALL, bounds, written
from tests.unit.storage.test_repair import part, scrub_all, spoil
from tests.unit.storage.test_repair import written as thirty
from tests.unit.storage.world import PATH, batch, reopen

DAMAGE = f"{PATH}/{damage.NAME}"


async def found_damaged(disk: MemoryDisk) -> Log:
    """A log whose fourth batch was found damaged, opened after that."""
    await written(disk)
    whole = bytearray(disk.content(FIRST))
    whole[bounds(bytes(whole))[3][0] + 70] ^= 1
    disk.overwrite(FIRST, bytes(whole))
    return await reopen(disk, mark=12, settings=ONE_FILE)


async def test_the_list_of_damage_rots_and_everything_is_looked_at_again() -> None:
    disk = MemoryDisk()
    log = await found_damaged(disk)
    (known,) = log.damaged
    await log.close()
    content = bytearray(disk.content(DAMAGE))
    content[-1] ^= 1
    disk.overwrite(DAMAGE, bytes(content))
    disk.kill()
    again = await reopen(disk, mark=12, clean=True, settings=ONE_FILE)
    assert damage.NAME in again.recovery.rebuilt
    assert again.recovery.scanned_bytes > 0
    assert [(each.start, each.end) for each in again.damaged] == [(known.start, known.end)]
    again.abandon()
    assert await damage.read(disk, PATH) == list(again.damaged)


async def test_a_list_of_damage_with_other_fields_is_none() -> None:
    disk = MemoryDisk()
    disk.mkdir("topics")
    disk.mkdir(PATH)
    rows = msgpack.packb([[1, 2, 3]])
    await checkpoint.write(disk, DAMAGE, checkpoint.Kind.DAMAGE, rows)
    with pytest.raises(CorruptMessage, match="expected start, end and reason"):
        await damage.read(disk, PATH)


async def test_a_small_file_that_has_grown_huge_is_not_read() -> None:
    disk = MemoryDisk()
    disk.create("huge").pwrite(b"x", checkpoint.MAX_BYTES)
    with pytest.raises(CorruptMessage, match=f"huge: {checkpoint.MAX_BYTES + 1} bytes"):
        await checkpoint.read_file(disk, "huge")


async def test_a_batch_that_reaches_into_the_next_segment_is_damage() -> None:
    """The one before it is damaged, too, so that it is what the scan would go on with."""
    disk = MemoryDisk()
    log = await written(disk, SMALL)
    first = log.segments[0]
    whole = bytearray(disk.content(first.path()))
    heads = list(iter_batches(bytes(whole)))
    position, last = heads[-1]
    longer = batch(last.next_offset - last.base_offset + 1)
    struct.pack_into(">q", longer, 0, last.base_offset)
    struct.pack_into(">i", longer, 12, last.leader_epoch)
    whole[position:] = longer
    disk.overwrite(first.path(), bytes(whole))
    again = await reopen(disk, mark=0, ending=Ending.KILLED, settings=SMALL)
    # Above the mark it is no loss; the log ends there.
    assert again.log_end_offset == last.base_offset
    again.abandon()


async def test_behind_damage_only_what_fits_the_segment_is_gone_on_with() -> None:
    disk = MemoryDisk()
    log = await written(disk, SMALL)
    first, second = log.segments[0], log.segments[1]
    whole = bytearray(disk.content(first.path()))
    heads = list(iter_batches(bytes(whole)))
    assert len(heads) > 1
    position, last = heads[-1]
    longer = batch(last.next_offset - last.base_offset + 1)
    struct.pack_into(">q", longer, 0, last.base_offset)
    struct.pack_into(">i", longer, 12, last.leader_epoch)
    whole[position:] = longer
    whole[heads[-2][0] + 70] ^= 1
    disk.overwrite(first.path(), bytes(whole))
    disk.remove(f"{PATH}/epochs.ckpt")  # so that nothing is trusted, but all was durable
    again = await reopen(disk, mark=12, settings=SMALL)
    assert [(each.start, each.end) for each in again.damaged] == [
        (heads[-2][1].base_offset, second.base_offset)
    ]
    assert again.log_end_offset == 12
    again.abandon()


async def test_a_file_that_is_shorter_than_it_was_is_a_failed_disk() -> None:
    """Not damage: nobody cuts a file that is being scanned."""
    disk = MemoryDisk()
    await written(disk)
    file = await disk.open(FIRST)
    rules = ScanRules(12, EpochCache(), 0, None)
    scan = SegmentScan(
        file,
        file.size() + 1,
        Boundary(0, 0),
        rules,
        last_epoch=-1,
        visit=lambda header, position: None,
        visit_hole=lambda hole, reason: None,
    )
    with pytest.raises(OSError, match="shorter than it was"):
        await scan.run()


async def test_a_tail_lost_after_a_clean_stop_is_told() -> None:
    disk = MemoryDisk()
    await written(disk)
    whole = disk.content(FIRST)
    disk.overwrite(FIRST, whole[: bounds(whole)[4][0]])
    log = await reopen(disk, mark=12, clean=True, settings=ONE_FILE)
    assert log.recovery.lost_tail
    assert log.log_end_offset == bounds(whole)[4][1]
    log.abandon()


async def test_a_repair_is_called_in_its_order() -> None:
    disk = MemoryDisk()
    log, whole = await thirty(disk)
    spoil(disk, log, 4)
    (damaged,) = await scrub_all(disk, log)
    repair = scrubbing.begin_repair(disk, log, damaged)
    with pytest.raises(CorruptMessage, match="offset 4 is still missing"):
        await repair.finish()
    await repair.fill(part(whole, 4, 5))
    with pytest.raises(CorruptMessage, match="nothing is missing"):
        await repair.fill(part(whole, 5, 6))
    repair.abandon()
    with pytest.raises(CorruptMessage, match="the repair has ended"):
        await repair.finish()
    assert log.damaged == (damaged,)
    log.abandon()


async def test_what_rots_during_a_repair_is_not_taken_over() -> None:
    disk = MemoryDisk()
    log, whole = await thirty(disk)
    spoil(disk, log, 4)
    (damaged,) = await scrub_all(disk, log)
    repair = scrubbing.begin_repair(disk, log, damaged)
    await repair.fill(part(whole, 4, 5))
    spoil(disk, log, 5)
    with pytest.raises(CorruptMessage, match="offset 5"):
        await repair.finish()
    repair.abandon()
    assert log.damaged == (damaged,)
    assert not [name for name in disk.list(log.path) if name.endswith(".replacement")]
    log.abandon()


def test_epoch_tables_equal_only_each_other() -> None:
    assert EpochCache([(1, 0)]) == EpochCache([(1, 0)])
    assert EpochCache([(1, 0)]) != EpochCache([(1, 1)])
    assert EpochCache([(1, 0)]) != [(1, 0)]
