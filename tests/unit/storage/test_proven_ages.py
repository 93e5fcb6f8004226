"""A rotten timestamp, where no checksum covers it, deletes nothing."""

from __future__ import annotations

import pytest

from paceline_node.storage import scrubbing
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from tests.unit.storage.world import StillHost, batch, new_log, reopen

NOW = 1_700_000_000_000
DAY = 24 * 3600 * 1000
SETTINGS = LogSettings(
    segment_bytes=700, index_interval_bytes=150, retention_ms=7 * DAY, checkpoint_bytes=1
)


async def written(disk: MemoryDisk, times: list[int]) -> tuple[list[str], int]:
    """A log whose records have these times, closed; its segments' paths without suffix, its end."""
    host = StillHost()
    host.wall = NOW
    log = await new_log(disk, SETTINGS, host)
    for time in times:
        log.append_leader(batch(value=b"v" * 40, timestamp=time), 1, NOW)
    assert len(log.segments) > 3
    paths, end = [each.path("") for each in log.segments], log.log_end_offset
    await log.close()
    return paths, end


async def opened(disk: MemoryDisk, end: int) -> Log:
    host = StillHost()
    host.wall = NOW
    return await reopen(disk, mark=end, clean=True, settings=SETTINGS, host=host)


def flip(disk: MemoryDisk, path: str, at: int, bit: int = 0x01) -> None:
    content = bytearray(disk.content(path))
    content[at] ^= bit
    disk.overwrite(path, bytes(content))


async def read_all(disk: MemoryDisk, log: Log) -> int:
    """What maintenance does; how many segments were read."""
    count = 0
    while (offset := scrubbing.expiry_in_doubt(log, NOW, log.log_end_offset)) is not None:
        assert count < len(log.segments), "each is read once"
        await scrubbing.scrub(disk, log, offset)
        log.enforce_retention(NOW, log.log_end_offset)
        count += 1
    return count


@pytest.mark.parametrize("hurt", ["every entry", "cut"])
async def test_a_rotten_time_index_expires_nothing(hurt: str) -> None:
    disk = MemoryDisk()
    # In the first segment only the last record has not expired: an index cut short calls it old.
    last = SETTINGS.segment_bytes // len(batch(value=b"v" * 40)) - 1
    times = [NOW - 7 * DAY + number - last for number in range(30)]
    paths, end = await written(disk, times)
    index = f"{paths[0]}.timeindex"
    before = disk.content(index)
    if hurt == "cut":
        disk.overwrite(index, before[:-12])
    else:
        for entry in range(0, len(before), 12):
            flip(disk, index, entry + 2)  # of the time: years
    log = await opened(disk, end)
    assert log.recovery.scanned_bytes == 0, "believed"
    assert log.enforce_retention(NOW, end) == 0
    assert await read_all(disk, log) == 1
    assert log.log_start_offset == 0
    assert log.segments[0].max_timestamp == NOW - 7 * DAY
    assert disk.content(index) == before, "written anew"
    log.abandon()


async def test_a_rotten_first_header_expires_nothing() -> None:
    disk = MemoryDisk()
    paths, end = await written(disk, [NOW] * 30)
    flip(disk, f"{paths[1]}.log", 37)
    log = await opened(disk, end)
    assert log.enforce_retention(NOW, end) == 0
    await read_all(disk, log)
    assert log.log_start_offset == 0
    log.abandon()


async def test_where_only_the_next_one_tells_the_age_it_is_read() -> None:
    disk = MemoryDisk()
    paths, end = await written(disk, [NOW + DAY] * 30)
    flip(disk, f"{paths[1]}.log", 37)
    log = await opened(disk, end)
    assert log.enforce_retention(NOW, end) == 0
    assert await read_all(disk, log) == 2
    assert log.log_start_offset == 0
    assert [each.start for each in log.damaged] == [log.segments[1].base_offset]
    log.abandon()


async def test_what_has_expired_goes_after_it_was_read_once() -> None:
    disk = MemoryDisk()
    _, end = await written(disk, [NOW - 9 * DAY] * 20 + [NOW] * 10)
    log = await opened(disk, end)
    assert log.enforce_retention(NOW, end) == 0
    expired = [each for each in log.segments if each.max_timestamp < NOW - 7 * DAY]
    assert await read_all(disk, log) == len(expired) > 1
    assert log.log_start_offset == expired[-1].next_offset
    log.abandon()


async def test_a_truncation_believes_no_header_either() -> None:
    disk = MemoryDisk()
    log = await new_log(disk, SETTINGS)
    for _ in range(3):
        log.append_leader(batch(value=b"v" * 40, timestamp=NOW), 1, NOW)
    flip(disk, log.segments[0].path(), 37)
    log.truncate(1)
    assert not log.segments[0].is_newest_proven
    log.abandon()
