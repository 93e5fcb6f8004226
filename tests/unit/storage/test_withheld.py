"""A leader epoch is marked on disk before anybody is told of a record of it (storage/DESIGN 6.1).
So what a log has of an epoch that its exact mark does not know counts for nothing at first."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
import trio
import trio.testing

from paceline_node.storage.durability import Marked
from paceline_node.storage.durable_marks import DurableMarks
from paceline_node.storage.flusher import Flusher
from paceline_node.storage.layout import PartitionKey
from paceline_node.storage.log import Log
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.opening import open_log
from paceline_node.storage.recovery_report import RecoveryHints
from paceline_node.storage.torn_tail import Ending
from tests.unit.storage.test_recovery import FIRST, ONE_FILE, bounds, written
from tests.unit.storage.world import IDENTITY, PATH, batch, env_on, flush, new_log

KEY: PartitionKey = (IDENTITY.topic_id, 0)


async def opened(
    disk: MemoryDisk, marked: Marked, ending: Ending = Ending.POWER_CUT, *, exact: bool = True
) -> Log:
    """The log of ``written``: epoch 1 up to 3, epoch 2 from 3 to 7, epoch 3 from 7 to 12."""
    hints = RecoveryHints(
        ending,
        recovery_point=marked.offset,
        checkpoint=marked.offset,
        mark=marked,
        mark_exact=exact,
    )
    return await open_log(env_on(disk), PATH, ONE_FILE, hints)


async def log_of_three_epochs() -> tuple[MemoryDisk, Sequence[int]]:
    disk = MemoryDisk()
    await written(disk)
    starts = [offset for _, offset in bounds(disk.content(FIRST))]
    return disk, (starts[2], starts[4], starts[6])


@pytest.mark.parametrize("ending", list(Ending))
async def test_an_epoch_behind_the_mark_counts_once_it_is_proven(ending: Ending) -> None:
    disk, (_, third, end) = await log_of_three_epochs()
    log = await opened(disk, Marked(6, 2, 3), ending)
    assert (log.log_end_offset, log.durable_offset) == (end, third)
    assert not log.is_proven()
    await flush(log, disk)  # no sync makes rot true
    assert log.durable_offset == third
    assert log.marked.offset == third
    assert log.marked.epoch == 2
    assert log.prove()
    assert not log.prove()
    assert log.durable_offset == third  # no mark names the epoch yet
    assert not log.is_proven()
    await flush(log, disk)
    assert log.is_proven()
    assert log.durable_offset == end
    assert log.marked.epoch == 3
    log.abandon()


async def test_the_next_start_withholds_it_again() -> None:
    """Also after an orderly stop: nobody has confirmed anything meanwhile."""
    disk, (_, third, _) = await log_of_three_epochs()
    log = await opened(disk, Marked(6, 2, 3))
    await log.close()
    log = await opened(disk, log.marked, Ending.CLEAN)
    assert not log.damaged
    assert not log.recovery.lost_tail
    assert log.durable_offset == third
    assert not log.is_proven()
    log.abandon()


@pytest.mark.parametrize("offset", [9, 12])
async def test_the_epoch_of_the_mark_is_proven(offset: int) -> None:
    disk, (_, third, end) = await log_of_three_epochs()
    log = await opened(disk, Marked(offset, 3, third))
    assert log.is_proven()
    assert log.durable_offset == end
    log.abandon()


async def test_a_mark_that_others_may_be_ahead_of_withholds_nothing() -> None:
    """Modes that do not wait for the disk tell of a record before it has a mark."""
    disk, (_, _, end) = await log_of_three_epochs()
    log = await opened(disk, Marked(6, 2, 3), exact=False)
    assert log.is_proven()
    assert log.durable_offset == end
    log.abandon()


async def test_what_is_cut_is_withheld_no_more() -> None:
    disk, (_, third, end) = await log_of_three_epochs()
    log = await opened(disk, Marked(6, 2, 3))
    log.truncate(end - 1)
    assert not log.is_proven()
    log.truncate(third)
    assert log.is_proven()
    log.append_leader(batch(), 4, 1_000)
    await flush(log, disk)
    assert log.durable_offset == log.log_end_offset == third + 1
    log.abandon()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("epochs", [(1,), (1, 1, 2), (1, 2, 2, 5)])
async def test_the_mark_of_a_new_epoch_outlives_a_power_cut_once_told(
    epochs: Sequence[int], seed: int
) -> None:
    disk = MemoryDisk()
    log, marks = await marked_log(disk)
    flusher = Flusher(env_on(disk), lambda error: None, marks=marks)
    told: list[Marked] = []
    flusher.register(log, lambda log: told.append(log.marked))
    syncs = []
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: flusher.run(task_status=task_status))
        for epoch in epochs:
            before = disk.sync_count
            log.append_leader(batch(), epoch, 1_000)
            flusher.request(log)
            with trio.fail_after(5):
                while log.durable_offset < log.log_end_offset:
                    await trio.lowlevel.checkpoint()
            syncs.append(disk.sync_count - before)
        nursery.cancel_scope.cancel()
    disk.power_cut(random.Random(seed))
    found = (await DurableMarks(disk).open())[KEY]
    assert found.epoch == told[-1].epoch == epochs[-1]
    # One sync more for each change of the leader, and none otherwise.
    changes = [epoch != before for before, epoch in pairwise((-1, *epochs))]
    assert [count > min(syncs) for count in syncs[1:]] == changes[1:]
    log.abandon()


async def marked_log(disk: MemoryDisk) -> tuple[Log, DurableMarks]:
    log = await new_log(disk)
    await disk.fsync_dir(PATH)
    marks = DurableMarks(disk)
    await marks.open()
    log.mark = marks.of(KEY, log.marked)
    await marks.sync()
    return log, marks


@pytest.mark.parametrize("call", ["sync", "write"])
async def test_a_failed_sync_or_write_of_the_marks_fails_the_disk(call: str) -> None:
    """After a kill a log would be believed to end where an older mark says."""
    disk = MemoryDisk()
    log, marks = await marked_log(disk)
    failures: list[OSError] = []
    flusher = Flusher(env_on(disk), failures.append, marks=marks)
    told: list[int] = []
    flusher.register(log, lambda log: told.append(log.durable_offset))
    log.append_leader(batch(), 1, 1_000)
    flusher.request(log)
    disk.fail_next(call, path="durable.marks")
    with trio.fail_after(5):
        await flusher.run()
    assert (told, len(failures)) == ([], 1)
    assert log.failed is failures[0]
    log.abandon()


async def test_nobody_is_told_while_there_is_no_room_for_the_marks(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = MemoryDisk()
    log, marks = await marked_log(disk)
    env = env_on(disk)
    failures: list[OSError] = []
    told: list[int] = []
    flusher = Flusher(env, failures.append, marks=marks)
    flusher.register(log, lambda log: told.append(log.durable_offset))
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: flusher.run(task_status=task_status))
        log.append_leader(batch(), 1, 1_000)
        flusher.request(log)
        disk.fail_next("write", path="durable.marks", code=errno.ENOSPC)
        await trio.sleep(0.5)
        assert (told, env.waits) == ([], ["waiting for room on the disk: No space left on device"])
        log.append_leader(batch(), 1, 1_000)
        flusher.request(log)
        await trio.sleep(1)
        assert (told, env.waits, failures) == ([2], [], [])
        nursery.cancel_scope.cancel()
    disk.kill()
    assert (await DurableMarks(disk).open())[KEY].offset == 2
    log.abandon()
