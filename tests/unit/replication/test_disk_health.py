"""Slow and full disks are told by time, not by counting (replication/DESIGN 7)."""

from __future__ import annotations

from paceline_node.replication.disk_health import Health, RefusedWrites, SlowDisk, free_floor
from paceline_node.storage.flusher import FlushStatistics


def syncs(count: int, slow: int, running_s: float = 0.0) -> FlushStatistics:
    """``p99_s`` and the like are of the last syncs, however long ago, and decide nothing."""
    return FlushStatistics(count, slow, 2.0, 2.0, 2.0, running_s)


def test_the_floor_of_free_space_grows_with_large_disks() -> None:
    assert [free_floor(gib << 30) >> 20 for gib in (1, 50, 100, 1000)] == [1024, 1024, 2048, 20480]


def test_slow_syncs_for_five_seconds_make_a_slow_disk() -> None:
    disk = SlowDisk()
    seen = [disk.observe(float(second), syncs(second, second)) for second in range(8)]
    assert seen == [False] * 6 + [True] * 2


def test_one_slow_moment_does_not() -> None:
    disk = SlowDisk()
    assert not any(disk.observe(float(at), syncs(at + 2, min(at, 2))) for at in range(12))


def test_one_slow_sync_of_many_does_not() -> None:
    disk = SlowDisk()
    assert not any(disk.observe(float(at), syncs(200 * at, at)) for at in range(20))


def test_a_disk_that_is_idle_or_merely_little_used_recovers_in_time() -> None:
    for still in (0, 1):  # syncs a second once it is well again
        disk = SlowDisk()
        for second in range(10):
            disk.observe(float(second), syncs(second, second))
        assert disk.observe(10.0, syncs(10, 10))
        later = [disk.observe(10.0 + s, syncs(10 + still * s, 10)) for s in range(1, 8)]
        assert later[0]
        assert not later[-1]


def test_a_hanging_sync_is_a_slow_disk() -> None:
    disk = SlowDisk()
    assert not disk.observe(0.0, syncs(3, 0, 1.5))
    assert disk.observe(6.0, syncs(3, 0, 7.5))
    assert disk.observe(60.0, syncs(3, 0, 61.5))
    for second in range(61, 68):
        slow = disk.observe(float(second), syncs(4, 1))
    assert not slow


def test_a_refused_write_is_remembered_for_a_while() -> None:
    refused = RefusedWrites()
    assert not refused.recently(0.0)
    refused.refused(7.0)
    assert refused.recently(11.9)
    assert not refused.recently(12.0)


def test_each_reason_alone_degrades() -> None:
    for reason in ("storage_full", "slow"):
        health = Health()
        assert not health.degraded
        setattr(health, reason, True)
        assert health.degraded


def test_a_full_disk_says_what_finds_no_room_until_it_does() -> None:
    health = Health()
    health.lacks_room("checkpoints")
    health.lacks_room("appends")
    health.lacks_room("checkpoints")
    assert health.degraded
    assert health.shortage == ("the disk is full: no room for checkpoints, appends",)
    health.lacks_room("checkpoints", False)
    health.lacks_room("appends", False)
    assert not health.degraded
    assert health.shortage == ()


def test_a_slow_disk_is_no_full_one() -> None:
    health = Health()
    health.slow = True
    assert health.degraded
    assert health.shortage == ()
