"""A sealed segment that is as it was before a compaction: what has been deleted since, and has no
tombstone any more, lies in it again."""

from __future__ import annotations

import random

import pytest

from paceline_node.storage import compaction_file, scrubbing
from paceline_node.storage.fingerprint import ForeignLog
from paceline_node.storage.log import Log
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.torn_tail import Ending
from tests.unit.storage.keyed import compact, keyed, last_values, visible
from tests.unit.storage.repairing import replace_range
from tests.unit.storage.world import IDENTITY, PATH, SMALL, StillHost, flush, new_log, reopen

LARGE = b"x" * 250


async def sealed(log: Log, disk: MemoryDisk, *pairs: tuple[bytes, bytes | None]) -> None:
    """A segment of its own with these records."""
    log.append_leader(keyed(pairs), 1, 1_000)
    log.seal()
    await flush(log, disk)


async def with_a_deleted_key(disk: MemoryDisk) -> tuple[Log, dict[str, bytes]]:
    """A compacted log that has forgotten a key and its tombstone, in segments that are too large to
    become one; and its files of before."""
    host = StillHost()
    log = await new_log(disk, SMALL, host)
    await sealed(log, disk, (b"gone", b"value"), (b"a", LARGE))
    await sealed(log, disk, (b"gone", None), (b"b", LARGE), (b"c", LARGE))
    await sealed(log, disk, (b"d", LARGE), (b"e", LARGE))
    before = {path: disk.content(path) for path, _ in disk.files() if path.endswith(".log")}
    await compact(disk, log, host)
    host.wall += 10_000
    await sealed(log, disk, (b"f", LARGE), (b"g", LARGE))
    await compact(disk, log, host)
    assert [each.base_offset for each in log.segments] == [0, 2, 5, 7, 9]
    assert b"gone" not in last_values(visible(log))
    assert not [each for each in visible(log) if each.key == b"gone"]
    return log, before


@pytest.mark.parametrize("ending", list(Ending))
async def test_an_older_segment_is_not_believed(ending: Ending) -> None:
    disk = MemoryDisk()
    log, before = await with_a_deleted_key(disk)
    await log.checkpoint()
    end = log.log_end_offset
    log.abandon()
    older = f"{PATH}/{0:020}.log"
    assert before[older] != disk.content(older)
    disk.overwrite(older, before[older])
    with pytest.raises(ForeignLog, match="compact"):
        await reopen(disk, mark=end, ending=ending)


@pytest.mark.parametrize("ending", list(Ending))
async def test_nor_is_one_beside_files_as_old_that_say_what_compaction_has_removed(
    ending: Ending,
) -> None:
    """They know of no size and of no removal; ``hw.ckpt`` does."""
    disk = MemoryDisk()
    log, before = await with_a_deleted_key(disk)
    await log.checkpoint()
    end, removed_to = log.log_end_offset, log.compaction.removals.removed_to
    assert removed_to > 0
    log.abandon()
    for name in (compaction_file.NAME, compaction_file.COPY_NAME):
        disk.remove(f"{PATH}/{name}")
    await compaction_file.write(disk, PATH, IDENTITY.owner, compaction_file.CompactionState())
    older = f"{PATH}/{0:020}.log"
    disk.overwrite(older, before[older])
    with pytest.raises(ForeignLog, match="tombstones up to"):
        await reopen(disk, mark=end, ending=ending, removed_to=removed_to)


@pytest.mark.parametrize("ending", list(Ending))
async def test_what_compaction_left_is_believed(ending: Ending) -> None:
    disk = MemoryDisk()
    log, _ = await with_a_deleted_key(disk)
    await log.checkpoint()
    found, end = visible(log), log.log_end_offset
    log.abandon()
    for _ in range(2):
        log = await reopen(disk, mark=end, ending=ending)
        assert log.damaged == ()
        assert visible(log) == found
        log.abandon()


async def test_a_segment_that_is_written_to_again_may_grow() -> None:
    """The newest file is gone, with nothing in it: the one before is the newest."""
    disk = MemoryDisk()
    log, _ = await with_a_deleted_key(disk)
    await log.checkpoint()
    end = log.log_end_offset
    log.abandon()
    disk.lose(f"{PATH}/{end:020}.log")
    log = await reopen(disk, mark=end)
    assert log.segments[-1].base_offset == 7
    await sealed(log, disk, (b"h", b"small"))
    assert log.segments[-2].base_offset == 7
    await log.checkpoint()
    end = log.log_end_offset
    log.abandon()
    log = await reopen(disk, mark=end)
    assert last_values(visible(log))[b"h"] == b"small"
    log.abandon()


async def test_a_repaired_segment_may_be_of_another_size() -> None:
    """Where the topic is not compacted any more, a peer's batches fill the gap. The peer compacted
    at other times."""
    disk = MemoryDisk()
    log, _ = await with_a_deleted_key(disk)
    path = f"{PATH}/{2:020}.log"
    disk.rot(path, random.Random(1), start=100)
    damaged = (await scrubbing.scrub(disk, log, 2)).damaged
    theirs = keyed([(b"gone", None), (b"b", LARGE), (b"c", LARGE)], base_offset=2, leader_epoch=1)
    await replace_range(disk, log, damaged[0], [memoryview(theirs)])
    await log.checkpoint()
    assert disk.content(path) == theirs
    end = log.log_end_offset
    log.abandon()
    log = await reopen(disk, mark=end)
    assert log.damaged == ()
    log.abandon()


async def test_a_segment_that_was_deleted_is_forgotten() -> None:
    disk = MemoryDisk()
    log, _ = await with_a_deleted_key(disk)
    assert [each.base for each in log.compaction.rewritten] == [0, 2]
    log.advance_start(2)
    log.start_written(2)
    host = StillHost()
    host.wall += 20_000
    await flush(log, disk)
    await sealed(log, disk, (b"f", b"new"))
    await compact(disk, log, host)
    assert 0 not in [each.base for each in log.compaction.rewritten]
    log.abandon()
