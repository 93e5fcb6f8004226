"""The small files of two logs of one node are exchanged, with equal names and equal offsets: each
is as good as missing, and what they decide is what the log itself says."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

import msgpack
import pytest

from paceline.errors import CorruptMessage
from paceline.types import TopicId
from paceline_node.storage import checkpoint, compaction_file, damage, epoch_file, producer_file
from paceline_node.storage.compaction_file import CompactionState
from paceline_node.storage.damage import DamagedRange
from paceline_node.storage.durability import Marked
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.opening import create_log, open_log
from paceline_node.storage.partition_file import NAME as METADATA
from paceline_node.storage.partition_file import PartitionIdentity
from paceline_node.storage.producer_file import IncomingSnapshot
from paceline_node.storage.producer_state import key_of_id
from paceline_node.storage.recovery_report import RecoveryHints
from paceline_node.storage.removed_tombstones import Removals
from paceline_node.storage.torn_tail import Ending
from tests.unit.storage.world import batch, content, env_on, flush

MINE = PartitionIdentity(TopicId(UUID(int=1)), "orders", 0)
OTHER = PartitionIdentity(TopicId(UUID(int=1)), "orders", 1)
HERE, THERE = "topics/orders-0.00000000", "topics/orders-1.00000000"
SETTINGS = LogSettings(segment_bytes=900, index_interval_bytes=150, retention_ms=None)
COUNT = 20
"""Batches of one record in each log, of equal sizes: the files of both have the same names."""
ENDINGS = pytest.mark.parametrize("ending", [Ending.CLEAN, Ending.KILLED])


@dataclass
class Node:
    """Two logs on one disk."""

    disk: MemoryDisk = field(default_factory=MemoryDisk)
    marks: dict[str, Marked] = field(default_factory=dict)
    start: int = 0

    async def write(self, path: str, who: PartitionIdentity, producer: int, epoch: int) -> Log:
        """A log of ``COUNT`` batches; the last ones are of ``epoch``."""
        log = await create_log(env_on(self.disk), path, who, SETTINGS)
        for number in range(COUNT):
            value = batch(producer=(producer, 0, number), value=b"%05d" % producer)
            log.append_leader(value, epoch if number > 9 else 1, 1_000)
        await flush(log, self.disk)
        self.marks[path] = log.marked
        return log

    async def both(self, *, epochs: tuple[int, int] = (2, 2)) -> tuple[Log, Log]:
        self.disk.mkdir("topics")
        await self.disk.fsync_dir("")
        mine = await self.write(HERE, MINE, 7, epochs[0])
        return mine, await self.write(THERE, OTHER, 8, epochs[1])

    async def end(self, logs: tuple[Log, Log], ending: Ending) -> None:
        for log in logs:
            if ending is Ending.CLEAN:
                await log.close()
            else:
                await log.checkpoint()
                await flush(log, self.disk)
                log.abandon()

    def exchange(self, name: str) -> None:
        one, two = f"{HERE}/{name}", f"{THERE}/{name}"
        mine = self.disk.content(one)
        assert mine != self.disk.content(two)
        self.disk.overwrite(one, self.disk.content(two))
        self.disk.overwrite(two, mine)

    async def open(self, path: str, ending: Ending) -> Log:
        mark = self.marks[path]
        hints = RecoveryHints(
            ending, recovery_point=mark.offset, mark=mark, log_start=self.start, first_offset=0
        )
        if self.start:
            hints = RecoveryHints(
                ending, recovery_point=mark.offset, mark=mark, log_start=self.start
            )
        return await open_log(env_on(self.disk), path, SETTINGS, hints)


@ENDINGS
async def test_a_snapshot_of_another_log_is_not_believed(ending: Ending) -> None:
    """A node answered DUPLICATE for records that were in none of its logs."""
    node = Node()
    logs = await node.both()
    producers = {log.path: log.producers.snapshot() for log in logs}
    await node.end(logs, ending)
    snapshots = producer_file.offsets(node.disk.list(HERE))
    assert snapshots
    for offset in snapshots:
        node.exchange(producer_file.name(offset))
    for path in (HERE, THERE):
        log = await node.open(path, ending)
        assert log.producers.snapshot() == producers[path]
        assert not log.is_damaged
        await log.close()
        again = await node.open(path, Ending.CLEAN)
        assert again.producers.snapshot() == producers[path]
        again.abandon()


@ENDINGS
@pytest.mark.parametrize("all_exchanged", [True, False])
async def test_an_anchor_of_another_log_is_no_anchor(all_exchanged: bool, ending: Ending) -> None:
    """Where no later snapshot is left, as after the kill here, nobody knows what the records below
    said: a peer does."""
    node = Node()
    logs = await node.both()
    for log in logs:
        node.start = log.segments[1].base_offset
        log.advance_start(node.start)
        log.start_written(node.start)
        assert log.oldest_offset == node.start
    await node.end(logs, ending)
    snapshots = producer_file.offsets(node.disk.list(HERE))
    for offset in snapshots if all_exchanged else [node.start]:
        node.exchange(producer_file.name(offset))
    is_lost = all_exchanged or max(snapshots) == node.start
    for path, producer in ((HERE, 7), (THERE, 8)):
        log = await node.open(path, ending)
        assert log.is_damaged == is_lost
        await log.write_state()
        assert log.state_offset == (None if is_lost else node.start)
        if not is_lost:
            assert [key for key, _ in log.producers] == [key_of_id(producer)]
        log.abandon()


@ENDINGS
async def test_an_epoch_table_of_another_log_is_not_believed(ending: Ending) -> None:
    """It named epochs that this log never had, at offsets where none began."""
    node = Node()
    logs = await node.both(epochs=(2, 3))
    tables = {log.path: log.epochs.entries for log in logs}
    await node.end(logs, ending)
    node.exchange(epoch_file.NAME)
    for path in (HERE, THERE):
        log = await node.open(path, ending)
        assert log.epochs.entries == tables[path]
        assert not log.is_damaged
        log.abandon()


@ENDINGS
async def test_damage_of_another_log_is_not_believed(ending: Ending) -> None:
    """A log whose end came before the other's damage went on behind it."""
    node = Node()
    logs = await node.both()
    await node.end(logs, ending)
    await damage.write(node.disk, HERE, MINE.owner, [DamagedRange(50, 60, "rot")])
    await damage.write(node.disk, THERE, OTHER.owner, [DamagedRange(70, 80, "rot")])
    node.exchange(damage.NAME)
    for path in (HERE, THERE):
        log = await node.open(path, ending)
        assert log.log_end_offset == COUNT
        assert not log.is_damaged
        assert damage.NAME in log.recovery.rebuilt
        log.abandon()


