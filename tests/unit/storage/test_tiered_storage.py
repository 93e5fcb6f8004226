"""A log of which a second tier keeps the older part (storage/DESIGN 11)."""

from __future__ import annotations

from pathlib import Path

import pytest
from trio.testing import assert_checkpoints, assert_no_checkpoints

from paceline.errors import OffsetOutOfRange
from paceline_node.storage.log import Log
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.reading import LocalSlice
from paceline_node.storage.tiered_storage import InOlderTier
from tests.unit.storage.directory_tier import DirectoryTier
from tests.unit.storage.world import batch, content, flush, new_log

COUNT = 60


async def tiered(directory: Path) -> tuple[Log, DirectoryTier, bytes]:
    """A log that has given up what the tier has; and all its bytes."""
    disk = MemoryDisk()
    log = await new_log(disk)
    for number in range(COUNT):
        log.append_leader(batch(value=b"%d" % number), 1, 1_000)
    whole = content(log)
    tier = DirectoryTier(log, directory)
    await flush(log, disk)
    log.tiers.older = tier
    log.advance_start(tier.end_offset)
    await log.write_state()
    log.start_written(tier.end_offset)
    assert log.oldest_offset == tier.end_offset > COUNT // 2, "the disk has deleted them"
    return log, tier, whole


@pytest.mark.parametrize("max_bytes", [1, 200, 1 << 20])
async def test_readers_go_on_from_one_tier_to_the_next(tmp_path: Path, max_bytes: int) -> None:
    log, tier, whole = await tiered(tmp_path / "tier")
    assert log.tiers.start_offset == 0
    offset, data = 0, b""
    while found := await log.tiers.find(offset, max_bytes, log.log_end_offset):
        assert isinstance(found, LocalSlice) == (offset >= tier.end_offset)
        assert found.base_offset == offset
        piece = await found.read_async()
        assert next(header.base_offset for _, header in found.batches(piece)) == offset
        data += piece
        offset = found.next_offset
    assert (data, offset) == (whole, COUNT)
    log.abandon()


async def test_only_the_older_tier_is_waited_for(tmp_path: Path) -> None:
    log, tier, _ = await tiered(tmp_path / "tier")
    with assert_no_checkpoints():
        near = await log.tiers.find(tier.end_offset, 1, COUNT)
    assert near == log.locate(tier.end_offset, 1, COUNT)
    assert tier.reads == 0
    with assert_checkpoints():
        far = await log.tiers.find(tier.end_offset - 1, 1, COUNT)
    assert far is not None
    assert far.file.pread(1, 0) is None, "whoever cannot wait gets nothing"
    log.abandon()


async def test_who_cannot_wait_is_told(tmp_path: Path) -> None:
    log, tier, _ = await tiered(tmp_path / "tier")
    for offset in (0, tier.end_offset - 1):
        with pytest.raises(InOlderTier):
            log.locate(offset, 1, COUNT)
    tier.start_offset = 5  # its own retention
    assert log.tiers.start_offset == 5
    for offset in (4, COUNT + 1):
        with pytest.raises(OffsetOutOfRange):
            log.locate(offset, 1, COUNT)
        with pytest.raises(OffsetOutOfRange):
            await log.tiers.find(offset, 1, COUNT)
    log.abandon()
