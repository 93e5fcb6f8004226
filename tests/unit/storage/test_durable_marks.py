"""``durable.marks``: exact after a kill, never too high after a power cut, never in the way."""

from __future__ import annotations

import errno
import os
import random
import struct
from contextlib import suppress
from uuid import UUID

import pytest

from paceline.types import TopicId
from paceline.wire.checksum import crc32c
from paceline_node.storage.durability import Marked
from paceline_node.storage.durable_marks import NAME, RIDE_S, DurableMarks
from paceline_node.storage.fingerprint import UNKNOWN, Fingerprint
from paceline_node.storage.layout import PartitionKey
from paceline_node.storage.memory_disk import MemoryDisk


def at(offset: int, epoch: int = 3, start: int = 0) -> Marked:
    return Marked(offset, epoch, start)


def key(number: int) -> PartitionKey:
    return TopicId(UUID(int=number % 3 + 1)), number


async def test_marks_outlive_a_kill_without_a_sync() -> None:
    disk = MemoryDisk()
    marks = DurableMarks(disk)
    assert await marks.open() == {}
    logs = [marks.of(key(number), at(0)) for number in range(300)]
    for number, log in enumerate(logs):
        log.reach(at(number * 7))
    marks.flush()
    logs[5].reach(at(1_000))  # after the last group: nobody was told
    disk.kill()
    assert await DurableMarks(disk).open() == {key(number): at(number * 7) for number in range(300)}


async def test_slots_of_earlier_versions() -> None:
    """They knew one checksum, or none."""
    disk = MemoryDisk()
    marks = DurableMarks(disk)
    await marks.open()
    known = Marked(10, 3, 0, Fingerprint(1, 2, 3, 4))
    marks.of(key(0), known)
    marks.flush()
    disk.kill()
    again = DurableMarks(disk)
    assert await again.open() == {key(0): known}
    slot = disk.content(NAME)
    one = slot[:48] + struct.pack(">I", crc32c(slot[:48])) + bytes(12)
    none = slot[:44] + bytes(20)
    for content, told in ((one, Fingerprint(1)), (none, UNKNOWN)):
        disk.overwrite(NAME, content)
        assert await DurableMarks(disk).open() == {key(0): Marked(10, 3, 0, told)}


async def test_a_mark_rises_by_a_sync_and_falls_at_once() -> None:
    disk = MemoryDisk()
    marks = DurableMarks(disk)
    await marks.open()
    log = marks.of(key(0), at(10))
    log.reach(at(5))
    marks.flush()
    log.lower(at(12))
    disk.kill()
    again = DurableMarks(disk)
    assert await again.open() == {key(0): at(10)}
    again.of(key(0), at(10)).lower(at(4))
    disk.kill()
    assert await DurableMarks(disk).open() == {key(0): at(4)}


async def test_a_log_that_was_given_up_leaves_the_marks_of_others_alone() -> None:
    """It may be in a sync that is under way, while its slot is given to another."""
    disk = MemoryDisk()
    marks = DurableMarks(disk)
    await marks.open()
    gone = marks.of(key(0), at(10))
    marks.forget([key(0)])
    gone.reach(at(11))
    other = marks.of(key(1), at(5))
    gone.reach(at(12))
    gone.lower(at(3))
    marks.forget([key(1)])
    again = marks.of(key(0), at(0))
    other.reach(at(9))
    again.reach(at(2))
    marks.flush()
    disk.kill()
    assert await DurableMarks(disk).open() == {key(0): at(2)}


async def test_a_mark_follows_the_epochs_of_a_log_that_does_not_grow() -> None:
    """A repair may tell of an epoch that was not known before."""
    disk = MemoryDisk()
    marks = DurableMarks(disk)
    await marks.open()
    log = marks.of(key(0), at(10, 3, 0))
    log.reach(at(10, 4, 8))
    log.reach(at(9, 5, 8))
    marks.flush()
    disk.kill()
    assert await DurableMarks(disk).open() == {key(0): at(10, 4, 8)}


