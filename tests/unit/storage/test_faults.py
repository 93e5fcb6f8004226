"""Full disks, failing disks, slow disks; and the flusher."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from uuid import UUID

import pytest
import trio
import trio.testing

from paceline.errors import StorageError, StorageFull
from paceline.types import TopicId
from paceline_node.env import Env
from paceline_node.storage.descriptors import Descriptors
from paceline_node.storage.disk import RealDisk, RealFile
from paceline_node.storage.flusher import Flusher
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.opening import create_log
from paceline_node.storage.partition_file import PartitionIdentity
from paceline_node.storage.torn_tail import Ending
from tests.unit.storage.world import SMALL, batch, content, env_on, flush, new_log, reopen

# --- full ----------------------------------------------------------------------------------------


async def test_a_full_disk_refuses_and_loses_nothing() -> None:
    disk = MemoryDisk()
    log = await new_log(disk, SMALL)
    for sequence in range(10):
        log.append_leader(batch(producer=(5, 0, sequence)), 1, 1_000)
    before = content(log)
    disk.capacity_bytes = disk.total_bytes() - disk.free_bytes() + 20
    for _ in range(3):
        with pytest.raises(StorageFull, match="orders/0"):
            log.append_leader(batch(producer=(5, 0, 10)), 2, 1_000)
    assert log.failed is None
    assert content(log) == before
    assert log.epochs.last_epoch == 1
    disk.capacity_bytes = None
    assert log.append_leader(batch(producer=(5, 0, 10)), 2, 1_000).base_offset == 10
    await flush(log, disk)
    disk.kill()
    again = await reopen(disk, mark=11)
    assert again.log_end_offset == 11
    assert again.producers == log.producers
    again.abandon()


@pytest.mark.parametrize("room", range(0, 400, 13))
async def test_a_disk_that_fills_up_while_sealing(room: int) -> None:
    """Wherever in the roll the space ends, the log stays as it was and goes on later."""
    disk = MemoryDisk()
    log = await new_log(disk, SMALL)
    appended = 0
    while log.segments[-1].has_room(70, appended, SMALL.segment_bytes):
        log.append_leader(batch(producer=(5, 0, appended)), 1, 1_000)
        appended += 1
    disk.capacity_bytes = disk.total_bytes() - disk.free_bytes() + room
    try:
        log.append_leader(batch(producer=(5, 0, appended)), 1, 1_000)
        appended += 1
    except StorageFull:
        assert log.log_end_offset == appended
    assert log.failed is None
    disk.capacity_bytes = None
    for _ in range(10):
        log.append_leader(batch(producer=(5, 0, appended)), 1, 1_000)
        appended += 1
    whole = content(log)
    await log.close()
    again = await reopen(disk, mark=appended, clean=True)
    assert content(again) == whole
    assert again.recovery.rebuilt == ()
    again.abandon()


@pytest.mark.parametrize("spared", range(4))
async def test_a_roll_without_a_descriptor_refuses_and_loses_nothing(spared: int) -> None:
    """Whichever of the files that a roll makes finds none, the log stays as it was."""
    disk = MemoryDisk()
    log = await new_log(disk, SMALL)
    appended = 0
    while log.segments[-1].has_room(70, appended, SMALL.segment_bytes):
        log.append_leader(batch(producer=(5, 0, appended)), 1, 1_000)
        appended += 1
    left = iter(range(spared))
    disk.starves = lambda: next(left, None) is None
    before = content(log)
    with pytest.raises(StorageFull, match="Too many open files"):
        log.append_leader(batch(producer=(5, 0, appended)), 1, 1_000)
    assert log.failed is None
    assert content(log) == before
    disk.starves = None
    log.append_leader(batch(producer=(5, 0, appended)), 1, 1_000)
    await log.close()
    again = await reopen(disk, mark=appended + 1, clean=True)
    assert again.log_end_offset == appended + 1
    again.abandon()


async def test_a_clean_stop_on_a_full_disk() -> None:
    """Indexes and snapshot do not fit: the stop is clean, the next start reads more."""
    disk = MemoryDisk()
    log = await new_log(disk, LogSettings(checkpoint_bytes=1, index_interval_bytes=150))
    for sequence in range(20):
        log.append_leader(batch(producer=(5, 0, sequence), timestamp=sequence), 1, 1_000)
        if sequence == 10:
            await flush(log, disk)
            await log.checkpoint()
    await flush(log, disk)
    await log.checkpoint()
    log.append_leader(batch(producer=(5, 0, 20), timestamp=99), 1, 1_000)
    whole = content(log)
    disk.capacity_bytes = disk.total_bytes() - disk.free_bytes()
    await log.close()
    disk.capacity_bytes = None
    again = await reopen(disk, mark=21, clean=True, settings=log.settings)
    assert content(again) == whole
    assert again.producers == log.producers
    assert again.offset_for_timestamp(20) == (20, 99)
    again.abandon()


async def test_retention_works_on_a_full_disk() -> None:
    disk = MemoryDisk()
    settings = LogSettings(segment_bytes=500, segment_ms=100, retention_ms=1_000)
    log = await new_log(disk, settings)
    for _ in range(20):
        log.append_leader(batch(timestamp=1_000), 1, 1_000)
    await flush(log, disk)
    disk.capacity_bytes = disk.total_bytes() - disk.free_bytes()
    assert log.enforce_retention(10_000, 20) > 0
    log.start_written(log.log_start_offset)
    assert disk.free_bytes() > 0
    log.abandon()


class FullFile(RealFile):
    """A file on a file system that takes ``room`` more bytes and then says ENOSPC."""

    room = 0

    def _write_all(self, chunks, position: int) -> int:  # type: ignore[no-untyped-def]
        data = b"".join(chunks)
        super()._write_all([data[: self.room]], position)
        if len(data) > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return position + len(data)


async def test_a_half_written_append_is_undone(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    real = disk.create("a")
    file = FullFile("a", real.where, real.pin(), trio.CapacityLimiter(1), Descriptors(8))
    file.room = 100
    file.append([b"x" * 60])
    with pytest.raises(OSError, match="No space") as caught:
        file.append([b"y" * 80, b"z" * 80])
    assert caught.value.errno == errno.ENOSPC
    assert file.size() == 60
    assert (tmp_path / "a").read_bytes() == b"x" * 60
    real.close()
    disk.close()


async def test_an_append_that_cannot_be_undone_is_a_broken_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk(str(tmp_path))
    real = disk.create("a")
    file = FullFile("a", real.where, real.pin(), trio.CapacityLimiter(1), Descriptors(8))

    def refuse(descriptor: int, size: int) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("paceline_node.storage.disk.os.ftruncate", refuse)
    with pytest.raises(OSError, match="cannot undo a failed append") as caught:
        file.append([b"data"])
    assert caught.value.errno == errno.EIO
    monkeypatch.undo()
    real.close()
    disk.close()


# --- failing --------------------------------------------------------------------------------------


async def test_a_failed_write_ends_the_log() -> None:
    disk = MemoryDisk()
    log = await new_log(disk, SMALL)
    log.append_leader(batch(), 1, 1_000)
    before = content(log)
    disk.fail_next("write", code=errno.EIO)
    with pytest.raises(StorageError):
        log.append_leader(batch(), 1, 1_000)
    assert log.failed is not None
    with pytest.raises(StorageError):  # the fault is over, the log is not retried
        log.append_leader(batch(), 1, 1_000)
    assert content(log) == before  # readable still
    with pytest.raises(OSError, match="Input/output error"):
        await log.close()


async def test_a_failed_checkpoint_says_what_the_disk_said() -> None:
    disk = MemoryDisk()
    log = await new_log(disk, LogSettings(checkpoint_bytes=1))
    log.append_leader(batch(), 1, 1_000)
    disk.fail_next("write", path=".index")
    with pytest.raises(OSError, match="Input/output error"):
        await log.checkpoint()
    assert log.failed is not None
    log.abandon()


async def test_a_failed_open_says_what_the_disk_said() -> None:
    disk = MemoryDisk()
    log = await new_log(disk, SMALL)
    for _ in range(20):
        log.append_leader(batch(), 1, 1_000)
    disk.kill()
    disk.fail_next("write", path=".index")
    with pytest.raises(OSError, match="Input/output error"):
        await reopen(disk)


async def test_a_failed_truncation_ends_the_log() -> None:
    disk = MemoryDisk()
    log = await new_log(disk, LogSettings())
    log.append_leader(batch(), 1, 1_000)
    log.append_leader(batch(), 1, 1_000)
    disk.fail_next("truncate")
    with pytest.raises(StorageError):
        log.truncate(1)
    assert log.failed is not None
    log.abandon()


@pytest.mark.parametrize("seed", range(20))
async def test_what_a_failed_sync_dropped_is_not_called_durable(seed: int) -> None:
    disk = MemoryDisk()
    log = await new_log(disk, SMALL)
    log.append_leader(batch(), 1, 1_000)
    await flush(log, disk)
    safe = content(log)
    for _ in range(5):
        log.append_leader(batch(), 1, 1_000)
    disk.fail_next("sync", path=".log")
    with pytest.raises(OSError, match="Input/output error"):
        await flush(log, disk)
    assert log.durable_offset == 1
    assert len(content(log)) > len(safe)  # reads still show it
    disk.power_cut(random.Random(seed))
    again = await reopen(disk, mark=1)
    assert content(again) == safe  # and it was never there
    again.abandon()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("is_told", [True, False], ids=["told", "not told"])
async def test_what_a_failed_sync_left_in_the_cache_is_written_anew(
    is_told: bool, seed: int
) -> None:
    """The next process sees it, and syncing it again would prove nothing (fsyncgate). The dying one
    may not have been able to leave a word of it on such a disk."""
    rng = random.Random(seed)
    disk = MemoryDisk()
    log = await new_log(disk, SMALL)
    for _ in range(4):
        log.append_leader(batch(rng.randint(1, 3)), 1, 1_000)
    await flush(log, disk)
    durable = log.durable_offset
    for _ in range(rng.randint(1, 12)):  # of the active segment, and of some behind it
        log.append_leader(batch(rng.randint(1, 3)), 2, 1_000)
    disk.fail_next("sync", path=".log")
    with pytest.raises(OSError, match="Input/output error"):
        await flush(log, disk)
    disk.kill()
    again = await reopen(disk, mark=durable, ending=Ending.KILLED, disk_failed=is_told)
    assert again.durable_offset == again.log_end_offset > durable
    promised = content(again)
    disk.power_cut(rng)
    last = await reopen(disk, mark=again.durable_offset)
    assert content(last) == promised
    assert last.recovery.reached_durable_mark
    last.abandon()


# --- the flusher ----------------------------------------------------------------------------------


class Witness:
    """Notes what a flusher reports."""

    def __init__(self) -> None:
        self.durable: list[tuple[int, int]] = []
        self.failures: list[OSError] = []

    def on_durable(self, log: Log) -> None:
        self.durable.append((log.partition, log.durable_offset))

    def on_failed(self, error: OSError) -> None:
        self.failures.append(error)


async def logs_of(disk: MemoryDisk, count: int) -> tuple[Env, list[Log]]:
    disk.mkdir("topics")
    env = env_on(disk)
    logs = []
    for number in range(count):
        identity = PartitionIdentity(TopicId(UUID(int=1)), "orders", number)
        logs.append(await create_log(env, f"topics/orders-{number}", identity, LogSettings()))
    return env, logs


async def test_one_sync_serves_all_who_asked(autojump_clock: trio.testing.MockClock) -> None:
    disk, witness = MemoryDisk(), Witness()
    env, logs = await logs_of(disk, 3)
    flusher = Flusher(env, witness.on_failed)
    for log in logs:
        flusher.register(log, witness.on_durable)
    disk.sync_delay_s = lambda: 1.0
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: flusher.run(task_status=task_status))
        logs[0].append_leader(batch(), 1, 1_000)
        flusher.request(logs[0])
        await trio.sleep(0.5)  # its sync is under way: the next ones share another
        before = disk.sync_count
        for log in logs:
            log.append_leader(batch(), 1, 1_000)
            flusher.request(log)
            flusher.request(log)
        await trio.sleep(0.6)
        assert witness.durable == [(0, 1)]
        await trio.sleep(1.0)
        assert witness.durable == [(0, 1), (0, 2), (1, 1), (2, 1)]
        assert disk.sync_count == before + 1
        nursery.cancel_scope.cancel()
    for log in logs:
        log.abandon()


async def test_a_lingering_sync_is_shared_by_those_who_come_meanwhile(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk, witness = MemoryDisk(), Witness()
    env, logs = await logs_of(disk, 2)
    groups: list[tuple[int, int]] = []
    flusher = Flusher(
        env,
        witness.on_failed,
        linger_s=0.5,
        on_synced=lambda _, logs, records: groups.append((logs, records)),
    )
    for log in logs:
        flusher.register(log, witness.on_durable)
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: flusher.run(task_status=task_status))
        for log in (*logs, logs[1]):
            log.append_leader(batch(), 1, 1_000)
            flusher.request(log)
            await trio.sleep(0.1)
        assert groups == []
        await trio.sleep(0.5)
        assert groups == [(2, 3)]
        assert witness.durable == [(0, 1), (1, 2)]
        nursery.cancel_scope.cancel()
    for log in logs:
        log.abandon()


async def test_a_new_segment_is_durable_with_its_name() -> None:
    import random

    disk, witness = MemoryDisk(), Witness()
    log = await new_log(disk, SMALL)
    flusher = Flusher(env_on(disk), witness.on_failed)
    flusher.register(log, witness.on_durable)
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: flusher.run(task_status=task_status))
        for _ in range(30):
            log.append_leader(batch(), 1, 1_000)
        flusher.request(log)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    whole = content(log)
    assert log.durable_offset == 30
    disk.power_cut(random.Random(5))
    again = await reopen(disk, mark=30)
    assert content(again) == whole
    again.abandon()


async def test_a_failed_sync_ends_flushing_for_good() -> None:
    disk, witness = MemoryDisk(), Witness()
    env, logs = await logs_of(disk, 2)
    flusher = Flusher(env, witness.on_failed)
    for log in logs:
        flusher.register(log, witness.on_durable)
    logs[0].append_leader(batch(), 1, 1_000)
    disk.fail_next("sync")
    flusher.request(logs[0])
    await flusher.run()  # returns
    assert [error.errno for error in witness.failures] == [errno.EIO]
    assert witness.durable == []
    for log in logs:
        with pytest.raises(StorageError):
            log.append_leader(batch(), 1, 1_000)
    count = disk.sync_count
    flusher.request(logs[1])
    with trio.move_on_after(0):
        await flusher.run()
    assert disk.sync_count == count
    assert len(witness.failures) == 1
    for log in logs:
        log.abandon()


async def test_a_hanging_disk_shows_while_it_hangs(autojump_clock: trio.testing.MockClock) -> None:
    disk, witness = MemoryDisk(), Witness()
    env, (log,) = await logs_of(disk, 1)
    host = env.host
    host.now = trio.current_time  # type: ignore[method-assign]
    flusher = Flusher(env, witness.on_failed)
    flusher.register(log, witness.on_durable)
    disk.hang()
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: flusher.run(task_status=task_status))
        log.append_leader(batch(), 1, 1_000)
        flusher.request(log)
        await trio.sleep(7)
        assert flusher.statistics().running_s == pytest.approx(7)
        disk.heal()
        await trio.testing.wait_all_tasks_blocked()
        statistics = flusher.statistics()
        assert statistics.running_s == 0
        assert (statistics.count, statistics.max_s) == (1, pytest.approx(7))
        nursery.cancel_scope.cancel()
    assert witness.durable == [(0, 1)]
    log.abandon()


async def test_an_unregistered_log_is_left_alone() -> None:
    disk, witness = MemoryDisk(), Witness()
    env, logs = await logs_of(disk, 2)
    flusher = Flusher(env, witness.on_failed)
    for log in logs:
        flusher.register(log, witness.on_durable)
        log.append_leader(batch(), 1, 1_000)
        flusher.request(log)
    flusher.unregister(logs[0])
    logs[0].abandon()
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: flusher.run(task_status=task_status))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert witness.durable == [(1, 1)]
    logs[1].abandon()
