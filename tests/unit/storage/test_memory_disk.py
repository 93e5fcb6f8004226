"""What a power cut leaves of a memory disk (sim/DESIGN 2)."""

from __future__ import annotations

import errno
import random

import pytest
import trio
import trio.testing

from paceline_node.storage.memory_disk import MemoryDisk

SEEDS = range(200)


async def file_with(disk: MemoryDisk, synced: bytes) -> None:
    file = disk.create("file")
    file.append([synced])
    await disk.sync([file])
    await disk.fsync_dir("")


async def test_synced_bytes_survive_and_others_may() -> None:
    """Over many seeds: always the synced prefix; sometimes nothing more, sometimes all of it,
    sometimes holes."""
    synced, later = b"s" * 6_000, b"n" * 20_000
    kinds = set()
    for seed in SEEDS:
        disk = MemoryDisk()
        await file_with(disk, synced)
        file = await disk.open("file")
        file.append([later[:9_000]])
        file.append([later[9_000:]])
        disk.power_cut(random.Random(seed))
        left = disk.content("file")
        assert left.startswith(synced)
        rest = left[len(synced) :]
        assert set(rest) <= {0, ord("n")}
        kinds.add(
            "none" if not rest else "all" if rest == later else "holes" if 0 in rest else "part"
        )
    assert kinds == {"none", "all", "holes", "part"}


async def test_overwritten_bytes_are_old_or_new_by_page() -> None:
    seen = set()
    for seed in SEEDS:
        disk = MemoryDisk()
        await file_with(disk, b"o" * 16_384)
        file = await disk.open("file")
        file.pwrite(b"n" * 16_384, 0)
        disk.power_cut(random.Random(seed))
        left = disk.content("file")
        assert len(left) == 16_384
        assert set(left) <= {ord("o"), ord("n")}
        seen.add(left.count(b"n") // 4_096)
    assert seen >= {0, 1, 2, 3, 4}


async def test_an_unsynced_truncation_may_be_undone() -> None:
    lengths = set()
    for seed in SEEDS:
        disk = MemoryDisk()
        await file_with(disk, b"abcdef")
        (await disk.open("file")).truncate(2)
        disk.power_cut(random.Random(seed))
        lengths.add(disk.content("file"))
    assert lengths == {b"ab", b"abcdef"}


async def test_entries_survive_in_order() -> None:
    seen = set()
    for seed in SEEDS:
        disk = MemoryDisk()
        disk.mkdir("d")
        await disk.fsync_dir("")
        disk.create("d/kept")
        await disk.fsync_dir("d")
        disk.create("d/one")
        disk.rename("d/one", "d/two")
        disk.remove("d/kept")
        disk.power_cut(random.Random(seed))
        seen.add(tuple(disk.list("d")))
    assert seen == {("kept",), ("kept", "one"), ("kept", "two"), ("two",)}


async def test_a_directory_without_a_durable_name_is_gone_with_its_files() -> None:
    disk = MemoryDisk()
    disk.mkdir("d")
    file = disk.create("d/file")
    file.append([b"x"])
    await disk.sync([file])
    await disk.fsync_dir("d")
    gone = set()
    for seed in range(20):
        copy = MemoryDisk()
        copy.mkdir("d")
        inner = copy.create("d/file")
        await copy.sync([inner])
        await copy.fsync_dir("d")
        copy.power_cut(random.Random(seed))
        gone.add(copy.exists("d"))
    assert gone == {True, False}


async def test_a_kill_keeps_everything_but_the_handles() -> None:
    disk = MemoryDisk()
    file = disk.create("file")
    file.append([b"abc"])
    disk.kill()
    assert disk.content("file") == b"abc"
    with pytest.raises(OSError, match="closed"):
        file.append([b"d"])
    with pytest.raises(OSError, match="closed"):
        await disk.sync([file])


async def test_what_a_failed_sync_dropped_stays_dropped() -> None:
    disk = MemoryDisk()
    await file_with(disk, b"abc")
    file = await disk.open("file")
    file.append([b"lost"])
    disk.fail_next("sync")
    with pytest.raises(OSError, match="Input/output error"):
        await disk.sync([file])
    file.append([b"kept"])
    await disk.sync([file])  # "succeeds"
    assert file.pread(99, 0) == b"abclostkept"
    disk.power_cut(random.Random(1))
    assert disk.content("file") == b"abc\0\0\0\0kept"


async def test_faults_strike_once_and_by_path() -> None:
    disk = MemoryDisk()
    one, two = disk.create("one"), disk.create("two")
    disk.fail_next("write", code=errno.EROFS, path="two")
    one.append([b"x"])
    with pytest.raises(OSError, match="Read-only") as caught:
        two.append([b"x"])
    assert caught.value.errno == errno.EROFS
    two.append([b"x"])


async def test_capacity() -> None:
    disk = MemoryDisk()
    file = disk.create("file")
    disk.capacity_bytes = 10
    file.append([b"12345678"])
    assert disk.free_bytes() == 2
    with pytest.raises(OSError, match="No space") as caught:
        file.append([b"1234"])
    assert caught.value.errno == errno.ENOSPC
    assert file.size() == 8
    file.pwrite(b"abcd", 0)  # nothing new is needed
    file.append([b"90"])


async def test_rot_flips_bits() -> None:
    disk = MemoryDisk()
    await file_with(disk, bytes(100))
    disk.rot("file", random.Random(1), start=50)
    left = disk.content("file")
    assert left[:50] == bytes(50)
    assert sum(byte.bit_count() for byte in left) == 1


async def test_a_power_cut_during_a_sync(autojump_clock: trio.testing.MockClock) -> None:
    disk = MemoryDisk()
    disk.sync_delay_s = lambda: 1.0
    file = disk.create("file")
    file.append([b"abc"])
    outcome: list[str] = []

    async def sync() -> None:
        try:
            await disk.sync([file])
        except OSError as error:
            outcome.append(str(error.strerror))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sync)
        await trio.sleep(0.5)
        disk.power_cut(random.Random(1))
    assert outcome == ["the machine went down during a sync"]


async def test_wipe() -> None:
    disk = MemoryDisk()
    await file_with(disk, b"abc")
    disk.fail_next("rename")
    disk.wipe()
    assert disk.list("") == []
    assert not disk.will_fail("rename")


async def test_a_bad_sector_is_good_again_once_all_the_file_has_of_it_was_written() -> None:
    disk = MemoryDisk()
    file = disk.create("log")
    file.append([b"x" * 700])
    disk.make_unreadable("log", 512, 1024)
    file.pwrite(b"y" * 100, 512)
    with pytest.raises(OSError, match="Input/output error"):
        file.pread(88, 612)
    file.pwrite(b"y" * 88, 612)
    assert file.pread(188, 512) == b"y" * 188
    node = disk.node("log")
    assert node is not None
    assert not node.unreadable
