"""What makes the offsets checkpoints of a directory be written, and what does not."""

from __future__ import annotations

from uuid import UUID

import trio

from paceline.types import TopicId
from paceline_node.storage import layout
from paceline_node.storage.layout import CheckpointedStart, Offsets, PartitionKey
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.offset_checkpoints import KnownOffsets

TOPIC = TopicId(UUID(int=7))


class CountingDisk(MemoryDisk):
    """Counts how often each file is replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.replaced: list[str] = []

    def rename(self, old: str, new: str) -> None:
        self.replaced.append(new)
        super().rename(old, new)


def keys(count: int) -> list[PartitionKey]:
    return [(TOPIC, number) for number in range(count)]


async def known_on(disk: MemoryDisk) -> KnownOffsets:
    known = KnownOffsets(disk)
    await known.load()
    return known


async def formatted() -> CountingDisk:
    disk = CountingDisk()
    for which in Offsets:
        if which is Offsets.HIGH_WATERMARK:
            await layout.write_watermarks(disk, {}, {})
        else:
            await layout.write_offsets(disk, which, {})
    disk.replaced.clear()
    return disk


async def test_logs_that_are_made_together_share_the_writing_of_the_list() -> None:
    disk = await formatted()
    known = await known_on(disk)
    async with trio.open_nursery() as nursery:
        for key in keys(60):
            nursery.start_soon(known.begin, key)
    assert disk.replaced.count(Offsets.RECOVERY.value) <= 2
    assert (await known_on(disk)).partitions == frozenset(keys(60))
    await known.remove(keys(50))
    assert (await known_on(disk)).partitions == frozenset(keys(60)[50:])


async def test_what_says_nothing_new_is_not_written() -> None:
    disk = await formatted()
    known = await known_on(disk)
    for key in keys(3):
        await known.begin(key)
    offsets = dict.fromkeys(keys(3), 5)
    await known.write(Offsets.RECOVERY, offsets)
    await known.write_watermarks(offsets, dict.fromkeys(keys(3), 2))
    disk.replaced.clear()
    await known.write(Offsets.RECOVERY, offsets)
    await known.write_watermarks(offsets, dict.fromkeys(keys(3), 2))
    assert disk.replaced == []
    await known.write_watermarks(offsets, {keys(3)[0]: 3})
    assert disk.replaced == [Offsets.HIGH_WATERMARK.value]
    assert (await known_on(disk)).removed_to(keys(3)[0]) == 3


async def test_a_start_that_only_one_file_still_knows_is_written_to_the_others() -> None:
    """Both files of log starts went back in time; the next writing mends them, though nothing has
    changed since."""
    disk = await formatted()
    (key,) = keys(1)
    await layout.write_offsets(disk, Offsets.RECOVERY, {key: 9})
    await layout.write_offsets(disk, Offsets.LOG_START, {key: 3})
    await layout.write_watermarks(disk, {key: 9}, {key: CheckpointedStart(7, 0)})
    known = await known_on(disk)
    assert known.of(Offsets.LOG_START, key) == 7
    await known.write(Offsets.LOG_START, {key: 7})
    assert await layout.read_offsets(disk, Offsets.LOG_START) == {key: 7}
    assert known.on_disk(Offsets.LOG_START) == {key: 7}
