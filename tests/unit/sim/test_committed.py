"""What the oracle knows to be committed, against what a replica holds."""

from __future__ import annotations

from paceline_cluster.sim.committed import BatchId, CommittedLog, is_sound
from paceline_node.storage.memory_disk import MemoryDisk
from tests.unit.storage.world import batch, flush, new_log

ONE, TWO, THREE = (BatchId(n, n + 1, 0, 100 + n) for n in range(3))


def known() -> CommittedLog:
    committed = CommittedLog()
    committed.extend([ONE, TWO, THREE], 3)
    return committed


def test_another_batch_or_none_is_noticed() -> None:
    committed = known()
    assert committed.conflict([ONE, TWO, THREE]) is None
    assert committed.missing([ONE, TWO, THREE], 0) is None
    assert committed.conflict([ONE, TWO._replace(crc=7)]) is not None
    assert committed.missing([ONE, THREE], 0) == f"lacks {TWO}"
    assert committed.missing([THREE], 2) is None
    assert committed.conflict([ONE, BatchId(3, 4, 0, 9)]) is None  # not committed yet


def test_what_compaction_left_is_not_compared_and_all_behind_it_is() -> None:
    committed = known()
    left = BatchId(0, 2, 0, 7)
    assert committed.conflict([left, THREE]) is not None
    committed.compacted_to = 2
    assert committed.conflict([left, THREE]) is None
    assert committed.missing([left, THREE], 0) is None
    assert committed.conflict([left, THREE._replace(crc=7)]) is not None
    assert committed.missing([left], 0) == f"lacks {THREE}"


def test_what_a_damaged_leader_committed_unseen_is_what_the_first_sound_replica_holds() -> None:
    committed = CommittedLog()
    committed.extend([ONE], 3)
    assert committed.conflict([ONE, TWO, THREE]) is None
    assert committed.conflict([TWO._replace(crc=7)]) is not None
    assert committed.missing([ONE, THREE], 0) == f"lacks {TWO}"
    committed.extend([], 5)
    assert committed.conflict([BatchId(4, 5, 0, 9)]) is None
    assert committed.conflict([BatchId(4, 5, 0, 8)]) is not None
    assert committed.conflict([BatchId(2, 4, 0, 9)]) is not None  # the third is known


async def test_a_log_with_another_leader_epoch_is_not_sound() -> None:
    disk = MemoryDisk()
    log = await new_log(disk)
    for _ in range(3):
        log.append_leader(batch(), 2, 1_000)
    await flush(log, disk)
    assert is_sound(log)
    path = log.segments[0].path()
    rotten = bytearray(disk.content(path))
    rotten[13] ^= 16  # the first batch's leader epoch, which no checksum covers
    disk.overwrite(path, bytes(rotten))
    assert not is_sound(log)
    log.abandon()