@pytest.mark.parametrize("sector", [0, 1])
async def test_what_cannot_be_read_is_written_anew(sector: int) -> None:
    disk = MemoryDisk()
    marks = DurableMarks(disk)
    await marks.open()
    for number in range(300):
        marks.of(key(number), at(number))
    marks.flush()
    disk.make_unreadable(NAME, 512 * sector, 512 * sector + 512)
    disk.kill()
    again = DurableMarks(disk)
    found = await again.open()
    assert found == {key(number): at(number) for number in range(300) if key(number) in found}
    assert len(found) >= 300 - 64  # a page of them is lost
    node = disk.node(NAME)
    assert node is not None
    assert not node.unreadable
    again.close()


async def test_marks_ride_in_some_syncs_and_after_a_fall_in_the_next() -> None:
    disk = MemoryDisk()
    marks = DurableMarks(disk)
    await marks.open()
    log = marks.of(key(0), at(0))
    assert marks.to_ride(0.0) == []  # nothing was written
    log.reach(at(1))
    marks.flush()
    assert len(marks.to_ride(0.0)) == 1
    log.reach(at(2))
    marks.flush()
    assert marks.to_ride(RIDE_S * 0.9) == []
    assert len(marks.to_ride(RIDE_S)) == 1
    log.lower(at(1))
    assert len(marks.to_ride(RIDE_S)) == 1
    assert marks.to_ride(RIDE_S * 9) == []


async def test_after_a_power_cut_each_mark_is_one_that_was_true() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        disk = MemoryDisk()
        marks = DurableMarks(disk)
        await marks.open()
        logs = [marks.of(key(number), at(0)) for number in range(200)]
        await marks.sync()
        synced = [0] * len(logs)
        for step in range(20):
            for number in rng.sample(range(len(logs)), 40):
                logs[number].reach(at(logs[number].told.offset + rng.randrange(5)))
            marks.flush()
            if rng.random() < 0.3:
                await disk.sync(marks.to_ride(float(step)))
                synced = [log.told.offset for log in logs]
        disk.power_cut(rng)
        found = await DurableMarks(disk).open()
        for number, log in enumerate(logs):
            assert synced[number] <= found[key(number)].offset <= log.told.offset


async def test_a_forgotten_partition_leaves_its_slot_to_the_next() -> None:
    disk = MemoryDisk()
    marks = DurableMarks(disk)
    await marks.open()
    for number in range(4):
        marks.of(key(number), at(number))
    marks.forget([key(1), key(9)])
    marks.of(key(7), at(70))
    await marks.sync()
    assert len(disk.content(NAME)) == 4 * 64
    disk.kill()
    assert await DurableMarks(disk).open() == {
        key(0): at(0),
        key(2): at(2),
        key(3): at(3),
        key(7): at(70),
    }


async def test_a_rotten_slot_says_nothing_and_harms_no_other() -> None:
    disk = MemoryDisk()
    marks = DurableMarks(disk)
    await marks.open()
    for number in range(3):
        marks.of(key(number), at(number + 1))
    await marks.sync()
    whole = disk.content(NAME)
    for place in range(64, 108):
        disk.kill()
        disk.overwrite(NAME, whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 : -1])
        marks = DurableMarks(disk)
        assert await marks.open() == {key(0): at(1)}  # the last one was cut short
        marks.of(key(8), at(5))
        await marks.sync()
        disk.kill()
        assert await DurableMarks(disk).open() == {key(0): at(1), key(8): at(5)}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
async def test_a_mark_that_cannot_be_written_is_told_of_and_stays_older(code: int) -> None:
    disk = MemoryDisk()
    marks = DurableMarks(disk)
    await marks.open()
    log = marks.of(key(0), at(3))
    marks.flush()
    log.reach(at(4))
    disk.fail_next("write", code=code)
    with pytest.raises(OSError, match=os.strerror(code)):
        marks.flush()
    assert await DurableMarks(disk).open() == {key(0): at(3)}
    disk.fail_next("write", code=code)
    log.lower(at(2))  # a false alarm at most
    assert await DurableMarks(disk).open() == {key(0): at(3)}
    marks.flush()
    assert await DurableMarks(disk).open() == {key(0): at(2)}
    marks.close()
    marks.flush()  # nothing to write to


