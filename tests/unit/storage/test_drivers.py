"""One suite for both disks: what code may rely on, it may rely on in the simulator too."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from paceline_node.env import Disk
from paceline_node.storage.disk import RealDisk
from paceline_node.storage.memory_disk import MemoryDisk


@pytest.fixture(params=["real", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    made: Disk = RealDisk(str(tmp_path)) if request.param == "real" else MemoryDisk()
    yield made
    made.close()


async def test_append_joins_chunks_and_tells_where(disk: Disk) -> None:
    file = disk.create("a")
    assert file.append([b"one"]) == 0
    assert file.append([memoryview(b"two"), b"", bytearray(b"three")]) == 3
    assert file.size() == 11
    assert file.pread(100, 0) == b"onetwothree"
    assert file.pread(3, 3) == b"two"
    assert file.pread(3, 11) == b""
    assert await file.read(5, 6) == b"three"
    file.close()


async def test_append_takes_more_chunks_than_one_system_call(disk: Disk) -> None:
    file = disk.create("a")
    chunks = [b"%04d" % number for number in range(3000)]
    file.append(chunks)
    assert file.pread(12_000, 0) == b"".join(chunks)
    file.close()


async def test_pwrite_overwrites_and_extends(disk: Disk) -> None:
    file = disk.create("a")
    file.append([b"abcdef"])
    file.pwrite(b"XY", 2)
    file.pwrite(b"tail", 8)
    assert file.size() == 12
    assert file.pread(12, 0) == b"abXYef\0\0tail"
    assert file.append([b"!"]) == 12
    file.close()


async def test_truncate_cuts_and_later_appends_follow(disk: Disk) -> None:
    file = disk.create("a")
    file.append([b"abcdef"])
    file.truncate(2)
    assert file.append([b"Z"]) == 2
    assert file.pread(9, 0) == b"abZ"
    file.close()


async def test_open_sees_what_was_written(disk: Disk) -> None:
    disk.mkdir("one/two")
    first = disk.create("one/two/a")
    first.append([b"abc"])
    again = await disk.open("one/two/a")
    assert (again.size(), again.pread(9, 0), again.path) == (3, b"abc", "one/two/a")
    first.close()
    again.close()


async def test_names(disk: Disk) -> None:
    assert disk.list("nowhere") == []
    disk.mkdir("d")
    disk.mkdir("d")
    for name in ("c", "a", "b"):
        disk.create(f"d/{name}").close()
    assert disk.list("d") == ["a", "b", "c"]
    assert disk.exists("d/a")
    assert disk.exists("d")
    disk.remove("d/a")
    disk.remove("d/a")
    assert not disk.exists("d/a")
    disk.rename("d/b", "d/c")
    assert disk.list("d") == ["c"]
    disk.rename("d", "stray-d")
    assert disk.list("stray-d") == ["c"]
    disk.remove_tree("stray-d")
    disk.remove_tree("stray-d")
    assert not disk.exists("stray-d")


async def test_errors_are_those_of_the_system(disk: Disk) -> None:
    disk.create("a").close()
    with pytest.raises(FileExistsError):
        disk.create("a")
    with pytest.raises(FileNotFoundError):
        await disk.open("missing")
    with pytest.raises(FileNotFoundError):
        disk.create("missing/a")
    with pytest.raises(FileNotFoundError):
        disk.rename("missing", "b")
    with pytest.raises(FileNotFoundError):
        await disk.fsync_dir("missing")


@pytest.mark.parametrize(
    "use",
    [
        lambda file: file.append([b"x"]),
        lambda file: file.pwrite(b"x", 0),
        lambda file: file.pread(1, 0),
        lambda file: file.truncate(0),
        lambda file: file.fileno(),
    ],
)
async def test_a_closed_file_refuses(disk: Disk, use: Callable[[object], object]) -> None:
    file = disk.create("a")
    file.close()
    file.close()
    with pytest.raises(OSError, match="closed") as caught:
        use(file)
    assert caught.value.errno == errno.EBADF


async def test_sync_many_files_and_directories(disk: Disk) -> None:
    disk.mkdir("d")
    files = [disk.create(f"d/{number}") for number in range(9)]
    for file in files:
        file.append([b"x" * 5000])
    await disk.sync(files)
    await disk.sync([])
    await disk.fsync_dir("d")
    await disk.fsync_dir("")
    for file in files:
        file.close()


async def test_syncs_run_side_by_side(disk: Disk) -> None:
    files = [disk.create(str(number)) for number in range(6)]
    async with trio.open_nursery() as nursery:
        for file in files:
            file.append([b"x"])
            nursery.start_soon(disk.sync, [file])
    for file in files:
        file.close()


async def test_closing_while_threads_work_is_safe(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path))
    file = disk.create("a")
    file.append([b"x" * 1_000_000])
    got: list[bytes] = []

    async def read() -> None:
        got.append(await file.read(1_000_000, 0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(disk.sync, [file])
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        file.close()
    assert got == [b"x" * 1_000_000]
    with pytest.raises(OSError, match="closed"):
        file.pread(1, 0)
    disk.close()


async def test_sync_refuses_a_foreign_file(disk: Disk, tmp_path: Path) -> None:
    other: Disk = MemoryDisk() if isinstance(disk, RealDisk) else RealDisk(str(tmp_path))
    file = other.create("foreign")
    with pytest.raises(TypeError, match="not a file of this disk"):
        await disk.sync([file])
    file.close()
    other.close()


async def test_free_and_total_bytes(disk: Disk) -> None:
    assert 0 < disk.free_bytes() <= disk.total_bytes()
    assert disk.device_id() == disk.device_id()


async def test_one_holder_of_the_lock(tmp_path: Path) -> None:
    first, second = RealDisk(str(tmp_path)), RealDisk(str(tmp_path))
    first.lock()
    with pytest.raises(BlockingIOError, match=r"in use by process [0-9]+"):
        second.lock()
    first.close()
    second.lock()
    second.close()


async def test_one_holder_of_the_memory_lock() -> None:
    disk = MemoryDisk()
    disk.lock()
    with pytest.raises(BlockingIOError, match="in use"):
        disk.lock()
    disk.kill()
    disk.lock()
