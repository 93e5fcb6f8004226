"""Leader epochs that rotted, or whose table is old: the mark of a log knows its newest epoch."""

from __future__ import annotations

import pytest

from paceline_node.storage import epoch_file
from paceline_node.storage.durability import Marked
from paceline_node.storage.epochs import EpochCache, EpochStart
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.opening import open_log
from paceline_node.storage.recovery_report import RecoveryHints
from paceline_node.storage.scrubbing import scrub
from paceline_node.storage.torn_tail import Ending
from tests.unit.storage.test_recovery import FIRST, ONE_FILE, bounds, restore, written
from tests.unit.storage.world import IDENTITY, PATH, batch, env_on, flush, new_log


@pytest.mark.parametrize("ending", [Ending.KILLED, Ending.POWER_CUT])
async def test_the_mark_knows_the_newest_epoch(ending: Ending) -> None:
    """A field of a batch's header that its checksum does not cover; no table is as new."""
    disk = MemoryDisk()
    await written(disk)
    whole = disk.content(FIRST)
    edges = bounds(whole)
    names = disk.list(PATH)
    kept = {name: disk.content(f"{PATH}/{name}") for name in names}
    marked = Marked(12, 3, edges[4][1])
    hints = RecoveryHints(ending, recovery_point=12, checkpoint=edges[4][1], mark=marked)
    for number, epoch in ((4, 2), (4, 4), (4, 259), (5, 2), (5, 4), (5, 3 << 24)):
        position, start = edges[number]
        rotten = whole[: position + 12] + epoch.to_bytes(4, "big") + whole[position + 16 :]
        restore(disk, {**kept, FIRST.rpartition("/")[2]: rotten})
        log = await open_log(env_on(disk), PATH, ONE_FILE, hints)
        assert [(d.start, d.end) for d in log.damaged] == [(start, edges[number + 1][1])], epoch
        assert log.epochs.entries[-1] == (3, edges[4][1])
        disk.kill()


async def test_an_epoch_table_older_than_a_clean_stop_is_not_believed() -> None:
    disk = MemoryDisk()
    await written(disk)
    edges = bounds(disk.content(FIRST))
    older = [EpochStart(1, 0), EpochStart(2, edges[2][1])]
    await epoch_file.write(disk, PATH, IDENTITY.owner, older)
    hints = RecoveryHints(Ending.CLEAN, recovery_point=12, mark=Marked(12, 3, edges[4][1]))
    log = await open_log(env_on(disk), PATH, ONE_FILE, hints)
    assert log.epochs.entries[-1] == (3, edges[4][1])
    assert not log.damaged
    log.abandon()


@pytest.mark.parametrize("ending", [Ending.KILLED, Ending.POWER_CUT])
async def test_one_batch_that_speaks_against_the_table_is_damaged(ending: Ending) -> None:
    """Its epoch has rotted, or nothing but it is newer than the table: a peer knows."""
    disk = MemoryDisk()
    await written(disk)
    whole = disk.content(FIRST)
    (position, start), (_, end) = bounds(whole)[3:5]
    rotten = whole[: position + 12] + (3).to_bytes(4, "big") + whole[position + 16 :]
    disk.overwrite(FIRST, rotten)
    hints = RecoveryHints(ending, recovery_point=12, checkpoint=end, mark=Marked(12, 3, end))
    log = await open_log(env_on(disk), PATH, ONE_FILE, hints)
    assert [(each.start, each.end) for each in log.damaged] == [(start, end)]
    log.abandon()


@pytest.mark.parametrize("ending", [Ending.KILLED, Ending.POWER_CUT])
async def test_damage_that_an_epoch_told_of_is_damage_at_the_next_start(ending: Ending) -> None:
    """A log of one batch: the table is taken for an older one, since nothing speaks for it."""
    disk = MemoryDisk()
    log = await new_log(disk, ONE_FILE)
    log.append_leader(batch(2), 0, 1_000)
    await flush(log, disk)
    marked = log.marked
    disk.kill()
    whole = disk.content(FIRST)
    disk.overwrite(FIRST, whole[:12] + (1).to_bytes(4, "big") + whole[16:])
    for _ in range(2):
        hints = RecoveryHints(ending, recovery_point=2, mark=marked)
        log = await open_log(env_on(disk), PATH, ONE_FILE, hints)
        assert [(each.start, each.end) for each in log.damaged] == [(0, 2)]
        assert log.epochs.entries == [(0, 0)]
        marked = log.marked
        disk.kill()


async def test_what_the_table_lacks_is_judged_by_what_it_has_and_by_the_leaders() -> None:
    """Damage took the first terms from the table: they are not known here any more."""
    disk = MemoryDisk()
    await written(disk)
    whole = disk.content(FIRST)
    edges = bounds(whole)
    hints = RecoveryHints(Ending.CLEAN, recovery_point=12, mark=Marked(12, 3, edges[4][1]))
    log = await open_log(env_on(disk), PATH, ONE_FILE, hints)
    theirs = EpochCache(log.epochs.entries)
    log.epochs.clear()
    log.epochs.assign(3, edges[4][1])
    for epoch, unsure in ((4, False), (2, True)):
        disk.overwrite(FIRST, whole[:12] + epoch.to_bytes(4, "big") + whole[16:])
        first = (0, edges[1][1])
        found = (await scrub(disk, log, 0)).damaged
        assert ([(each.start, each.end) for each in found] == [first]) is not unsure
        found = (await scrub(disk, log, 0, theirs)).damaged
        assert [(each.start, each.end) for each in found] == [first]
    log.abandon()