# --- the count of syncs ---------------------------------------------------------------------------


async def counting(disk: MemoryDisk, noted: list[int]) -> DurableMarks:
    marks = DurableMarks(disk)
    await marks.open()
    await marks.count_from(0, noted.append)
    return marks


async def counted(disk: MemoryDisk) -> int:
    disk.kill()
    marks = DurableMarks(disk)
    await marks.open()
    marks.close()
    return marks.syncs


async def test_a_sync_is_counted_before_it_begins_and_noted_when_it_has_succeeded() -> None:
    disk, noted = MemoryDisk(), list[int]()
    marks = await counting(disk, noted)
    for number in range(3):
        files = marks.to_ride(float(number))
        assert len(noted) == number + 1, "not before it is durable"
        await disk.sync(files)
        marks.rode()
        assert marks.to_ride(number + RIDE_S / 2) == []
        marks.rode()
    assert noted == [1, 2, 3, 4]
    await marks.sync()
    assert noted == [1, 2, 3, 4], "an idle node leaves its disk alone"
    marks.of(key(0), at(3)).reach(at(4))
    await marks.sync()
    assert noted == [1, 2, 3, 4, 5]
    assert await counted(disk) == 5


async def test_nothing_is_counted_before_the_controller_has_heard_of_the_start() -> None:
    disk = MemoryDisk()
    marks = DurableMarks(disk)
    await marks.open()
    marks.of(key(0), at(3)).reach(at(4))
    await marks.sync()
    assert await counted(disk) == 0


async def test_an_older_copy_goes_on_from_what_was_noted() -> None:
    disk, noted = MemoryDisk(), list[int]()
    marks = await counting(disk, noted)
    marks.close()
    marks = DurableMarks(disk)
    await marks.open()
    assert marks.syncs == 1
    await marks.count_from(7, noted.append)
    assert noted == [1, 8]
    disk.power_cut(random.Random(1))
    assert await counted(disk) == 8


async def test_what_is_noted_is_never_more_than_is_durable() -> None:
    """Whatever fails, and wherever the power goes."""
    for seed in range(60):
        rng = random.Random(seed)
        disk, noted = MemoryDisk(), [0]
        marks = await counting(disk, noted)
        logs = [marks.of(key(number), at(0)) for number in range(100)]
        for step in range(rng.randrange(1, 12)):
            rng.choice(logs).reach(at(step))
            if rng.random() < 0.3:
                disk.fail_next("write", code=errno.ENOSPC)
            with suppress(OSError):
                marks.flush()
            files = marks.to_ride(float(step))
            if rng.random() < 0.8:
                await disk.sync(files)
                marks.rode()
            if rng.random() < 0.2:
                await marks.sync()
        disk.power_cut(rng)
        assert await counted(disk) >= noted[-1]


async def test_the_count_is_no_log_and_a_rotten_one_harms_none() -> None:
    disk, noted = MemoryDisk(), list[int]()
    marks = await counting(disk, noted)
    marks.of(key(0), at(5))
    await marks.sync()
    marks.of(key(1), at(6))
    await marks.sync()
    whole = disk.content(NAME)
    assert len(whole) == 3 * 64
    place = whole.index(b"syncs so far")
    for byte in range(place, place + 64):
        disk.kill()
        disk.overwrite(NAME, whole[:byte] + bytes([whole[byte] ^ 4]) + whole[byte + 1 :])
        marks = DurableMarks(disk)
        assert await marks.open() == {key(0): at(5), key(1): at(6)}
        assert marks.syncs == 0
        await marks.count_from(9, noted.append)
        assert await counted(disk) == 10
