"""What a log knows of the tombstones it lacks, and whom it sends back to its start."""

from __future__ import annotations

import random

import msgpack
import pytest

from paceline.types import LeaderEpoch
from paceline_node.storage import checkpoint, compaction_file
from paceline_node.storage.compaction import CompactionRules
from paceline_node.storage.compaction_file import (
    COPY_NAME,
    CUT_COPY_NAME,
    CUT_NAME,
    NAME,
    CompactionState,
)
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.producers import FrozenTable
from paceline_node.storage.removed_tombstones import Removals
from paceline_node.storage.scrubbing import Beginning, note_beginning
from tests.unit.storage.keyed import compact, keyed
from tests.unit.storage.world import IDENTITY, PATH, SMALL, StillHost, flush, new_log, reopen

ONE, TWO = LeaderEpoch(1), LeaderEpoch(2)
COMPACTED = LogSettings(700, index_interval_bytes=150, compaction=CompactionRules())


async def deleted(disk: MemoryDisk, host: StillHost, settings: LogSettings = SMALL) -> Log:
    """A log of 4 records whose tombstone, at offset 2, has been removed."""
    log = await new_log(disk, settings, host=host)
    log.append_leader(keyed([(b"k", b"v"), (b"other", b"x")]), 1, 1_000)
    log.append_leader(keyed([(b"k", None), (b"z", b"z")]), 1, 1_000)
    log.seal()
    await flush(log, disk)
    await compact(disk, log, host)
    assert log.compaction.removals.removed_to == 0
    host.wall += 1_000
    await compact(disk, log, host)
    return log


async def test_who_ends_below_a_removed_tombstone_begins_anew() -> None:
    log = await deleted(MemoryDisk(), StillHost())
    removals = log.compaction.removals
    assert removals.removed_to == 4
    assert [removals.forbids(end, -1) for end in (0, 3, 4, 5)] == [True, True, False, False]
    log.abandon()


async def test_a_copy_is_good_if_the_tombstone_was_settled_when_it_began() -> None:
    """Begun before the compaction that took the value away, it may have the value."""
    disk, host = MemoryDisk(), StillHost()
    log = await new_log(disk, host=host)
    log.append_leader(keyed([(b"k", b"v"), (b"other", b"x")]), 1, 1_000)
    log.append_leader(keyed([(b"k", None), (b"z", b"z")]), 1, 1_000)
    log.seal()
    too_early = log.compaction.cleaned_offset
    await compact(disk, log, host)
    in_time = log.compaction.cleaned_offset
    host.wall += 500
    # Further compactions between the two do not make the copy worse.
    log.append_leader(keyed([(b"k2", None)]), 1, 1_000)
    log.seal()
    await compact(disk, log, host)
    host.wall += 500
    await compact(disk, log, host)
    removals = log.compaction.removals
    assert removals.removed_to == 4
    assert removals.forbids(1, too_early)
    assert not removals.forbids(1, in_time)
    host.wall += 500
    await compact(disk, log, host)
    assert log.compaction.removals.removed_to == 5
    assert log.compaction.removals.forbids(1, in_time)
    log.abandon()


def test_horizons_that_are_not_known_or_went_back_count_as_new() -> None:
    removals = Removals().with_horizon(1_000, 10).with_horizon(2_000, 20)
    assert removals.after(5, [1_000], 30).settled_from == 10
    assert removals.after(5, [2_000], 30).settled_from == 20
    assert removals.after(5, [2_001], 30).settled_from == 30
    back = removals.with_horizon(500, 40)
    assert back.after(5, [1_000], 50).settled_from == 40
    many = Removals()
    for number in range(1_000):
        many = many.with_horizon(number, number + 1)
    assert len(many.horizons) <= 64
    for number in range(1_000):
        assert many.after(5, [number], 2_000).settled_from > number
    assert many.after(5, [900], 2_000).settled_from < 1_001


def test_a_copy_proves_nothing_to_another_leader() -> None:
    removals = Removals(3).begun(ONE, 10, 20)
    assert (removals.token(ONE), removals.token(TWO)) == (20, -1)
    assert removals.removed_to == 20
    assert Removals().token(LeaderEpoch(-1)) == -1


