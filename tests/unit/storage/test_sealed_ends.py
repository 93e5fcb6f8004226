"""What an orderly stop says of sealed segments: nothing that their files do not say."""

from __future__ import annotations

import pytest

from paceline.wire.batch import iter_batches
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from tests.unit.storage.world import PATH, batch, new_log, reopen

SMALL = LogSettings(segment_bytes=250, index_interval_bytes=150, retention_ms=None)


@pytest.mark.parametrize("how", ["missing", "short"])
async def test_a_clean_stop_proves_nothing_of_a_sealed_segment(how: str) -> None:
    """Readers stopped where it ended, without an error, for as long as the node led."""
    disk = MemoryDisk()
    log = await new_log(disk, SMALL)
    for sequence in range(20):
        log.append_leader(batch(producer=(5, 0, sequence)), 1, 1_000)
    await log.close()
    second, third = (segment.base_offset for segment in log.segments[1:3])
    path = f"{PATH}/{second:020d}.log"
    end = second
    if how == "missing":
        disk.remove(path)
    else:
        whole = disk.content(path)
        position, last = list(iter_batches(whole))[-1]
        end = last.base_offset
        disk.overwrite(path, whole[:position])
    again = await reopen(disk, clean=True, mark=20, settings=SMALL)
    assert [(each.start, each.end) for each in again.damaged] == [(end, third)]
    assert again.log_end_offset == 20
    again.abandon()
