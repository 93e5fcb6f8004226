"""Who folds a log goes on in it, unless what was folded may have been deleted out of sight."""

from __future__ import annotations

from paceline_node.storage.folding import fold_start, leads_on
from paceline_node.storage.log import Log
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.producers import FrozenTable
from tests.unit.storage.keyed import RULES, compact, keyed, last_values, visible
from tests.unit.storage.world import LogSettings, StillHost, new_log

SETTINGS = LogSettings(segment_bytes=100_000, retention_ms=10**15, compaction=RULES)


async def deleted(disk: MemoryDisk, host: StillHost) -> Log:
    """A value at offset 0, and its tombstone at 1 in another sealed segment."""
    log = await new_log(disk, SETTINGS, host=host)
    for value in (b"old", None):
        log.append_leader(keyed([(b"gone", value)]), 1, 1_000)
        log.append_leader(keyed([(b"k", b"1")]), 1, 1_000)
        log.seal()
    log.append_leader(keyed([(b"l", b"1")]), 1, 1_000)
    return log


async def test_a_fold_has_the_retention_for_its_way() -> None:
    disk, host = MemoryDisk(), StillHost()
    log = await deleted(disk, host)
    start = fold_start(log)
    await compact(disk, log, host)
    host.wall += RULES.delete_retention_ms - 1
    await compact(disk, log, host)
    assert leads_on(log, start, 1)
    host.wall += 2
    await compact(disk, log, host)
    assert b"gone" not in last_values(visible(log))
    assert not leads_on(log, start, 1), "its tombstone will not come"
    assert leads_on(log, start, log.log_end_offset), "it has come"
    assert leads_on(log, fold_start(log), 0)
    log.abandon()


async def test_other_content_is_folded_anew() -> None:
    disk, host = MemoryDisk(), StillHost()
    log = await deleted(disk, host)
    start = fold_start(log)
    end = log.log_end_offset
    log.begin_at(FrozenTable(0), is_kept=True)
    for offset in range(end):
        log.append_leader(keyed([(b"%d" % offset, b"1")]), 1, 1_000)
    assert log.epochs.epoch_at(end - 1) == 1
    assert not leads_on(log, start, end)
    log.abandon()


async def test_a_cut_of_what_was_compacted_counts_and_another_does_not() -> None:
    """Of a cut behind it a fold need not know; one before it is told by the epochs."""
    disk, host = MemoryDisk(), StillHost()
    log = await deleted(disk, host)
    await compact(disk, log, host)
    start = fold_start(log)
    log.truncate(log.log_end_offset - 1)
    assert leads_on(log, start, 1)
    log.truncate(1)
    assert not leads_on(log, start, 1)
    log.abandon()
