"""Lookups by time after a start, with a time index that says something else than the batches."""

from __future__ import annotations

import random
import struct

import pytest

from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.reading import largest_timestamp
from paceline_node.storage.time_index_check import TimesInDoubt
from tests.unit.storage.world import ask, batch, flush, mend, new_log, reopen

SETTINGS = LogSettings(
    segment_bytes=1_500, index_interval_bytes=150, retention_ms=None, checkpoint_bytes=500
)
ENTRY = struct.Struct(">qI")
RISING = [1_000 + 10 * number for number in range(60)]
SPIKED = [9_000 if number % 23 == 9 else at for number, at in enumerate(RISING)]


async def written(disk: MemoryDisk, times: list[int], *, clean: bool) -> Log:
    """A closed, or a killed log, of whose records these are the times."""
    log = await new_log(disk, SETTINGS)
    for at in times:
        log.append_leader(batch(value=b"v" * 40, timestamp=at), 1, 1_000)
        await flush(log, disk)
        await log.checkpoint()
    await flush(log, disk)
    assert len(log.segments) > 3
    if clean:
        await log.close()
    else:
        disk.kill()
    return log


async def newest(disk: MemoryDisk, log: Log, start: int, end: int) -> int:
    for _ in range(2 * len(log.segments)):
        try:
            return largest_timestamp(log.segments, start, end)
        except TimesInDoubt as doubt:
            await mend(disk, log, doubt)
    raise AssertionError("doubted for ever")


def expected(times: list[int], when: int) -> tuple[int, int] | None:
    found = (pair for pair in enumerate(times) if pair[1] >= when)
    return next(found, None)


def hurt(disk: MemoryDisk, path: str, how: str, rng: random.Random) -> None:
    content = bytearray(disk.content(path))
    match how:
        case "cut":
            del content[ENTRY.size :]
        case "flip":
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        case "early":
            entries = [
                (at - (7 if number else 0), offset)
                for number, (at, offset) in enumerate(ENTRY.iter_unpack(bytes(content)))
            ]
            content = bytearray(b"".join(ENTRY.pack(*entry) for entry in entries))
    disk.overwrite(path, bytes(content))


@pytest.mark.parametrize("times", [RISING, SPIKED], ids=["rising", "spiked"])
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("how", ["nothing", "cut", "flip", "early"])
async def test_answers_are_what_the_batches_say(how: str, clean: bool, times: list[int]) -> None:
    for seed in range(1 if how == "nothing" else 12):
        rng = random.Random(f"{seed}{how}")
        disk = MemoryDisk()
        paths = [each.path("") for each in (await written(disk, times, clean=clean)).segments]
        there = [f"{path}.timeindex" for path in paths if disk.exists(f"{path}.timeindex")]
        hurt(disk, rng.choice(there), how, rng)
        log = await reopen(disk, mark=len(times), clean=clean, settings=SETTINGS)
        for when in [*rng.sample(range(990, 1_700), 60), 9_000, 9_001]:
            assert await ask(disk, log, when) == expected(times, when), (seed, when)
        for _ in range(20):
            start, end = sorted(rng.sample(range(61), 2))
            assert await newest(disk, log, start, end) == max(times[start:end]), (seed, start, end)
        log.abandon()


async def test_an_index_of_another_segment_or_log_is_not_believed() -> None:
    disk, elsewhere = MemoryDisk(), MemoryDisk()
    log = await written(disk, RISING, clean=True)
    await written(elsewhere, [at + 3 for at in RISING], clean=True)
    names = [each.path(".timeindex") for each in log.segments]
    for name in names:
        disk.overwrite(name, elsewhere.content(name))
    log = await reopen(disk, mark=60, clean=True, settings=SETTINGS)
    for when in range(990, 1_700, 7):
        assert await ask(disk, log, when) == expected(RISING, when)
    assert all(segment.is_newest_proven for segment in log.segments)
    log.abandon()


async def test_a_sound_index_is_not_made_anew() -> None:
    disk = MemoryDisk()
    await written(disk, RISING, clean=True)
    log = await reopen(disk, mark=60, clean=True, settings=SETTINGS)
    for when in range(990, 1_700, 7):
        assert log.offset_for_timestamp(when) == expected(RISING, when)
    log.abandon()


async def test_what_is_late_for_long_is_read_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal times: one entry stands for all of a segment, which is too much to look at."""
    disk = MemoryDisk()
    await written(disk, [1_000] * 60, clean=True)
    monkeypatch.setattr("paceline_node.storage.time_index_check._AT_ONCE_BYTES", 300)
    log = await reopen(disk, mark=60, clean=True, settings=SETTINGS)
    with pytest.raises(TimesInDoubt, match="far behind"):
        log.offset_for_timestamp(1_001)
    assert await ask(disk, log, 1_001) is None
    assert await ask(disk, log, 1_000) == (0, 1_000)
    log.abandon()


async def test_a_lookup_looks_into_a_few_segments_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    await written(disk, RISING, clean=True)
    monkeypatch.setattr("paceline_node.storage.time_index_check._AT_ONCE_SEGMENTS", 2)
    log = await reopen(disk, mark=60, clean=True, settings=SETTINGS)
    with pytest.raises(TimesInDoubt, match="yet to be looked at") as caught:
        log.offset_for_timestamp(1_590)
    assert caught.value.offset is None
    assert await ask(disk, log, 1_590) == (59, 1_590)
    log.abandon()
