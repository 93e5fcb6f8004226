"""Damage that the log start passes is never repaired: what its records have said must be known all
the same, or the state is missing and comes from the leader."""

from __future__ import annotations

import pytest

from paceline_node.storage import anchors, producer_file, scrubbing
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.producers import ProducerTable
from paceline_node.storage.torn_tail import Ending
from tests.unit.storage.test_repair import spoil
from tests.unit.storage.world import IDENTITY, PATH, StillHost, batch, flush, new_log, reopen

SETTINGS = LogSettings(
    segment_bytes=100_000, index_interval_bytes=150, retention_ms=60_000, segment_ms=60_000
)


async def written(disk: MemoryDisk, host: StillHost | None = None) -> Log:
    """Batches 0..9 and 13 are producer 5's; 10..12 are all that producer 6 wrote."""
    log = await new_log(disk, SETTINGS, host=host)
    for sequence in range(10):
        log.append_leader(batch(producer=(5, 0, sequence)), 1, 1_000)
    for sequence in range(3):
        log.append_leader(batch(producer=(6, 0, sequence)), 1, 1_000)
    log.append_leader(batch(producer=(5, 0, 10)), 1, 1_000)
    await flush(log, disk)
    await log.write_epochs()
    return log


async def snapshot_at_end(disk: MemoryDisk, log: Log) -> None:
    log.take_snapshot()
    await flush(log, disk)


async def knows(log: Log, disk: MemoryDisk) -> tuple[bool, bool]:
    """Whether producer 6 is known here, and to who begins with this log's state."""
    assert log.state_offset is not None
    kept = await producer_file.read(disk, PATH, log.state_offset, IDENTITY.owner)
    assert kept is not None
    theirs = ProducerTable()
    theirs.load(kept.table)
    end = log.log_end_offset
    producer_file.replay(log.segments, theirs, log.state_offset, end)
    return log.producers.producer(6) is not None, theirs.producer(6) is not None


def is_lost(log: Log) -> bool:
    """Whether the whole log is to come from the leader."""
    return log.is_damaged and not log.state.is_founded and log.state_offset is None


@pytest.mark.parametrize("ending", [Ending.KILLED, Ending.POWER_CUT])
async def test_a_hole_below_a_trimmed_start_takes_the_state_along(ending: Ending) -> None:
    disk = MemoryDisk()
    log = await written(disk)
    spoil(disk, log, 10, 11, 12)
    disk.kill()
    log.abandon()
    for _ in range(2):  # and no start after it believes a snapshot of the one before
        log = await reopen(disk, mark=14, log_start=13, ending=ending, settings=SETTINGS)
        assert is_lost(log)
        assert not producer_file.offsets(disk.list(PATH))
        await log.close()


async def test_a_later_snapshot_founds_the_state() -> None:
    disk = MemoryDisk()
    log = await written(disk)
    await snapshot_at_end(disk, log)
    spoil(disk, log, 10, 11, 12)
    log.append_leader(batch(producer=(5, 0, 11)), 1, 1_000)
    await flush(log, disk)
    disk.kill()
    log.abandon()
    log = await reopen(disk, mark=15, log_start=13, ending=Ending.KILLED, settings=SETTINGS)
    assert not log.is_damaged
    await log.write_state()
    await anchors.renew(disk, log, log.log_end_offset)
    assert await knows(log, disk) == (True, True)
    log.abandon()


async def test_a_hole_that_expires_takes_the_state_along() -> None:
    disk, host = MemoryDisk(), StillHost()
    log = await written(disk, host)
    spoil(disk, log, 10, 11, 12)
    disk.kill()
    log.abandon()
    log = await reopen(disk, mark=14, ending=Ending.KILLED, settings=SETTINGS, host=host)
    assert log.damaged
    assert not log.state.is_missing
    for _ in range(2):  # the damaged segment is as old as its last write may be
        host.wall += 120_000
        log.enforce_retention(host.wall, 14)
        if (doubted := scrubbing.expiry_in_doubt(log, host.wall, 14)) is not None:
            await scrubbing.scrub(disk, log, doubted)
    log.enforce_retention(host.wall, 14)
    assert log.log_start_offset == 14
    assert is_lost(log)
    log.abandon()


