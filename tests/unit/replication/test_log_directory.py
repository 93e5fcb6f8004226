"""What a data directory knows of its partitions, from one process to the next."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from paceline.types import NodeId, TopicId
from paceline_node.replication.log_directory import LogDirectory, OpenedLogs
from paceline_node.storage import layout
from paceline_node.storage.layout import DirectoryMeta, Offsets, PartitionKey
from paceline_node.storage.log import Log
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.opening import create_log
from paceline_node.storage.partition_file import PartitionIdentity
from paceline_node.storage.torn_tail import Ending
from tests.unit.storage.world import SMALL, batch, env_on, flush

TOPIC = TopicId(UUID(int=0x12345678 << 96))
META = DirectoryMeta(UUID(int=7), NodeId(2), UUID(int=9))


def key(number: int) -> PartitionKey:
    return TOPIC, number


class Process:
    """One process after another on one disk."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.directory = LogDirectory(env_on(disk))

    async def open(self, *, clean: bool = False, same_boot: bool = True) -> OpenedLogs:
        return await self.directory.open_all(clean=clean, settings=SMALL, same_boot=same_boot)

    async def create(self, number: int, count: int = 12) -> Log:
        identity = PartitionIdentity(TOPIC, "orders", number)
        log = await self.directory.create(identity, SMALL)
        for _ in range(count):
            log.append_leader(batch(), 1, 1_000)
        await self.sync(log)
        return log

    async def sync(self, log: Log) -> None:
        """What the flusher does for a group."""
        await flush(log, self.disk)
        self.directory.marks.flush()

    def killed(self) -> Process:
        self.disk.kill()
        return Process(self.disk)

    async def offsets(self) -> list[dict[PartitionKey, int] | None]:
        return [await layout.read_offsets(self.disk, which) for which in Offsets]


async def first() -> Process:
    disk = MemoryDisk()
    await layout.format_directory(disk, META)
    process = Process(disk)
    opened = await process.open(clean=True)
    assert (opened.logs, opened.damaged, opened.doubtful) == ({}, (), ())
    assert opened.reached_durable_mark
    assert not opened.list_is_lost
    return process


async def test_a_process_that_hosts_nothing_yet_forgets_nothing() -> None:
    """Its quorum is slow to form: its checkpoints used to come out empty, and the next process took
    what had rotted for a torn write."""
    process = await first()
    logs = [await process.create(number) for number in range(2)]
    await process.directory.write_checkpoints(dict.fromkeys(logs, 12))
    before = await process.offsets()
    process = process.killed()
    opened = await process.open()
    await process.directory.write_checkpoints({})
    await process.directory.write_starts([])
    assert await process.offsets() == before
    # Nor does one that hosts a part of them.
    await process.directory.write_checkpoints({opened.logs[key(1)]: 12})
    assert await process.offsets() == before
    newest = opened.logs[key(0)].segments[-1].path()
    process = process.killed()
    process.disk.remove("durable.marks")
    content = bytearray(process.disk.content(newest))
    content[-3] ^= 1
    process.disk.overwrite(newest, bytes(content))
    opened = await process.open()
    assert opened.damaged == (key(0),)
    assert opened.logs[key(0)].recovery.truncated_bytes == 0


@pytest.mark.parametrize("how", ["loss", "rot", "unreadable", "age"])
@pytest.mark.parametrize("name", Offsets.LOG_START.files)
async def test_one_file_of_log_starts_is_enough(name: str, how: str) -> None:
    """An older one brought back what was deleted."""
    process = await first()
    log = await process.create(0, count=40)
    log.advance_start(2)
    await process.directory.write_checkpoints({log: 40})
    early = process.disk.content(name)
    log.advance_start(7)
    await process.directory.write_checkpoints({log: 40})
    process = process.killed()
    if how == "loss":
        process.disk.lose(name)
    elif how == "rot":
        process.disk.rot(name, random.Random(1), bits=3)
    elif how == "unreadable":
        process.disk.make_unreadable(name, 0, 10)
    else:
        process.disk.overwrite(name, early)
    opened = await process.open()
    again = opened.logs[key(0)]
    assert (again.log_start_offset, opened.damaged, opened.doubtful) == (7, (), ())
    await process.directory.write_checkpoints({again: 40})
    contents = {process.disk.content(each) for each in Offsets.LOG_START.files}
    assert len(contents) == 1


