"""When snapshots are taken, which are kept, and what waits for them."""

from __future__ import annotations

import random
from collections import Counter
from types import ModuleType

import pytest
import trio
from trio.testing import MockClock

from paceline.errors import CorruptMessage
from paceline_node.storage import log_state, producer_file
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.opening import open_log
from paceline_node.storage.recovery_report import RecoveryHints
from paceline_node.storage.torn_tail import Ending
from tests.unit.storage.turns import Turns
from tests.unit.storage.world import PATH, SMALL, batch, env_on, flush, new_log, reopen

LARGE = LogSettings(segment_bytes=20_000, retention_ms=None)


async def with_producers(disk: MemoryDisk, count: int) -> Log:
    log = await new_log(disk, LARGE)
    for number in range(count):
        log.append_leader(batch(producer=(number, 0, 0)), 1, 1_000)
    return log


async def test_many_producers_are_written_beside_appends(autojump_clock: MockClock) -> None:
    """The roll freezes them; what comes while they are written is not in the snapshot."""
    disk = MemoryDisk()
    log = await with_producers(disk, 3_000)
    due: list[int] = []
    log.state.on_due = lambda: due.append(1)
    log.seal()
    table = log.producers.snapshot()
    assert due
    names = producer_file.offsets(disk.list(PATH))
    assert 3_000 not in names
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.write_state)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(500):
            log.append_leader(batch(producer=(number, 0, 1)), 1, 1_000)
            await trio.lowlevel.checkpoint()
    kept = await producer_file.read(disk, PATH, 3_000)
    assert kept is not None
    other = type(log.producers)()
    other.load(kept.table)
    assert other.snapshot() == table != log.producers.snapshot()
    log.abandon()


async def steps_of_a_roll(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How many producers are written down in each turn of the loop, at a roll and behind it."""
    turns, steps = Turns(), Counter[int]()
    log = await with_producers(MemoryDisk(), 3_000)
    row = turns.counting(steps, producer_file.state_to_row)
    monkeypatch.setattr(producer_file, "state_to_row", row)
    async with turns.counted():
        log.seal()
        await log.write_state()
    assert steps.total() >= 3_000
    log.abandon()
    return steps


async def test_a_snapshot_at_a_roll_is_written_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = await steps_of_a_roll(monkeypatch)
    assert max(steps.values()) <= producer_file._ROWS


@pytest.mark.parametrize(("module", "bound"), [(log_state, "_AT_ONCE"), (producer_file, "_ROWS")])
async def test_a_snapshot_that_holds_the_loop_is_found(
    module: ModuleType, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutants: all of it at the roll; all of it in one piece."""
    few = producer_file._ROWS
    monkeypatch.setattr(module, bound, 1_000_000)
    steps = await steps_of_a_roll(monkeypatch)
    assert max(steps.values()) > few


async def test_segments_wait_for_the_snapshot_behind_them(autojump_clock: MockClock) -> None:
    disk = MemoryDisk()
    log = await with_producers(disk, 3_000)
    log.seal()
    await flush(log, disk)
    log.advance_start(3_000)
    log.start_written(3_000)
    assert log.oldest_offset < 3_000 == log.log_start_offset
    assert log.state_offset is not None
    assert log.state_offset < 3_000
    await log.write_state()
    assert log.oldest_offset == log.state_offset == 3_000
    await log.close()
    again = await reopen(disk, clean=True, log_start=3_000, settings=LARGE)
    assert not again.is_damaged
    assert len(again.producers) == 3_000
    assert again.producers == log.producers
    again.abandon()


@pytest.mark.parametrize("victim", [3_000, None])
async def test_a_log_without_its_anchor_is_damaged(
    victim: int | None, autojump_clock: MockClock
) -> None:
    """Whether a later snapshot still knows its producers, or none does."""
    disk = MemoryDisk()
    log = await with_producers(disk, 3_000)
    log.seal()
    log.advance_start(3_000)
    log.start_written(3_000)
    await log.write_state()
    log.append_leader(batch(producer=(9_000, 0, 0)), 1, 1_000)
    await log.close()
    for offset in producer_file.offsets(disk.list(PATH)):
        if victim in (offset, None):
            disk.remove(f"{PATH}/{producer_file.name(offset)}")
    again = await reopen(disk, clean=True, log_start=3_000, settings=LARGE)
    assert again.is_damaged
    assert again.state_offset is None
    assert again.state.is_founded == (victim is not None)
    assert len(again.producers) == (3_001 if victim else 1)
    again.abandon()


async def test_a_truncation_behind_all_marks_remembers_what_is_gone(
    autojump_clock: MockClock,
) -> None:
    """It went back to an empty table, though the log began above 0."""
    disk = MemoryDisk()
    log = await with_producers(disk, 3_000)
    log.seal()
    log.advance_start(3_000)
    log.start_written(3_000)
    await log.write_state()
    for number in range(30_000):
        log.append_leader(batch(producer=(5, 0, number + 1)), 1, 1_000)
    log.truncate(3_010)
    assert len(log.producers) == 3_000
    state = log.producers.producer(5)
    assert state is not None
    assert state.last_offset == 3_009
    log.abandon()


@pytest.mark.parametrize("left", [100, 400])
async def test_a_log_cut_and_grown_again_while_its_snapshot_is_written(
    left: int, autojump_clock: MockClock
) -> None:
    """Two writers of one file, of which the older one is about a history that is no more: few
    producers are written at once, many after it."""
    disk = MemoryDisk()
    log = await with_producers(disk, 600)
    log.seal()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.write_state)
        await trio.testing.wait_all_tasks_blocked()
        assert any(name.endswith(".tmp") for name in disk.list(PATH))
        log.truncate(left)
        log.append_leader(batch(600 - left), 2, 1_000)
        log.seal()
        assert log.log_end_offset == 600
        await flush(log, disk)
    await log.write_state()
    assert log.state.anchor(600, 600) == 600
    kept = await producer_file.read(disk, PATH, 600)
    assert kept is not None
    assert kept.epoch == 2
    assert len(kept.table.states) == left == len(log.producers)
    log.abandon()