async def test_damage_found_by_a_scrub_takes_nothing_along() -> None:
    """The table had seen these records; who begins behind them must know of them, too."""
    disk = MemoryDisk()
    log = await written(disk)
    spoil(disk, log, 10, 11, 12)
    await scrubbing.scrub(disk, log, 0)
    assert log.damaged
    log.advance_start(13)
    assert not log.is_damaged
    await anchors.renew(disk, log, log.log_end_offset)
    assert log.state_offset == 13
    assert await knows(log, disk) == (True, True)
    log.abandon()


async def test_what_a_cut_reads_again_around_a_hole_is_lost() -> None:
    disk = MemoryDisk()
    log = await written(disk)
    spoil(disk, log, 10, 11, 12)
    await scrubbing.scrub(disk, log, 0)
    log.advance_start(13)
    for sequence in range(11, 9_000):  # more than can be undone
        log.append_leader(batch(producer=(5, 0, sequence)), 1, 1_000)
    log.truncate(20)
    assert is_lost(log)
    log.abandon()


async def test_a_hole_that_can_be_read_again_is_replayed() -> None:
    """The disk had failed to give some bytes at the start, or a wrong epoch table had condemned
    them: the producers had been read around them."""
    disk = MemoryDisk()
    log = await written(disk)
    spoil(disk, log, 10, 11, 12)
    places = [log.segments[0].find(offset) for offset in (10, 11, 12)]
    disk.kill()
    log.abandon()
    log = await reopen(disk, mark=14, ending=Ending.KILLED, settings=SETTINGS)
    path = log.segments[0].path()
    whole = bytearray(disk.content(path))
    for place in places:
        assert place is not None
        whole[place.position + 70] ^= 1
    disk.overwrite(path, bytes(whole))
    await scrubbing.scrub(disk, log, 0)
    assert not log.is_damaged
    await scrubbing.rebuild_producers(log)
    assert log.producers.producer(6) is not None
    log.advance_start(13)
    assert not log.is_damaged
    log.abandon()


@pytest.mark.parametrize("snapshot", ["kept", "rotten", "lost"])
async def test_a_log_cut_below_its_start_goes_on_with_the_state_that_is_kept(
    snapshot: str,
) -> None:
    disk = MemoryDisk()
    log = await written(disk)
    log.advance_start(14)
    log.start_written(14)
    await log.close()
    path = f"{PATH}/{producer_file.name(14)}"
    if snapshot == "lost":
        disk.remove(path)
    elif snapshot == "rotten":
        disk.overwrite(path, disk.content(path)[:-1])
    segment = log.segments[0].path()
    whole = disk.content(segment)
    disk.overwrite(segment, whole[: len(whole) // 14 * 5])
    log = await reopen(disk, mark=14, log_start=14, clean=True, settings=SETTINGS)
    assert (log.log_start_offset, log.log_end_offset) == (14, 14)
    if snapshot == "kept":
        assert not log.is_damaged
        assert await knows(log, disk) == (True, True)
    else:
        assert is_lost(log)
    log.abandon()


async def test_an_operators_word_for_what_is_left_lasts() -> None:
    disk = MemoryDisk()
    log = await written(disk)
    spoil(disk, log, 10, 11, 12)
    disk.kill()
    log.abandon()
    log = await reopen(disk, mark=14, log_start=13, ending=Ending.KILLED, settings=SETTINGS)
    await anchors.believe_own(disk, log, log.log_end_offset)
    await anchors.renew(disk, log, log.log_end_offset)
    await flush(log, disk)
    assert log.state_offset == 13
    disk.kill()
    log.abandon()
    log = await reopen(disk, mark=14, log_start=13, ending=Ending.KILLED, settings=SETTINGS)
    assert not log.is_damaged
    assert log.producers.producer(5) is not None
    log.abandon()