@pytest.mark.parametrize("which", Offsets)
@pytest.mark.parametrize("rotten", [True, False])
async def test_a_lost_checkpoint_is_no_empty_one(which: Offsets, rotten: bool) -> None:
    name = which.value
    process = await first()
    log = await process.create(0)
    await process.directory.write_checkpoints({log: 12})
    process = process.killed()
    for each in which.files:
        if rotten:
            process.disk.rot(each, random.Random(1))
        else:
            process.disk.remove(each)
    opened = await process.open()
    if name == Offsets.HIGH_WATERMARK.value:
        assert not opened.doubtful
    else:
        assert opened.doubtful == (f"{name} is missing or rotten",)
        assert not opened.reached_durable_mark
    assert opened.list_is_lost is (name == Offsets.RECOVERY.value)
    assert opened.damaged == ()
    # It stays lost until something is hosted, and so was heard by the controller.
    await process.directory.write_checkpoints({})
    again = await process.killed().open()
    assert again.doubtful == opened.doubtful


async def test_a_listed_partition_without_a_directory_is_missing() -> None:
    process = await first()
    logs = [await process.create(number) for number in range(3)]
    process = process.killed()
    process.disk.remove_tree(logs[1].path)
    opened = await process.open()
    assert opened.missing == opened.damaged == (key(1),)
    assert sorted(number for _, number in opened.logs) == [0, 2]
    # Nothing but making it anew changes that.
    await process.directory.write_checkpoints(dict.fromkeys(opened.logs.values(), 0))
    process = process.killed()
    assert (await process.open()).missing == (key(1),)
    await process.create(1, count=0)
    opened = await process.killed().open()
    assert (opened.missing, opened.damaged) == ((), ())


async def test_a_directory_that_says_it_is_another_partition_is_not_renamed_to_fit() -> None:
    """It was opened as the partition of its name, and served the other one's records."""
    process = await first()
    logs = [await process.create(number, count=10 + number) for number in range(3)]
    process = process.killed()
    process.disk.rename(logs[0].path, "topics/between")
    process.disk.rename(logs[1].path, logs[0].path)
    process.disk.rename("topics/between", logs[1].path)
    opened = await process.open()
    assert opened.missing == opened.damaged == (key(0), key(1))
    assert set(opened.logs) == {key(2)}
    strays = await layout.list_strays(process.disk)
    assert sorted(each.identity.partition for each in strays if each.identity) == [0, 1]
    # They are made anew, and filled by others; what was set aside stays that.
    await process.create(0, count=0)
    await process.create(1, count=0)
    opened = await process.killed().open()
    assert (opened.missing, opened.damaged) == ((), ())
    assert len(await layout.list_strays(process.disk)) == 2


async def test_a_misplaced_directory_is_not_put_back() -> None:
    process = await first()
    log = await process.create(0)
    process = process.killed()
    process.disk.rename(log.path, "topics/orders-1.12345678")
    opened = await process.open()
    assert (set(opened.logs), opened.missing) == (set(), (key(0),))


async def test_a_partition_that_was_never_made_or_was_given_up_is_not_missing() -> None:
    process = await first()
    log = await process.create(0)
    gone = await process.create(1)
    await process.directory.write_checkpoints({log: 12, gone: 12})
    await process.directory.retire([gone], delete=True)
    elsewhere = await process.create(2)
    await process.directory.retire([elsewhere], delete=False)
    opened = await process.killed().open()
    assert (set(opened.logs), opened.damaged) == ({key(0)}, ())


async def test_a_checkpoint_under_way_does_not_list_what_is_given_up_meanwhile() -> None:
    process = await first()
    gone = await process.create(1)
    await process.directory.retire([gone], delete=True)
    gone._failure.error = None  # as a checkpoint sees it that has begun before
    await process.directory.write_checkpoints({gone: 12})
    assert (await process.killed().open()).missing == ()


@pytest.mark.parametrize("same_boot", [True, False])
@pytest.mark.parametrize("how", ["loss", "rot", "cut"])
async def test_without_its_mark_a_log_may_have_lost_its_tail(how: str, same_boot: bool) -> None:
    """Cut between two batches above its recovery point, it looks whole."""
    process = await first()
    log = await process.create(0, count=2)
    await process.directory.write_checkpoints({log: 2})
    early = process.disk.content(log.segments[0].path())
    log.append_leader(batch(), 1, 1_000)
    await process.sync(log)
    process = process.killed()
    process.disk.overwrite(log.segments[0].path(), early)
    if how == "loss":
        process.disk.remove("durable.marks")
    elif how == "rot":
        process.disk.rot("durable.marks", random.Random(1), bits=1)
    else:
        process.disk.overwrite("durable.marks", b"")
    for _ in range(2):  # nor does opening it once make that forgotten
        opened = await process.open(same_boot=same_boot)
        assert len(opened.doubtful) == 1
        assert "durable.marks" in opened.doubtful[0]
        assert not opened.reached_durable_mark
        process = process.killed()
    # What is hosted was heard of by the controller: there are marks again.
    await process.open(same_boot=same_boot)
    await process.create(1, count=0)
    assert (await process.killed().open(same_boot=same_boot)).doubtful == ()


