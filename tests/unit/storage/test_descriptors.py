"""Files that rest without a descriptor, against real files and a real shortage."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import structlog  # a node has it loaded when descriptors run out
import trio
from hypothesis import given
from hypothesis import strategies as st

from paceline_node.app.descriptor_limits import shares
from paceline_node.env import is_full
from paceline_node.settings.limits import LimitSettings
from paceline_node.storage.descriptors import Descriptors
from paceline_node.storage.disk import RealDisk, RealFile


@contextmanager
def limit(descriptors: int) -> Iterator[None]:
    """Only so many more descriptors than are open now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Others may be open above the first that is free.
    probes = [os.open(os.devnull, os.O_RDONLY) for _ in range(descriptors)]
    for probe in probes:
        os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probes[-1] + 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def has_descriptor(file: RealFile) -> bool:
    return file._fd >= 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[RealDisk]:
    made = RealDisk(str(tmp_path), most_open=8, reserve=2)
    yield made
    made.close()


async def many(disk: RealDisk, count: int) -> list[RealFile]:
    files = []
    for number in range(count):
        file = disk.create(f"f{number}")
        file.append([b"content %d" % number])
        await disk.sync([file])
        files.append(file)
    return files


async def test_files_not_in_use_rest_and_wake(disk: RealDisk) -> None:
    files = await many(disk, 40)
    assert sum(map(has_descriptor, files)) <= 9
    for _ in range(3):
        for number, file in enumerate(files):
            assert file.pread(99, 0) == b"content %d" % number
            assert await file.read(99, 0) == b"content %d" % number
            assert sum(map(has_descriptor, files)) <= 9
    for number, file in enumerate(files):
        file.append([b"!"])
        await disk.sync([file])
        assert file.pread(99, 0) == b"content %d!" % number
        file.close()
    assert disk._descriptors.count == 0
    assert not disk._descriptors._by_directory


async def test_what_is_not_synced_keeps_its_descriptor(disk: RealDisk) -> None:
    """A sync through another one might not be told that writing back failed."""
    first = disk.create("first")
    first.append([b"x"])
    await many(disk, 30)
    assert has_descriptor(first)
    await disk.sync([first])
    for number in range(30):
        (await disk.open(f"f{number}")).pread(1, 0)
    assert not has_descriptor(first)


async def test_a_thread_keeps_the_descriptor(disk: RealDisk) -> None:
    [file] = await many(disk, 1)
    file.pin()
    for number in range(30):
        other = disk.create(f"g{number}")
        await disk.sync([other])
    assert has_descriptor(file)
    file.unpin()


async def test_a_file_goes_on_under_its_new_name(disk: RealDisk) -> None:
    disk.mkdir("d")
    file = disk.create("d/a.cleaned")
    file.append([b"new"])
    old = disk.create("d/a")
    old.append([b"old"])
    await disk.sync([file, old])
    await many(disk, 30)
    assert not has_descriptor(file)
    assert not has_descriptor(old)
    disk.rename("d/a.cleaned", "d/a")
    disk.rename("d", "e")
    assert file.pread(9, 0) == b"new"
    assert old.pread(9, 0) == b"old", "a reader may still hold a slice of it"
    disk.remove("e/a")
    for number in range(30):
        (await disk.open(f"f{number}")).pread(1, 0)
    assert file.pread(9, 0) == b"new"
    disk.remove_tree("e")
    for each in (file, old):
        each.close()


async def test_a_removed_tree_leaves_its_readers_what_they_hold(disk: RealDisk) -> None:
    disk.mkdir("d")
    files = []
    for number in range(20):
        file = disk.create(f"d/{number}")
        file.append([b"%d" % number])
        await disk.sync([file])
        files.append(file)
    disk.remove_tree("d")
    assert [file.pread(9, 0) for file in files] == [b"%d" % number for number in range(20)]


async def test_a_closed_file_does_not_wake(disk: RealDisk) -> None:
    files = await many(disk, 20)
    for file in files:
        file.close()
        with pytest.raises(OSError, match="closed") as caught:
            file.pread(1, 0)
        assert caught.value.errno == errno.EBADF


