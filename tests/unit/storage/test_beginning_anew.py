"""Logs that are cut back to nothing or begin elsewhere: without room, and at every crash point."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from paceline.errors import StorageFull
from paceline_node.env import is_full
from paceline_node.storage.descriptors import Descriptors
from paceline_node.storage.disk import RealDisk
from paceline_node.storage.durability import Marked
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.producers import FrozenTable
from tests.unit.storage.test_compaction_crashes import Stopped, StoppingDisk
from tests.unit.storage.world import PATH, batch, content, flush, new_log, reopen

END = 20
ELSEWHERE = 1_000


def begin_elsewhere(log: Log) -> None:
    log.begin_at(FrozenTable(ELSEWHERE), is_kept=True)


def cut_to_nothing(log: Log) -> None:
    log.truncate(0)


WAYS = pytest.mark.parametrize("way", [begin_elsewhere, cut_to_nothing])


async def filled(disk: MemoryDisk | RealDisk) -> Log:
    log = await new_log(disk)
    for sequence in range(END):
        log.append_leader(batch(producer=(1, 0, sequence)), 3, 1_000)
    await flush(log, disk)
    assert len(log.segments) > 2
    return log


class Mark:
    """What the node would write down of the log's durable offset."""

    def __init__(self) -> None:
        self.offset = END

    def reach(self, told: Marked) -> None:
        self.offset = max(self.offset, told.offset)

    def lower(self, told: Marked) -> None:
        self.offset = min(self.offset, told.offset)


@WAYS
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
async def test_without_room_for_the_new_file_nothing_is_given_up(way, code: int) -> None:  # type: ignore[no-untyped-def]
    disk = MemoryDisk()
    log = await filled(disk)
    log.mark = mark = Mark()
    before = content(log)
    disk.fail_next("create", code=code)
    with pytest.raises(StorageFull, match=os.strerror(code)):
        way(log)
    assert log.failed is None
    assert content(log) == before
    assert mark.offset == END
    assert log.append_leader(batch(producer=(1, 0, END)), 3, 1_000).base_offset == END
    await flush(log, disk)
    disk.power_cut(random.Random(1))
    log.abandon()
    log = await reopen(disk, mark=END + 1)
    assert content(log)[: len(before)] == before
    assert log.damaged == ()

    way(log)  # the room is there again
    start = log.log_end_offset
    log.append_leader(batch(2), 4, 1_000)
    await flush(log, disk)
    await log.checkpoint()
    log.abandon()
    disk.kill()
    log = await reopen(disk, mark=start + 2)
    assert (log.log_start_offset, log.log_end_offset) == (start, start + 2)
    assert log.epochs.entries == [(4, start)]
    log.abandon()


@WAYS
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
async def test_without_room_for_the_new_name_nothing_is_taken(way, code: int) -> None:  # type: ignore[no-untyped-def]
    """What was given up is gone by then; the disk is sound, so the node must not end for it."""
    disk = MemoryDisk()
    log = await filled(disk)
    disk.fail_next("rename", code=code)
    way(log)
    start = log.log_end_offset
    assert log.failed is None
    for _ in range(3):
        disk.fail_next("rename", code=code)
        with pytest.raises(StorageFull, match=os.strerror(code)):
            log.append_leader(batch(2), 4, 1_000)
    assert (log.log_end_offset, log.failed) == (start, None)
    disk.fail_next("rename", code=code)
    with pytest.raises(StorageFull):
        log.begin_at(FrozenTable(2 * ELSEWHERE), is_kept=True)
    assert log.append_leader(batch(2), 4, 1_000).base_offset == start
    await flush(log, disk)
    await log.checkpoint()
    log.abandon()
    disk.power_cut(random.Random(1))
    log = await reopen(disk, mark=start + 2)
    assert (log.log_start_offset, log.log_end_offset) == (start, start + 2)
    assert log.damaged == ()
    log.abandon()