async def test_without_marks_a_clean_stop_is_trusted() -> None:
    process = await first()
    log = await process.create(0, count=2)
    await process.directory.write_checkpoints({log: 2})
    process = process.killed()
    process.disk.remove("durable.marks")
    opened = await process.open(clean=True)
    assert (opened.damaged, opened.doubtful) == ((), ())
    assert opened.logs[key(0)].log_end_offset == 2


@pytest.mark.parametrize("seed", range(20))
async def test_a_new_log_needs_no_mark_after_a_power_cut(seed: int) -> None:
    """It was made less than a checkpoint ago: its mark may not have reached the disk."""
    process = await first()
    await process.create(0)
    process.disk.power_cut(random.Random(seed))
    opened = await Process(process.disk).open(same_boot=False)
    assert opened.doubtful == ()


async def test_a_log_that_ends_below_its_mark_has_lost_its_tail() -> None:
    """The file as it was some time ago: nothing in it is bad."""
    process = await first()
    log = await process.create(0, count=2)
    early = process.disk.content(log.segments[0].path())
    log.append_leader(batch(), 1, 1_000)
    await process.sync(log)
    process = process.killed()
    process.disk.overwrite(log.segments[0].path(), early)
    for _ in range(2):  # nor does opening it once make that forgotten
        opened = await process.open()
        assert opened.damaged == (key(0),)
        assert opened.logs[key(0)].recovery.lost_tail
        process = process.killed()


async def test_marks_that_a_power_cut_made_old_are_exact_after_the_next_start() -> None:
    """Killed before it synced anything of its own: what it has found is durable all the same."""
    process = await first()
    log = await process.create(0, count=2)
    await process.directory.marks.sync()
    for _ in range(10):
        log.append_leader(batch(), 1, 1_000)
    await flush(log, process.disk)
    process = process.killed()
    opened = await process.open(same_boot=False)
    assert (opened.damaged, opened.logs[key(0)].log_end_offset) == ((), 12)
    process = process.killed()
    path = log.segments[0].path()
    process.disk.rot(path, random.Random(1), start=len(process.disk.content(path)) - 10, bits=1)
    opened = await process.open(same_boot=True)
    assert opened.damaged == (key(0),)
    assert opened.logs[key(0)].log_end_offset == 12


@pytest.mark.parametrize("same_boot", [True, False])
async def test_a_mark_may_be_ahead_of_the_epoch_table(same_boot: bool) -> None:
    """Leaders change, and segments are sealed, between two checkpoints."""
    process = await first()
    log = await process.create(0, count=3)
    await process.directory.write_checkpoints({log: 3})
    for epoch in range(2, 9):
        for _ in range(5):
            log.append_leader(batch(), epoch, 1_000)
    assert len(log.segments) > 3
    await process.sync(log)
    process = process.killed()
    opened = await process.open(same_boot=same_boot)
    again = opened.logs[key(0)]
    assert (opened.damaged, again.log_end_offset) == ((), 38)
    assert again.epochs.entries == log.epochs.entries


@pytest.mark.parametrize("ending", Ending)
@pytest.mark.parametrize("behind", [0, 5])
async def test_an_epoch_table_of_some_time_ago_is_not_believed(ending: Ending, behind: int) -> None:
    """Its node led, named a wrong end of an epoch, and had others cut what they held."""
    process = await first()
    log = await process.create(0, count=3)
    await process.directory.write_checkpoints({log: 3})
    early = process.disk.content(f"{log.path}/epochs.ckpt")
    for epoch in range(2, 5):
        for _ in range(5):
            log.append_leader(batch(), epoch, 1_000)
    await process.sync(log)
    await process.directory.write_checkpoints({log: log.log_end_offset})
    for _ in range(behind):
        log.append_leader(batch(), 5, 1_000)
    await process.sync(log)
    if ending is Ending.CLEAN:
        await process.directory.write_checkpoints({log: log.log_end_offset})
        await log.close()
        await process.directory.close()
    want = log.epochs.entries
    process = process.killed()
    process.disk.overwrite(f"{log.path}/epochs.ckpt", early)
    opened = await process.open(clean=ending is Ending.CLEAN, same_boot=ending is Ending.KILLED)
    again = opened.logs[key(0)]
    assert (opened.damaged, again.log_end_offset) == ((), 18 + behind)
    assert again.epochs.entries == want