@ENDINGS
@pytest.mark.parametrize("names", [[compaction_file.NAME], list(compaction_file._CUTS)])
async def test_what_another_log_lacks_is_not_believed(ending: Ending, names: list[str]) -> None:
    """With both files exchanged a log that lacks tombstones said that it has all of them."""
    node = Node()
    logs = await node.both()
    await node.end(logs, ending)
    lacking = CompactionState(20, removals=Removals(20))
    await compaction_file.write(node.disk, HERE, MINE.owner, lacking)
    await compaction_file.write(node.disk, THERE, OTHER.owner, CompactionState())
    for name in names:
        node.exchange(name)
    log = await node.open(HERE, ending)
    assert log.compaction.removals.removed_to == 20
    log.abandon()


@ENDINGS
async def test_an_offset_index_of_another_log_leads_to_the_right_records(ending: Ending) -> None:
    """Its entries are of other places, but for the last."""
    node = Node()
    node.disk.mkdir("topics")
    await node.disk.fsync_dir("")
    for path, who, counts in ((HERE, MINE, (1, 3)), (THERE, OTHER, (3, 1))):
        log = await create_log(env_on(node.disk), path, who, SETTINGS)
        for count in counts * 8:
            log.append_leader(batch(count, value=b"v" * (40 if count == 1 else 20)), 1, 1_000)
        await flush(log, node.disk)
        node.marks[path] = log.marked
        whole = content(log)
        await node.end((log, log), ending) if ending is Ending.KILLED else await log.close()
        if path == HERE:
            mine = whole
    common = set(node.disk.list(HERE)) & set(node.disk.list(THERE))
    for name in sorted(each for each in common if each.endswith(".index")):
        if node.disk.content(f"{HERE}/{name}") != node.disk.content(f"{THERE}/{name}"):
            node.exchange(name)
    log = await node.open(HERE, ending)
    assert content(log) == mine
    for offset in range(log.log_end_offset):
        found = log.locate(offset, 1, log.log_end_offset)
        assert found is not None
        assert found.base_offset <= offset < found.next_offset
    assert not log.is_damaged
    log.abandon()


