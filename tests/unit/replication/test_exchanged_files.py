"""Newest files of two logs of one node that take each other's place."""

from __future__ import annotations

import pytest

from paceline.wire.end_marker import EndMarker, build_end_marker
from paceline_node.storage import layout
from paceline_node.storage.torn_tail import Ending
from tests.unit.replication.test_log_directory import Process, first, key
from tests.unit.storage.world import batch

Batches = list[bytearray]


def plain(*values: int, repeat: int = 1) -> Batches:
    return [batch(value=b"%d" % value * repeat) for value in values]


def marker(producer: int) -> bytearray:
    """The same in each partition of its transaction."""
    return build_end_marker(
        EndMarker(True, 1), producer_id=producer, producer_epoch=0, timestamp_ms=1_000
    )


EXCHANGED: dict[str, tuple[Batches, Batches]] = {
    "other values": (plain(0, 1, 2), plain(10, 11, 12)),
    "other lengths": (plain(0, 1, 2), plain(10, 11, 12, repeat=2)),
    "the same transaction at the end": ([*plain(0), marker(7)], [*plain(10), marker(7)]),
    "many of the same at the end": (
        [*plain(0), *map(marker, range(7))],
        [*plain(10), *map(marker, range(7))],
    ),
    "the same at both ends": ([*plain(5, 0), marker(7)], [*plain(5, 10), marker(7)]),
    "the same beginning": (plain(5, 0), plain(5, 10)),
    "fewer and more": (plain(0, 1, 2, 3), plain(10, 11)),
}


async def exchanged(
    ending: Ending,
    batches: tuple[Batches, Batches],
    *,
    syncs: int = 1,
    without_marks: bool = False,
) -> Process:
    """The newest files of two logs take each other's place."""
    process = await first()
    logs = [await process.create(number, count=0) for number in range(2)]
    for log, contents in zip(logs, batches, strict=True):
        for content in contents:
            log.append_leader(bytearray(content), 1, 1_000)
            await process.sync(log)
    await process.directory.write_checkpoints({log: log.log_end_offset for log in logs})
    for _ in range(syncs - 1):  # neither an idle start nor a sync without a batch forgets it
        process = process.killed()
        if without_marks:  # and what is not known of it is found out
            process.disk.remove("durable.marks")
        opened = await process.open()
        await process.directory.marks.sync()
        logs = [opened.logs[key(number)] for number in range(2)]
        for log in logs:
            await process.sync(log)
    if ending is Ending.CLEAN:
        for log in logs:
            await log.close()
        await process.directory.close()
    names = [log.segments[-1].path() for log in logs]
    process = process.killed()
    one, other = map(process.disk.content, names)
    process.disk.overwrite(names[0], other)
    process.disk.overwrite(names[1], one)
    return process


async def assert_not_served(process: Process, ending: Ending) -> None:
    opened = await process.open(clean=ending is Ending.CLEAN)
    assert opened.missing == opened.damaged == (key(0), key(1))
    assert not opened.logs
    strays = await layout.list_strays(process.disk)
    assert sorted(each.identity.partition for each in strays if each.identity) == [0, 1]


@pytest.mark.parametrize("ending", [Ending.CLEAN, Ending.KILLED])
@pytest.mark.parametrize("syncs", [1, 3])
@pytest.mark.parametrize("which", EXCHANGED)
async def test_a_file_of_another_log_is_not_served(ending: Ending, syncs: int, which: str) -> None:
    """Both logs had equal offsets, and nothing in a file says whose it is."""
    process = await exchanged(ending, EXCHANGED[which], syncs=syncs)
    await assert_not_served(process, ending)


@pytest.mark.parametrize("ending", [Ending.CLEAN, Ending.KILLED])
async def test_marks_that_were_lost_know_the_files_again(ending: Ending) -> None:
    """Without a record written since."""
    batches = EXCHANGED["other values"]
    process = await exchanged(ending, batches, syncs=2, without_marks=True)
    await assert_not_served(process, ending)


async def test_a_log_that_was_cut_is_known_at_once() -> None:
    process = await first()
    logs = [await process.create(number, count=0) for number in range(2)]
    for number, log in enumerate(logs):
        for content in plain(*range(10 * number, 10 * number + 4)):
            log.append_leader(content, 1, 1_000)
        await process.sync(log)
        log.truncate(3)
        await process.sync(log)
    names = [log.segments[-1].path() for log in logs]
    process = process.killed()
    one, other = map(process.disk.content, names)
    process.disk.overwrite(names[0], other)
    process.disk.overwrite(names[1], one)
    await assert_not_served(process, Ending.KILLED)


@pytest.mark.parametrize("at", [0, 1, 2])
async def test_rot_is_not_taken_for_another_logs_file(at: int) -> None:
    """In the checksum that a batch says it has: the first, the last, one of the last few."""
    process = await first()
    log = await process.create(0, count=3)
    path, size = log.segments[0].path(), log.size_bytes // 3
    process = process.killed()
    content = bytearray(process.disk.content(path))
    content[at * size + 17] ^= 1
    process.disk.overwrite(path, bytes(content))
    opened = await process.open()
    assert [(each.start, each.end) for each in opened.logs[key(0)].damaged] == [(at, at + 1)]


async def test_a_power_cut_may_leave_an_older_mark() -> None:
    """What ends there may be another batch by then: it speaks against nobody."""
    process = await exchanged(Ending.POWER_CUT, EXCHANGED["other values"])
    opened = await process.open(same_boot=False)
    assert not opened.damaged
