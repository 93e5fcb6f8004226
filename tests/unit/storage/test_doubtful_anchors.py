"""No anchor is made from a table that does not know all, nor of a log that changes meanwhile."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing

from paceline_node.storage import anchors, epoch_file, producer_file, scrubbing
from paceline_node.storage.log import Log
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.torn_tail import Ending
from tests.unit.storage import test_sequenced_log as sequenced
from tests.unit.storage.test_anchors import WHOLE, judged
from tests.unit.storage.test_repair import spoil
from tests.unit.storage.world import PATH, batch, flush, new_log, reopen


@pytest.mark.parametrize("is_anchor_lost", [False, True])
async def test_a_start_that_read_around_damage_given_up_makes_no_anchor(
    is_anchor_lost: bool,
) -> None:
    """It made one, and called itself whole: a batch sent again was stored twice."""
    disk = MemoryDisk()
    log = await new_log(disk, WHOLE)
    lost = batch(producer=(50, 0, 0))
    for number in range(12):
        data = bytearray(lost) if number == 6 else batch(producer=(number, 0, 0))
        log.append_leader(data, 0, 1_000)
        if number in (4, 9):
            log.seal()  # with snapshots at 5 and 10
            await flush(log, disk)
    await flush(log, disk)
    spoil(disk, log, 6)
    log.advance_start(8)
    log.start_written(8)
    await log.checkpoint()
    log.abandon()
    disk.lose(f"{PATH}/{epoch_file.NAME}")
    if is_anchor_lost:
        disk.lose(f"{PATH}/{producer_file.name(5)}")
    log = await reopen(disk, mark=12, log_start=8, ending=Ending.KILLED, settings=WHOLE)
    assert log.state.is_missing
    log.abandon()


async def deaf(disk: MemoryDisk, lost: bytearray) -> Log:
    """A log whose table is read from 3 on, around damage at 5, which ``lost`` was; and the anchor
    at 1 is wanted."""
    log = await new_log(disk, WHOLE)
    for number in range(3):
        log.append_leader(batch(producer=(number, 0, 0)), 0, 1_000)
    log.take_snapshot()
    await flush(log, disk)
    for number in range(3, 10):
        data = bytearray(lost) if number == 5 else batch(producer=(number, 0, 0))
        log.append_leader(data, 0, 1_000)
    await flush(log, disk)
    await log.checkpoint()
    spoil(disk, log, 0, 5)
    log.abandon()
    log = await reopen(disk, mark=10, ending=Ending.KILLED, settings=WHOLE)
    assert [(each.start, each.end) for each in log.damaged] == [(0, 1), (5, 6)]
    log.advance_start(1)
    assert not log.state.is_missing
    assert log.state_offset is None
    return log


async def test_a_table_that_was_read_around_damage_makes_no_anchor() -> None:
    """What the damage said may be that a producer was forgotten: the anchor went on knowing it,
    after the repair, too, and its next record was called a duplicate."""
    disk = MemoryDisk()
    log = await deaf(disk, batch(producer=(50, 0, 0)))
    with pytest.raises(LookupError, match="read around damage"):
        await anchors.renew(disk, log, 10)
    log.abandon()


async def test_damage_given_up_while_an_anchor_is_written_is_not_forgotten() -> None:
    disk = MemoryDisk()
    lost = batch(producer=(50, 0, 0))
    log = await deaf(disk, lost)
    state = log.producers.as_of(10)
    disk.sync_delay_s = lambda: 0.001

    async def put() -> None:
        with pytest.raises(LookupError, match="changed while its anchor"):
            await anchors.put(disk, log, state, log.version)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(put)
        await trio.testing.wait_all_tasks_blocked()
        log.advance_start(6)
        assert log.state.is_missing, "what producer 50 wrote is lost here"
    assert log.state.is_missing
    assert judged(log.producers, lost) == "new", "so nobody may believe it"
    log.abandon()


async def without_state(disk: MemoryDisk) -> Log:
    """A log that holds number 1 at offset 1, and does not know what was said before."""
    log = await new_log(disk, WHOLE)
    log.append_leader(batch(), 0, 1_000)
    log.seal()
    await flush(log, disk)
    log.advance_start(1)
    log.start_written(1)
    sequenced.append(log, [sequenced.number(1)])
    await flush(log, disk)
    log.abandon()
    for offset in producer_file.offsets(disk.list(PATH)):
        disk.remove(f"{PATH}/{producer_file.name(offset)}")
    log = await reopen(disk, mark=2, log_start=1, settings=WHOLE)
    assert log.state.is_missing
    return log


async def test_an_operators_word_is_not_for_what_a_power_cut_may_take() -> None:
    """Number 2 was in the anchor, on disk, before it was in the log: when it was sent again it was
    called a duplicate, and stored nowhere."""
    disk = MemoryDisk()
    log = await without_state(disk)
    sequenced.append(log, [sequenced.number(2)])
    await anchors.believe_own(disk, log, log.durable_offset)
    disk.power_cut(random.Random(3))
    log = await reopen(disk, mark=2, log_start=1, settings=WHOLE)
    assert log.log_end_offset == 2
    assert not log.state.is_missing
    sequenced.append(log, [sequenced.number(2)])
    assert log.log_end_offset == 3
    log.abandon()


async def test_an_operators_word_counts_only_once_it_is_written() -> None:
    """It returned as if done where the log had changed meanwhile: nobody tried again."""
    disk = MemoryDisk()
    log = await without_state(disk)
    disk.sync_delay_s = lambda: 0.001

    async def believe() -> None:
        with pytest.raises(LookupError, match="changed while its anchor"):
            await anchors.believe_own(disk, log, log.log_end_offset)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(believe)
        await trio.testing.wait_all_tasks_blocked()
        sequenced.append(log, [sequenced.number(2)])
        log.truncate(2)
    assert log.state.is_missing
    await anchors.believe_own(disk, log, log.log_end_offset)
    assert not log.state.is_missing
    log.abandon()


async def test_epochs_are_written_by_one_at_a_time() -> None:
    """A checkpoint and an anchor wrote them at once: each took the other's temporary file away, and
    the node ended."""
    disk = MemoryDisk()
    disk.sync_delay_s = lambda: 0.001
    log = await new_log(disk, WHOLE)
    for number in range(3):
        log.append_leader(batch(producer=(number, 0, 0)), 0, 1_000)
    await flush(log, disk)
    spoil(disk, log, 0)
    await scrubbing.scrub(disk, log, 0)
    log.advance_start(1)
    log.append_leader(batch(), 7, 1_000)  # a new leader epoch
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.checkpoint)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(anchors.renew, disk, log, 3)
    assert log.state_offset == 1
    log.abandon()