async def test_a_cut_that_must_read_without_a_descriptor_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its producers wrote lies in files that rest: nothing is cut before they are had."""
    disk = RealDisk(str(tmp_path), most_open=4)
    log = await filled(disk)
    whole = content(log)
    await log.close()
    log = await reopen(disk, clean=True, mark=END)
    others = [disk.create(f"other-{number}") for number in range(20)]
    cut = log.segments[-1].base_offset

    oldest, have = log.segments[0].file.path, Descriptors.open

    def none_left(self: Descriptors, path: str, flags: int, mode: int = 0o644) -> int:
        if path.endswith(oldest):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return have(self, path, flags, mode)

    with monkeypatch.context() as starved:
        starved.setattr(Descriptors, "open", none_left)
        with pytest.raises(StorageFull, match="Too many open files"):
            log.truncate(cut)
    assert log.failed is None
    assert content(log) == whole
    log.truncate(cut)
    other = await new_log(MemoryDisk())
    other.append_follower(memoryview(whole)[: len(content(log))])
    assert log.producers.snapshot() == other.producers.snapshot()
    for each in others:
        each.close()
    other.abandon()
    log.abandon()
    disk.close()


@WAYS
async def test_a_crash_at_every_step(way) -> None:  # type: ignore[no-untyped-def]
    """There is the old log, or the first part of it, or the new, empty one; never anything else."""
    steps = set()
    for step in range(40):
        for seed in range(8):
            disk = StoppingDisk()
            log = await filled(disk)
            before = content(log)
            disk.left = step
            try:
                way(log)
                await flush(log, disk)
            except Stopped:
                steps.add(step)
            disk.left = None
            log.abandon()
            disk.power_cut(random.Random(seed))
            log = await reopen(disk)
            found = content(log)
            if found or log.log_end_offset == 0:
                assert log.log_start_offset == 0
                assert before.startswith(found)
            else:
                assert (log.log_start_offset, log.log_end_offset) == (ELSEWHERE, ELSEWHERE)
            assert log.damaged == ()
            names = {name for name in disk.list(PATH) if ".log" in name}
            assert names == {f"{each.base_offset:020d}.log" for each in log.segments}
            log.append_leader(batch(), 9, 1_000)
            await flush(log, disk)
            log.abandon()
    assert len(steps) > 5


async def test_an_opening_that_begins_anew_waits_for_room() -> None:
    """Its log start lies behind its end: whoever opens it is told what the disk said."""
    disk = MemoryDisk()
    log = await filled(disk)
    await log.close()
    disk.fail_next("create", code=errno.EMFILE, path=f"{ELSEWHERE}")
    with pytest.raises(OSError, match="Too many open files") as refused:
        await reopen(disk, clean=True, mark=END, log_start=ELSEWHERE)
    assert is_full(refused.value)
    log = await reopen(disk, clean=True, mark=END, log_start=ELSEWHERE)
    assert (log.log_start_offset, log.log_end_offset) == (ELSEWHERE, ELSEWHERE)
    log.abandon()


@WAYS
async def test_on_real_files_the_new_one_is_used_under_its_name(way, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Also once it has rested without a descriptor, which it gets again by its name."""
    disk = RealDisk(str(tmp_path), most_open=4)
    log = await filled(disk)
    way(log)
    start = log.log_end_offset
    log.append_leader(batch(3), 4, 1_000)
    await flush(log, disk)
    others = [disk.create(f"other-{number}") for number in range(20)]
    log.append_leader(batch(3), 4, 1_000)
    await flush(log, disk)
    assert log.log_end_offset == start + 6
    assert [name for name in disk.list(PATH) if ".log" in name] == [f"{start:020d}.log"]
    for other in others:
        other.close()
    await log.close()
    log = await reopen(disk, clean=True, mark=start + 6, settings=LogSettings())
    assert log.log_end_offset == start + 6
    log.abandon()
    disk.close()