async def test_what_was_removed_is_known_after_a_restart_and_a_cut() -> None:
    disk, host = MemoryDisk(), StillHost()
    log = await deleted(disk, host)
    removals = log.compaction.removals
    await log.close()
    log = await reopen(disk, mark=4, clean=True)
    assert log.compaction.removals == removals
    log.truncate(2)
    assert log.compaction == CompactionState(removals=Removals(4))
    await flush(log, disk)
    await log.close()
    assert disk.exists(f"{PATH}/{CUT_NAME}")
    assert not disk.exists(f"{PATH}/{NAME}")
    log = await reopen(disk, mark=2, clean=True)
    assert log.compaction == CompactionState(removals=Removals(4))
    log.abandon()


async def test_a_log_that_begins_anew_notes_what_its_leader_lacks() -> None:
    disk, host = MemoryDisk(), StillHost()
    log = await deleted(disk, host)
    log.begin_at(FrozenTable(0), is_kept=True)
    await note_beginning(disk, log, Beginning(FrozenTable(0), TWO, 7, 9))
    log.abandon()
    log = await reopen(disk, mark=0)
    assert (log.log_end_offset, log.compaction.cleaned_offset) == (0, 0)
    assert log.compaction.removals == Removals(9, copy_epoch=TWO, copied_at=9)
    assert not disk.exists(f"{PATH}/{CUT_NAME}")
    log.abandon()


@pytest.mark.parametrize("file", ["of the version before", "missing"])
async def test_a_compacted_log_that_does_not_say_may_lack_anything(file: str) -> None:
    disk, host = MemoryDisk(), StillHost()
    log = await deleted(disk, host, COMPACTED)
    await log.close()
    path = f"{PATH}/{NAME}"
    disk.remove(f"{PATH}/{COPY_NAME}")
    if file == "missing":
        disk.remove(path)
    else:
        old = msgpack.packb([4, -1, None, 1])
        await checkpoint.write(disk, path, checkpoint.Kind.COMPACTION, old, IDENTITY.owner)
    log = await reopen(disk, settings=COMPACTED, mark=4, clean=True)
    assert log.compaction.removals == Removals(4)
    assert (await compaction_file.read(disk, PATH, IDENTITY.owner)).removals == Removals(4)
    log.abandon()


@pytest.mark.parametrize("how", ["loss", "rot", "unreadable", "age"])
@pytest.mark.parametrize("names", [(NAME, CUT_NAME), (COPY_NAME, CUT_COPY_NAME)])
async def test_one_file_is_enough_to_know_what_a_log_lacks(
    names: tuple[str, str], how: str
) -> None:
    """An older one said that nothing lacks: who had missed the tombstone went on behind it."""
    disk, host = MemoryDisk(), StillHost()
    log = await new_log(disk, COMPACTED, host=host)
    log.append_leader(keyed([(b"k", b"v"), (b"other", b"x")]), 1, 1_000)
    log.append_leader(keyed([(b"k", None), (b"z", b"z")]), 1, 1_000)
    log.seal()
    await flush(log, disk)
    await compact(disk, log, host)
    early = {name: disk.content(f"{PATH}/{name}") for name in (NAME, COPY_NAME)}
    host.wall += 1_000
    await compact(disk, log, host)
    state = log.compaction
    assert state.removals.removed_to == 4
    await log.close()

    def hurt(name: str) -> None:
        path = f"{PATH}/{name}"
        if how == "loss":
            disk.lose(path)
        elif how == "rot":
            disk.rot(path, random.Random(3), bits=4)
        elif how == "unreadable":
            disk.make_unreadable(path, 0, 10)
        else:
            disk.overwrite(path, early[names[0]])

    hurt(names[0])
    log = await reopen(disk, settings=COMPACTED, mark=4, clean=True)
    assert log.compaction == state
    assert log.recovery.rebuilt == ()
    kept = [disk.content(f"{PATH}/{name}") for name in (NAME, COPY_NAME)]
    assert kept[0] == kept[1]
    log.truncate(2)
    await flush(log, disk)
    await log.close()
    hurt(names[1])
    log = await reopen(disk, settings=COMPACTED, mark=2, clean=True)
    assert log.compaction == CompactionState(removals=Removals(4))
    log.abandon()


async def test_a_log_that_was_never_compacted_lacks_nothing() -> None:
    disk = MemoryDisk()
    log = await new_log(disk)
    log.append_leader(keyed([(b"k", None)]), 1, 1_000)
    await flush(log, disk)
    await log.close()
    log = await reopen(disk, mark=1, clean=True)
    assert log.compaction == CompactionState()
    assert not disk.exists(f"{PATH}/{NAME}")
    log.abandon()
