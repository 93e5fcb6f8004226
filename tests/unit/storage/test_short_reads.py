"""A read may give fewer bytes than there are. Nothing may take that for a file that ends there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from paceline_node.storage import disk as real
from paceline_node.storage import epoch_file
from paceline_node.storage.disk import RealDisk
from paceline_node.storage.log import Log
from paceline_node.storage.log_file import LogFile, Salvage, Unreadable
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.scrubbing import scrub
from tests.unit.storage.test_recovery import ONE_FILE
from tests.unit.storage.world import PATH, batch, content, new_log, reopen

_pread = os.pread


def half(descriptor: int, size: int, position: int) -> bytes:
    return _pread(descriptor, (size + 1) // 2, position)


@pytest.mark.parametrize("clean", [True, False])
async def test_reads_that_give_less_change_nothing(
    clean: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk(str(tmp_path))
    log = await new_log(disk)
    for number in range(20):
        log.append_leader(batch(3, producer=(1, 0, 3 * number)), number // 5 + 1, 1_000)
    whole, epochs = content(log), log.epochs
    await log.close()
    monkeypatch.setattr(real.os, "pread", half)
    again = await reopen(disk, mark=60, clean=clean)
    assert content(again) == whole
    assert (again.epochs, again.damaged, again.recovery.rebuilt) == (epochs, (), ())
    assert await epoch_file.read(disk, PATH) == epochs
    found = again.locate(0, 1 << 20, 60)
    assert found is not None
    assert len(await found.read_async()) == found.size
    again.abandon()
    disk.close()


@pytest.mark.parametrize("in_memory", [False, True])
async def test_a_file_that_was_cut_before_the_place_to_read_has_nothing_there(
    in_memory: bool, tmp_path: Path
) -> None:
    """A reader's thread may come to it behind a truncation. It asked for a negative number of
    bytes more, and the node ended as one whose disk has failed."""
    disk = MemoryDisk() if in_memory else RealDisk(str(tmp_path))
    file = LogFile(disk.create("log"))
    file.append([bytes(10)])
    assert file.pread(10, 50) == await file.read(10, 50) == b""
    assert await Salvage(file).read(10, 50) == b""
    file.close()
    disk.close()


@pytest.mark.parametrize("in_memory", [False, True])
async def test_a_file_that_somebody_else_cut_has_lost_what_it_held(
    in_memory: bool, tmp_path: Path
) -> None:
    """The next scrub ended the node, as one whose disk has failed."""
    disk = MemoryDisk() if in_memory else RealDisk(str(tmp_path))
    log = await new_log(disk, ONE_FILE)
    for _ in range(20):
        log.append_leader(batch(3), 0, 1_000)
    log.seal()
    segment, size = log.segments[0], log.segments[0].size
    if isinstance(disk, MemoryDisk):
        disk.overwrite(segment.path(), disk.content(segment.path())[: size // 2])
    else:
        os.truncate(tmp_path / segment.path(), size // 2)
    told: list[int] = []
    log.watch_reads(lambda base, error: told.append(base))
    with pytest.raises(Unreadable, match=f"the file ends at byte {size // 2}"):
        await segment.file.read(size, 0)
    assert told == [0]
    await scrub(disk, log, 0)
    (damaged,) = log.damaged
    assert (damaged.start, damaged.end) == (30, 60)
    assert damaged.reason == f"cannot be read (the file ends at byte {size // 2})"
    log.abandon()
    disk.close()


async def test_a_log_that_is_cut_while_it_is_scrubbed_is_not_a_failed_disk(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    log = await new_log(disk, ONE_FILE)
    for _ in range(20):
        log.append_leader(batch(3), 0, 1_000)
    disk.read_delay_s = lambda: 1.0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cut_soon, log)
        scrubbed = await scrub(disk, log, 0)
    assert scrubbed.damaged == log.damaged == ()
    assert log.log_end_offset == 3
    log.abandon()


async def _cut_soon(log: Log) -> None:
    await trio.sleep(0.5)
    log.truncate(3)
