"""A compaction that stops at every step, by a kill or a power cut: the log is whole each time."""

from __future__ import annotations

import errno
import os
import random

import pytest

from paceline_node.storage.compaction_file import CLEANED
from paceline_node.storage.log_file import Unreadable
from paceline_node.storage.memory_disk import MemoryDisk, MemoryFile
from paceline_node.storage.verify import verify_log
from tests.unit.storage.keyed import compact, keyed, keyed_log, last_values, visible
from tests.unit.storage.world import PATH, flush, reopen


class Stopped(Exception):
    """The machine stopped here."""


class StoppingDisk(MemoryDisk):
    """Stops at the n-th operation that changes or syncs something. What ends in ``rotten`` cannot
    be opened."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.rotten = ""

    async def open(self, path: str) -> MemoryFile:
        if self.rotten and path.endswith(self.rotten) and self.exists(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return await super().open(path)

    def step(self) -> None:
        if self.left is not None:
            if self.left == 0:
                raise Stopped
            self.left -= 1

    def charge(self, count: int, path: str) -> None:
        self.step()
        super().charge(count, path)

    def rename(self, old: str, new: str) -> None:
        self.step()
        super().rename(old, new)

    def remove(self, path: str) -> None:
        if self.exists(path):
            self.step()
        super().remove(path)

    async def _sync_pause(self) -> None:
        self.step()
        await super()._sync_pause()


async def crash_at(step: int, seed: int | None) -> bool:
    """Compact, stop at a step, lose power (or only the process), recover; False when the
    compaction was over before."""
    disk = StoppingDisk()
    log = await keyed_log(disk, 12)
    for sequence in range(6):
        log.append_leader(keyed([(b"k0", b"p")], producer=(3, 0, sequence)), 2, 1_000)
    log.seal()
    await flush(log, disk)
    await log.checkpoint()
    expected = last_values(visible(log))
    producers, epochs, end = log.producers.snapshot(), log.epochs.entries, log.log_end_offset
    disk.left = step
    finished = True
    try:
        await compact(disk, log)
    except Stopped:
        finished = False
    disk.left = None
    if seed is None:
        disk.kill()
    else:
        disk.power_cut(random.Random(seed))
    for again in (1, 2):  # and once more: recovery itself must leave a whole log
        log = await reopen(disk, mark=end)
        assert log.damaged == (), (step, again)
        assert log.recovery.truncated_bytes == 0, (step, again)
        assert (log.log_start_offset, log.log_end_offset) == (0, end)
        assert last_values(visible(log)) == expected
        assert log.producers.snapshot() == producers
        assert log.epochs.entries == epochs
        assert not [name for name in disk.list(PATH) if name.endswith(".cleaned")]
        log.abandon()
        disk.power_cut(random.Random(step))
    log = await reopen(disk, mark=end)
    await compact(disk, log)
    assert len(visible(log)) == 3
    assert last_values(visible(log)) == expected
    assert (await verify_log(disk, PATH, recovery_point=end)).findings == ()
    log.abandon()
    return not finished


@pytest.mark.parametrize("seed", [None, *range(6)])
async def test_a_crash_at_every_step(seed: int | None) -> None:
    step = 0
    while await crash_at(step, seed):
        step += 1
    assert step > 20


async def test_a_crash_at_every_step_of_recovery() -> None:
    """Opening finishes a replacement: that may be cut short as well."""
    steps = 0
    for stop in range(8, 40):
        for step in range(12):
            disk = StoppingDisk()
            log = await keyed_log(disk, 8)
            expected, end = last_values(visible(log)), log.log_end_offset
            disk.left = stop
            try:
                await compact(disk, log)
            except Stopped:
                pass
            else:
                break
            disk.kill()
            disk.left = step
            try:
                log = await reopen(disk, mark=end)
                log.abandon()
            except Stopped:
                steps += 1
            disk.left = None
            disk.power_cut(random.Random(stop * 100 + step))
            log = await reopen(disk, mark=end)
            assert log.damaged == ()
            assert log.log_end_offset == end
            assert last_values(visible(log)) == expected
            log.abandon()
    assert steps > 20


async def replacing(stop: int) -> tuple[StoppingDisk, dict[bytes, bytes], int] | None:
    """A log whose compaction a kill has stopped, what it holds, and its end; None: it was over."""
    disk = StoppingDisk()
    log = await keyed_log(disk, 8)
    expected, end = last_values(visible(log)), log.log_end_offset
    disk.left = stop
    try:
        await compact(disk, log)
    except Stopped:
        disk.left = None
        disk.kill()
        return disk, expected, end
    return None


async def test_a_replacement_that_cannot_be_opened_takes_no_place() -> None:
    """The old segments are whole, and the log was set aside with them."""
    stop = found = 0
    while (stopped := await replacing(stop)) is not None:
        disk, expected, end = stopped
        found += any(name.endswith(CLEANED) for name in disk.list(PATH))
        disk.rotten = CLEANED
        log = await reopen(disk, mark=end)
        assert (log.damaged, log.log_end_offset) == ((), end)
        assert last_values(visible(log)) == expected
        log.abandon()
        stop += 1
    assert found > 5


async def test_an_old_segment_that_cannot_be_opened_is_damage() -> None:
    """Nobody can tell whether it is what was replaced."""
    stop = refused = 0
    while (stopped := await replacing(stop)) is not None:
        disk, expected, end = stopped
        for name in [name for name in disk.list(PATH) if name.endswith(".log")]:
            disk.rotten = name
            try:
                log = await reopen(disk, mark=end)
            except Unreadable:
                refused += 1
            else:
                assert last_values(visible(log)) == expected
                log.abandon()
        stop += 1
    assert refused > 5
