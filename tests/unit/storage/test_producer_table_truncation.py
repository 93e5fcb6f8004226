"""A log that is cut back and cannot be read: no short producer table is trusted then."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paceline_node.storage import scrubbing
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from tests.unit.storage.repairing import replace_range
from tests.unit.storage.world import batch, content, flush, new_log, reopen

SETTINGS = LogSettings(segment_bytes=1_000, index_interval_bytes=150, retention_ms=None)
COUNT = 30
CUT = 26
"""Where a segment begins: the cut itself reads nothing before it."""


async def _reopened(disk: MemoryDisk) -> tuple[Log, bytes]:
    """Thirty batches of three producers; of what can be undone without reading, nothing is left."""
    log = await new_log(disk, SETTINGS)
    for number in range(COUNT):
        log.append_leader(batch(producer=(number % 3, 0, number // 3)), 1, 1_000)
    await flush(log, disk)
    whole = content(log)
    await log.close()
    return await reopen(disk, clean=True, settings=SETTINGS), whole


def _cannot_be_read(disk: MemoryDisk, path: str, start: int, end: int) -> None:
    disk.make_unreadable(path, start, end)


def _leads_nowhere(disk: MemoryDisk, path: str, start: int, end: int) -> None:
    content = bytearray(disk.content(path))
    content[start + 8] ^= 0x40  # the batch's length
    disk.overwrite(path, bytes(content))


@pytest.mark.parametrize("spoil", [_cannot_be_read, _leads_nowhere])
@pytest.mark.parametrize("victim", [0, 7, CUT - 1])
async def test_what_the_replay_cannot_read_is_damage(
    spoil: Callable[[MemoryDisk, str, int, int], None], victim: int
) -> None:
    disk = MemoryDisk()
    log, whole = await _reopened(disk)
    found = log.locate(victim, 1, COUNT)
    assert found is not None
    spoil(disk, found.file.path, found.position, found.position + found.size)
    log.truncate(CUT)
    assert log.log_end_offset == CUT
    assert log.producers.transactions.known_to is not None, "a short table is trusted"
    (lost,) = log.damaged
    assert lost.start <= victim < lost.end <= CUT
    size = len(whole) // COUNT
    pieces = [memoryview(whole)[at * size : (at + 1) * size] for at in range(lost.start, lost.end)]
    await replace_range(disk, log, lost, pieces)
    assert log.damaged == ()
    assert content(log) == whole[: CUT * size]
    other = await new_log(MemoryDisk(), SETTINGS)
    other.append_follower(memoryview(whole)[: CUT * size])
    assert log.producers.snapshot() == other.producers.snapshot()
    assert log.producers.transactions.known_to is None
    other.abandon()
    log.abandon()


async def test_a_cut_while_the_table_is_rebuilt_is_followed_by_the_rebuilding() -> None:
    disk = MemoryDisk()
    log, whole = await _reopened(disk)
    found = log.locate(CUT - 1, 1, COUNT)
    assert found is not None
    disk.make_unreadable(found.file.path, found.position, found.position + found.size)
    log.truncate(CUT)
    log.truncate(log.segments[-1].base_offset)
    assert log.damaged == ()
    assert log.producers.transactions.known_to is not None
    await scrubbing.rebuild_producers(log)
    other = await new_log(MemoryDisk(), SETTINGS)
    other.append_follower(memoryview(whole)[: log.log_end_offset * len(whole) // COUNT])
    assert log.producers.snapshot() == other.producers.snapshot()
    other.abandon()
    log.abandon()