async def test_a_snapshot_cut_short_or_rotten_is_told(autojump_clock: MockClock) -> None:
    disk = MemoryDisk()
    log = await with_producers(disk, 600)
    log.seal()
    await log.write_state()
    log.abandon()
    path = f"{PATH}/{producer_file.name(600)}"
    content = disk.content(path)
    for cut in (0, 5, 40, len(content) // 2, len(content) - 1):
        disk.overwrite(path, content[:cut])
        with pytest.raises(CorruptMessage, match="producers-"):
            await producer_file.read(disk, PATH, 600)
    for at in range(0, len(content), 997):
        rotten = bytearray(content)
        rotten[at] ^= 4
        disk.overwrite(path, bytes(rotten))
        with pytest.raises(CorruptMessage, match="producers-"):
            await producer_file.read(disk, PATH, 600)


async def terms(disk: MemoryDisk) -> Log:
    """Three segments of two records each; epoch 2 began at 3, after the epochs were written."""
    log = await new_log(disk)
    for offset, epoch in enumerate((1, 1, 1, 2, 2, 2)):
        log.append_leader(batch(producer=(offset, 0, 0)), epoch, 1_000)
        if offset == 1:
            log.seal()
            await flush(log, disk)
            await log.checkpoint()
        if offset == 3:
            log.seal()
    await flush(log, disk)
    return log


@pytest.mark.parametrize("ending", [Ending.KILLED, Ending.POWER_CUT])
async def test_an_anchor_is_of_a_term_that_no_table_on_disk_knows(ending: Ending) -> None:
    """Its newest term began below the log start. The mark says where it begins in this log; the
    table from before it began says nothing of what lies below."""
    disk = MemoryDisk()
    log = await terms(disk)
    log.advance_start(4)
    log.start_written(4)
    await flush(log, disk)
    marked = log.marked
    assert (marked.epoch, marked.epoch_start) == (2, 4)
    disk.kill()
    hints = RecoveryHints(ending, recovery_point=6, checkpoint=2, mark=marked, log_start=4)
    again = await open_log(env_on(disk), PATH, SMALL, hints)
    assert not again.is_damaged
    await again.write_state()
    assert again.state_offset == 4
    assert len(again.producers) == 6
    again.abandon()


@pytest.mark.parametrize("ending", [Ending.KILLED, Ending.POWER_CUT])
async def test_a_start_that_was_not_written_keeps_its_anchor(ending: Ending) -> None:
    """A roll between the moving of a log start and its writing removed what the older start, the
    one on disk, begins with."""
    disk = MemoryDisk()
    log = await terms(disk)
    log.start_written(2)
    log.advance_start(2)
    log.start_written(2)
    assert log.oldest_offset == 2
    log.advance_start(4)
    log.seal()
    await flush(log, disk)
    disk.kill()
    again = await reopen(disk, mark=6, ending=ending, log_start=2)
    assert not again.is_damaged
    await again.write_state()
    assert again.state_offset == 2
    assert len(again.producers) == 6
    again.abandon()


async def test_a_segment_goes_only_behind_an_anchor_that_a_restart_would_take() -> None:
    """The anchor lay above the written start: a restart looks for none there."""
    disk = MemoryDisk()
    log = await terms(disk)
    log.seal()
    await flush(log, disk)
    disk.remove(f"{PATH}/{producer_file.name(2)}")
    await disk.fsync_dir(PATH)
    log.abandon()
    log = await reopen(disk, clean=True)
    assert log.state.anchor(2, 2) is None
    log.advance_start(5)
    log.start_written(3)
    assert log.oldest_offset == 0
    log.start_written(4)
    assert log.oldest_offset == 4
    log.abandon()


@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_snapshot_made_again_while_its_sync_runs_waits_for_its_own(is_cut: bool) -> None:
    """The sync was of the file before, and a segment went on the word of one that no sync had
    covered: after a power cut the log had no anchor."""
    disk = MemoryDisk()
    log = await new_log(disk)
    for number in range(2):
        log.append_leader(batch(producer=(number, 0, 0)), 1, 1_000)
    log.seal()
    ticket = log.files_to_sync()
    if is_cut:
        log.truncate(1)
        log.append_leader(batch(producer=(7, 0, 0)), 2, 1_000)
    log.take_snapshot()
    await disk.sync(ticket.files)
    await disk.fsync_dir(PATH)
    log.synced(ticket)
    assert log.state.anchor(2, 2) is None
    await flush(log, disk)
    assert log.state.anchor(2, 2) == 2
    disk.power_cut(random.Random(1))
    log.abandon()
    again = await reopen(disk, log_start=2, mark=2)
    assert not again.is_damaged
    again.abandon()