async def test_logs_of_many_segments_and_few_descriptors(tmp_path: Path) -> None:
    disk = RealDisk(str(tmp_path), most_open=1 << 20, reserve=4)
    with limit(40):
        files = []
        for number in range(200):
            file = disk.create(f"f{number}")
            file.append([b"%d" % number])
            await disk.sync([file])
            await disk.fsync_dir("")
            files.append(file)
        assert [file.pread(9, 0) for file in files] == [b"%d" % n for n in range(200)]
    disk.close()


async def test_a_shortage_of_everything_is_waited_for(tmp_path: Path) -> None:
    """All descriptors are somebody else's: creating is refused as on a full disk, and syncing a
    directory waits."""
    disk = RealDisk(str(tmp_path), reserve=0)
    structlog.get_logger()
    with limit(3):
        taken = []
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(OSError, match="Too many") as caught:
            disk.create("a")
        assert is_full(caught.value)
        assert not disk.exists("a")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(disk.fsync_dir, "")
            await trio.sleep(0.05)
            for descriptor in taken:
                os.close(descriptor)
        disk.create("a").close()
    disk.close()


@pytest.mark.parametrize("rests", [False, True])
async def test_a_sync_waits_for_the_descriptors_that_it_needs(tmp_path: Path, rests: bool) -> None:
    """One of its own, and that of a file which rests. It has failed then for want of a descriptor,
    not of a disk, and would end the node."""
    disk = RealDisk(str(tmp_path), reserve=0)
    file = disk.create("a")
    if rests:
        assert isinstance(file, RealFile)
        assert file.rest()
    else:
        file.append([b"content"])
    with limit(2 if rests else 1):
        taken = []
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(disk.sync, [file])
            await trio.sleep(0.1)
            for descriptor in taken:
                os.close(descriptor)
    file.close()
    disk.close()


def test_the_reserve_is_spent_and_filled_again() -> None:
    descriptors = Descriptors(8, reserve=3)
    with limit(2):
        taken = []
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        found = [descriptors.open(os.devnull, os.O_RDONLY) for _ in range(3)]
        with pytest.raises(OSError, match="Too many"):
            descriptors.open(os.devnull, os.O_RDONLY)
        for descriptor in found:
            descriptors.close(descriptor)
        again = [descriptors.open(os.devnull, os.O_RDONLY) for _ in range(3)]
        for descriptor in again:
            os.close(descriptor)
    for descriptor in taken:
        os.close(descriptor)
    descriptors.end()


def test_who_gets_how_many() -> None:
    limits = LimitSettings()
    for of in (256, 1024, 65_536):
        given = shares(limits, of)
        for_clients = max(1, of - limits.reserved_descriptors)
        assert given.files <= max(16, for_clients // 3)
        assert given.per_listener <= max(1, for_clients * 3 // 4)
        assert given.per_listener <= limits.connections


class Named:
    """A file of which only the name matters."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.used = False
        self.kept = 0

    def rest(self) -> bool:
        return False

    def keep(self) -> None:
        self.kept += 1


_PARTS = st.lists(st.sampled_from("abc"), min_size=1, max_size=4)
_STEPS = st.lists(
    st.tuples(st.sampled_from(("open", "close", "going", "renamed")), _PARTS, _PARTS), max_size=40
)


@given(_STEPS)
def test_names_are_found_wherever_they_are(steps: list[tuple[str, list[str], list[str]]]) -> None:
    """Whatever was opened, closed, renamed and removed before: exactly the files at a path and
    below it are told that they go, or move."""
    cache = Descriptors(1000)
    files: list[Named] = []

    def below(path: str) -> list[Named]:
        return [f for f in files if f.where == path or f.where.startswith(f"{path}/")]

    for kind, parts, others in steps:
        path, other = "/" + "/".join(parts), "/" + "/".join(others)
        if kind == "open":
            files.append(Named(path))
            cache.opened(files[-1])
        elif kind == "close":
            for file in [file for file in files if file.where == path]:
                files.remove(file)
                cache.closed(file)
        elif kind == "going":
            expected = {id(file): file.kept + (file in below(path)) for file in files}
            cache.going(path)
            assert {id(file): file.kept for file in files} == expected
            files = [file for file in files if file not in below(path)]
        elif not (other + "/").startswith(path + "/"):
            moved = [(file, other + file.where[len(path) :]) for file in below(path)]
            cache.renamed(path, other)
            assert all(file.where == where for file, where in moved)
    for file in files:
        cache.closed(file)
    assert cache._by_directory == cache._below == {}