async def test_a_missing_oldest_segment_is_no_retention() -> None:
    process = await first()
    log = await process.create(0, count=40)
    bases = [segment.base_offset for segment in log.segments]
    await process.directory.write_checkpoints({log: 40})
    process = process.killed()
    process.disk.remove(log.segments[0].path())
    for _ in range(2):
        opened = await process.open()
        again = opened.logs[key(0)]
        assert opened.damaged == (key(0),)
        assert [(each.start, each.end) for each in again.damaged] == [(0, bases[1])]
        assert (again.log_start_offset, again.log_end_offset) == (0, 40)
        process = process.killed()


@pytest.mark.parametrize("is_synced", [True, False])
async def test_a_first_segment_is_missed_before_any_checkpoint(is_synced: bool) -> None:
    """A log a second old is in no checkpoint of log starts; so it begins at 0."""
    process = await first()
    await process.create(1, count=3)
    if is_synced:
        log = await process.create(0, count=40)
    else:
        log = await process.directory.create(PartitionIdentity(TOPIC, "orders", 0), SMALL)
        for _ in range(40):
            log.append_leader(batch(), 1, 1_000)
    bases = [segment.base_offset for segment in log.segments]
    process = process.killed()
    process.disk.remove(log.segments[0].path())
    opened = await process.open(same_boot=True)
    assert opened.damaged == (key(0),)
    again = opened.logs[key(0)]
    assert [(each.start, each.end) for each in again.damaged] == [(0, bases[1])]


async def test_segments_go_when_the_new_start_is_written() -> None:
    process = await first()
    log = await process.create(0, count=40)
    bases = [segment.base_offset for segment in log.segments]
    log.advance_start(bases[2])
    assert process.disk.exists(log.segments[0].path())
    process.disk.fail_next("rename", path="logstart.ckpt")
    with pytest.raises(OSError, match="logstart"):
        await process.directory.write_starts([log])
    assert process.disk.exists(f"{log.path}/{0:020d}.log")
    await process.directory.write_starts([log])
    assert not process.disk.exists(f"{log.path}/{0:020d}.log")
    for cut in (lambda disk: disk.kill(), lambda disk: disk.power_cut(random.Random(4))):
        cut(process.disk)
        process = Process(process.disk)
        opened = await process.open()
        again = opened.logs[key(0)]
        assert (opened.damaged, again.log_start_offset) == ((), bases[2])


async def test_a_full_disk_gets_room_by_what_has_expired() -> None:
    process = await first()
    log = await process.create(0, count=40)
    log.advance_start(log.segments[2].base_offset)
    process.disk.capacity_bytes = process.disk.total_bytes() - process.disk.free_bytes()
    await process.directory.write_starts([log])
    assert process.disk.free_bytes() > 0
    assert not process.disk.exists(f"{log.path}/{0:020d}.log")


async def test_a_power_cut_before_anything_was_listed_leaves_new_partitions_new() -> None:
    """Assigned, perhaps made, never used: nobody may wait for an operator because of it."""
    for seed in range(40):
        process = await first()
        log = await create_log(
            env_on(process.disk),
            layout.partition_path("orders", TOPIC, 0),
            PartitionIdentity(TOPIC, "orders", 0),
            SMALL,
        )
        log.append_leader(batch(), 1, 1_000)
        process.disk.power_cut(random.Random(seed))
        opened = await Process(process.disk).open(same_boot=False)
        assert opened.damaged == ()


@pytest.mark.parametrize("seed", range(20))
async def test_after_a_power_cut_a_log_that_was_given_up_is_not_missing(seed: int) -> None:
    process = await first()
    gone = await process.create(0)
    await process.directory.write_checkpoints({gone: 12})
    await process.directory.retire([gone], delete=seed % 2 == 0)
    process.disk.power_cut(random.Random(seed))
    process = Process(process.disk)
    opened = await process.open(same_boot=False)
    assert opened.missing == ()
    assert opened.reached_durable_mark


async def test_an_epoch_of_one_batch_that_an_old_table_lacks() -> None:
    """Its segment is sealed and would not be read; a peer knows whether it has rotted."""
    process = await first()
    log = await process.create(0, count=3)
    await process.directory.write_checkpoints({log: 3})
    early = process.disk.content(f"{log.path}/epochs.ckpt")
    log.append_leader(batch(), 2, 1_000)
    log.seal()
    await process.sync(log)
    await process.directory.write_checkpoints({log: 4})
    log.append_leader(batch(), 3, 1_000)
    await process.sync(log)
    process = process.killed()
    process.disk.overwrite(f"{log.path}/epochs.ckpt", early)
    opened = await process.open()
    assert [(each.start, each.end) for each in opened.logs[key(0)].damaged] == [(3, 4)]
