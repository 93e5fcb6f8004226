"""``durable.marks``: exact after a kill, never too high after a power cut, never in the way."""

from __future__ import annotations

import errno
import random
from uuid import UUID

import pytest

from paceline.types import TopicId
from paceline_node.storage.layout import PartitionKey
from paceline_node.storage.marks import NAME, RIDE_S, DurableMarks
from paceline_node.storage.memory import MemoryDisk


def key(number: int) -> PartitionKey:
    return TopicId(UUID(int=number % 3 + 1)), number


async def test_marks_outlive_a_kill_without_a_sync() -> None:
    disk = MemoryDisk()
    marks = DurableMarks(disk)
    assert await marks.open() == {}
    logs = [marks.of(key(number), 0) for number in range(300)]
    for number, log in enumerate(logs):
        log.reach(number * 7)
    marks.flush()
    logs[5].reach(1_000)  # after the last group: nobody was told
    disk.kill()
    assert await DurableMarks(disk).open() == {key(number): number * 7 for number in range(300)}


async def test_a_mark_rises_by_a_sync_and_falls_at_once() -> None:
    disk = MemoryDisk()
    marks = DurableMarks(disk)
    await marks.open()
    log = marks.of(key(0), 10)
    log.reach(5)
    marks.flush()
    log.lower(12)
    disk.kill()
    again = DurableMarks(disk)
    assert await again.open() == {key(0): 10}
    again.of(key(0), 10).lower(4)
    disk.kill()
    assert await DurableMarks(disk).open() == {key(0): 4}


async def test_a_log_that_was_given_up_leaves_the_marks_of_others_alone() -> None:
    """It may be in a sync that is under way, while its slot is given to another."""
    disk = MemoryDisk()
    marks = DurableMarks(disk)
    await marks.open()
    gone = marks.of(key(0), 10)
    marks.forget([key(0)])
    gone.reach(11)
    other = marks.of(key(1), 5)
    gone.reach(12)
    gone.lower(3)
    marks.forget([key(1)])
    again = marks.of(key(0), 0)
    other.reach(9)
    again.reach(2)
    marks.flush()
    disk.kill()
    assert await DurableMarks(disk).open() == {key(0): 2}


@pytest.mark.parametrize("sector", [0, 1])
async def test_what_cannot_be_read_is_written_anew(sector: int) -> None:
    disk = MemoryDisk()
    marks = DurableMarks(disk)
    await marks.open()
    for number in range(300):
        marks.of(key(number), number)
    marks.flush()
    disk.make_unreadable(NAME, 512 * sector, 512 * sector + 512)
    disk.kill()
    again = DurableMarks(disk)
    found = await again.open()
    assert found == {key(number): number for number in range(300) if key(number) in found}
    assert len(found) >= 300 - 128  # a page of them is lost
    node = disk.node(NAME)
    assert node is not None
    assert not node.unreadable
    again.close()


async def test_marks_ride_in_some_syncs_and_after_a_fall_in_the_next() -> None:
    disk = MemoryDisk()
    marks = DurableMarks(disk)
    await marks.open()
    log = marks.of(key(0), 0)
    assert marks.to_ride(0.0) == []  # nothing was written
    log.reach(1)
    marks.flush()
    assert len(marks.to_ride(0.0)) == 1
    log.reach(2)
    marks.flush()
    assert marks.to_ride(RIDE_S * 0.9) == []
    assert len(marks.to_ride(RIDE_S)) == 1
    log.lower(1)
    assert len(marks.to_ride(RIDE_S)) == 1
    assert marks.to_ride(RIDE_S * 9) == []


async def test_after_a_power_cut_each_mark_is_one_that_was_true() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        disk = MemoryDisk()
        marks = DurableMarks(disk)
        await marks.open()
        logs = [marks.of(key(number), 0) for number in range(200)]
        await marks.sync()
        synced = [0] * len(logs)
        for step in range(20):
            for number in rng.sample(range(len(logs)), 40):
                logs[number].reach(logs[number].offset + rng.randrange(5))
            marks.flush()
            if rng.random() < 0.3:
                await disk.sync(marks.to_ride(float(step)))
                synced = [log.offset for log in logs]
        disk.power_cut(rng)
        found = await DurableMarks(disk).open()
        for number, log in enumerate(logs):
            assert synced[number] <= found[key(number)] <= log.offset


async def test_a_forgotten_partition_leaves_its_slot_to_the_next() -> None:
    disk = MemoryDisk()
    marks = DurableMarks(disk)
    await marks.open()
    for number in range(4):
        marks.of(key(number), number)
    marks.forget([key(1), key(9)])
    marks.of(key(7), 70)
    await marks.sync()
    assert len(disk.content(NAME)) == 4 * 32
    disk.kill()
    assert await DurableMarks(disk).open() == {key(0): 0, key(2): 2, key(3): 3, key(7): 70}


async def test_a_rotten_slot_says_nothing_and_harms_no_other() -> None:
    disk = MemoryDisk()
    marks = DurableMarks(disk)
    await marks.open()
    for number in range(3):
        marks.of(key(number), number + 1)
    await marks.sync()
    whole = disk.content(NAME)
    for at in range(32, 64):
        disk.kill()
        disk.overwrite(NAME, whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 : -1])
        marks = DurableMarks(disk)
        assert await marks.open() == {key(0): 1}  # the last one was cut short
        marks.of(key(8), 5)
        await marks.sync()
        disk.kill()
        assert await DurableMarks(disk).open() == {key(0): 1, key(8): 5}


async def test_a_mark_that_cannot_be_written_stays_older_than_the_truth() -> None:
    disk = MemoryDisk()
    marks = DurableMarks(disk)
    await marks.open()
    log = marks.of(key(0), 3)
    marks.flush()
    for code in (errno.ENOSPC, errno.EIO):
        log.reach(log.offset + 1)
        disk.fail_next("write", code=code)
        marks.flush()
    disk.kill()
    assert await DurableMarks(disk).open() == {key(0): 3}
    marks.close()
    marks.flush()  # nothing to write to