async def test_files_of_the_version_before_are_read_once_and_named() -> None:
    node = Node()
    logs = await node.both()
    await node.end(logs, Ending.CLEAN)
    payload = msgpack.packb([MINE.topic_id.bytes, MINE.topic, MINE.partition, 1])
    metadata = checkpoint.encode(checkpoint.Kind.PARTITION, payload)
    node.disk.overwrite(f"{HERE}/{METADATA}", metadata)
    _unname(node.disk, HERE)
    log = await node.open(HERE, Ending.CLEAN)
    assert log.producers.snapshot() == logs[0].producers.snapshot()
    assert not log.is_damaged
    log.abandon()
    for offset in producer_file.offsets(node.disk.list(HERE)):
        assert await producer_file.read(node.disk, HERE, offset, MINE.owner) is not None
    assert await epoch_file.read(node.disk, HERE, MINE.owner) == log.epochs
    _unname(node.disk, HERE)
    for offset in producer_file.offsets(node.disk.list(HERE)):
        with pytest.raises(CorruptMessage, match="does not say whose it is"):
            await producer_file.read(node.disk, HERE, offset, MINE.owner)
    log = await node.open(HERE, Ending.CLEAN)
    assert log.producers.snapshot() == logs[0].producers.snapshot()
    log.abandon()


def _unname(disk: MemoryDisk, path: str) -> None:
    """As earlier versions wrote the files."""
    for name in disk.list(path):
        data = disk.content(f"{path}/{name}")
        if name == epoch_file.NAME:
            inner = checkpoint.decode(checkpoint.Kind.EPOCHS, data)
            disk.overwrite(f"{path}/{name}", checkpoint.encode(checkpoint.Kind.EPOCHS, inner))
        elif name.startswith("producers-"):
            size = 12 + int.from_bytes(data[8:12], "big") + 4
            head = msgpack.unpackb(checkpoint.decode(checkpoint.Kind.STATE, data[:size]))[:3]
            frame = checkpoint.encode(checkpoint.Kind.STATE, msgpack.packb(head))
            disk.overwrite(f"{path}/{name}", frame + data[size:])


async def test_a_state_of_another_partition_is_not_taken_over() -> None:
    """Its sender was taken in by a file: who asked is not."""
    node = Node()
    logs = await node.both()
    await node.end(logs, Ending.CLEAN)
    name = producer_file.name(COUNT)
    incoming = IncomingSnapshot(node.disk, HERE, MINE.owner, COUNT)
    incoming.add(memoryview(node.disk.content(f"{THERE}/{name}")))
    with pytest.raises(CorruptMessage, match=r"it belongs to .*/1, expected .*/0"):
        await incoming.finish()
    incoming.abandon()
    kept = await producer_file.read(node.disk, HERE, COUNT, MINE.owner)
    assert kept is not None


async def test_a_state_from_a_leader_of_the_version_before_is_named() -> None:
    node = Node()
    logs = await node.both()
    await node.end(logs, Ending.CLEAN)
    _unname(node.disk, THERE)
    old = node.disk.content(f"{THERE}/{producer_file.name(COUNT)}")
    incoming = IncomingSnapshot(node.disk, THERE, OTHER.owner, COUNT)
    incoming.add(memoryview(old))
    found = await incoming.finish()
    incoming.abandon()
    kept = await producer_file.read(node.disk, THERE, COUNT, OTHER.owner)
    assert kept is not None
    assert kept.epoch == found.epoch == 2
    assert len(kept.table.states) == len(found.table.states) == 1


async def test_a_leader_does_not_give_out_a_foreign_state() -> None:
    node = Node()
    await node.end(await node.both(), Ending.CLEAN)
    file = await node.disk.open(f"{THERE}/{producer_file.name(COUNT)}")
    await producer_file.check(file, OTHER.owner)
    with pytest.raises(CorruptMessage, match="it belongs to"):
        await producer_file.check(file, MINE.owner)
    file.close()
