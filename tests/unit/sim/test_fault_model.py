"""The simulated disk can fail in whatever the node keeps and asks of it: the tables of
``fault_model.py`` against the node's code. Who adds a file or a call has to say how it fails."""

from __future__ import annotations

import ast
import errno
import inspect
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import paceline_node
from paceline_cluster.sim.fault_model import CALLS, ELSEWHERE, FILES, MEDIA, kind_of
from paceline_cluster.sim.run import Run
from paceline_node.env import Disk, File
from paceline_node.storage import checkpoint, memory_disk
from paceline_node.storage.memory_disk import MemoryDisk, MemoryFile
from tests.sim.node.story import Story, perform, plan_of

ROOT = Path(paceline_node.__file__).parent
NOT_A_NODE = frozenset(("storage/memory_disk.py", "storage/disk.py", "env.py"))


def methods(protocol: type) -> set[str]:
    bases = [each for each in protocol.__mro__ if each.__module__ == protocol.__module__]
    return {
        f"{protocol.__name__}.{name}"
        for base in bases
        for name, member in vars(base).items()
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
    }


def test_every_call_of_the_disk_has_its_row() -> None:
    assert set(CALLS) == methods(Disk) | methods(File)


def test_every_operation_that_can_fail_stands_for_a_call() -> None:
    assert {operation for row in CALLS.values() for operation in row} == set(memory_disk.CALLS)


async def a_disk() -> tuple[MemoryDisk, MemoryFile]:
    disk = MemoryDisk()
    disk.mkdir("topics")
    file = disk.create("topics/file")
    file.append([b"bytes"])
    return disk, file


async def call(name: str, disk: MemoryDisk, file: MemoryFile) -> None:
    """Do what a method is for."""
    arguments: dict[str, tuple[object, ...]] = {
        "Disk.create": ("new",),
        "Disk.mkdir": ("new",),
        "Disk.open": ("topics/file",),
        "Disk.exists": ("topics/file",),
        "Disk.remove": ("topics/file",),
        "Disk.remove_tree": ("topics",),
        "Disk.list": ("topics",),
        "Disk.fsync_dir": ("topics",),
        "Disk.rename": ("topics/file", "topics/other"),
        "Disk.sync": ([file],),
        "File.append": ([b"more"],),
        "File.pwrite": (b"much more", 0),
        "File.pread": (5, 0),
        "File.read": (5, 0),
        "File.truncate": (100,),
    }
    owner = disk if name.startswith("Disk") else file
    method: Callable[..., object] = getattr(owner, name.partition(".")[2])
    found = method(*arguments.get(name, ()))
    if isinstance(found, Awaitable):
        await found


FAILURES = [
    (name, operation, code)
    for name, row in CALLS.items()
    for operation, ways in row.items()
    for code in ways
    if code in ("EIO", "ENOSPC", "EMFILE")
]


@pytest.mark.parametrize("name", ["Disk.open", "Disk.fsync_dir"])
async def test_what_may_wait_waits_for_a_descriptor_as_on_the_real_disk(name: str) -> None:
    disk, file = await a_disk()
    looks = iter(range(3))
    disk.starves = lambda: next(looks, None) is not None
    await call(name, disk, file)
    assert next(looks, None) is None


@pytest.mark.parametrize(("name", "operation", "code"), FAILURES)
async def test_a_call_fails_as_its_row_says(name: str, operation: str, code: str) -> None:
    disk, file = await a_disk()
    match code:
        case "EIO":
            disk.fail_next(operation)
        case "ENOSPC":
            disk.capacity_bytes = len(file.node.content)
        case _:
            disk.starves = lambda: True
    with pytest.raises(OSError, match="Errno") as caught:
        await call(name, disk, file)
    assert caught.value.errno == getattr(errno, code)
    disk.capacity_bytes = None
    disk.heal()
    await call(name, disk, file)


async def test_a_bad_range_fails_each_read_until_it_is_written_anew() -> None:
    disk, file = await a_disk()
    disk.make_unreadable("topics/file", 1, 3)
    for _ in range(2):
        assert file.pread(5, 0) == b"b"  # as of a kernel: what lies before it
        with pytest.raises(OSError, match="Errno 5"):
            file.pread(4, 1)
        with pytest.raises(OSError, match="Errno 5"):
            await file.read(1, 2)
    assert file.pread(1, 0) == b"b"
    assert file.pread(2, 3) == b"es"
    file.pwrite(b"Y", 1)
    assert file.pread(5, 0) == b"bY"
    file.pwrite(b"T", 2)
    assert file.pread(5, 0) == b"bYTes"


async def test_what_is_lost_is_lost_for_good_and_open_handles_go_on() -> None:
    disk, file = await a_disk()
    await disk.sync([file])
    await disk.fsync_dir("")
    await disk.fsync_dir("topics")
    disk.lose("topics/file")
    assert file.pread(5, 0) == b"bytes"
    assert not disk.exists("topics/file")
    disk.power_cut(random.Random(1))
    assert disk.list("topics") == []
    disk.lose("topics")
    assert not disk.exists("topics")


def test_sectors_of_one_write_are_old_or_new() -> None:
    seen = set()
    for seed in range(200):
        disk = MemoryDisk()
        file = disk.create("file")
        file.append([b"o" * 4096])
        node = disk.node("file")
        assert node is not None
        node.synced(node.pending())
        file.pwrite(b"n" * 4096, 0)
        node.power_cut(random.Random(seed))
        sectors = [bytes(node.content[at : at + 512]) for at in range(0, 4096, 512)]
        assert set(node.content) <= set(b"on")
        if all(sector in (b"o" * 512, b"n" * 512) for sector in sectors):
            seen.add("".join(chr(sector[0]) for sector in sectors))
    assert len(seen) > 20


# --- files ----------------------------------------------------------------------------------------


def makers() -> set[str]:
    """The node's modules that make or replace files by name."""
    found = set()
    for path in sorted(ROOT.rglob("*.py")):
        name = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and name not in NOT_A_NODE and _makes(node):
                found.add(name)
    return found


def _makes(node: ast.Call) -> bool:
    called = ast.unparse(node.func)
    return called.endswith(("disk.create", "copy.create", "_directory.create")) or called in (
        "checkpoint.write",
        "checkpoint.replace",
        "checkpoint.create_unsynced",
        "create_log",
    )


def test_every_module_that_makes_files_has_its_row() -> None:
    rows = {writer for kind in FILES for writer in kind.writers}
    assert makers() == rows | set(ELSEWHERE)


def test_every_kind_of_checkpoint_has_its_row() -> None:
    """A new kind of checkpoint is a new file: add it to the table, then here."""
    rows = {
        checkpoint.Kind.INCARNATION: "incarnation",
        checkpoint.Kind.EPOCHS: "epochs.ckpt",
        checkpoint.Kind.PRODUCERS: "producers.snap",
        checkpoint.Kind.OFFSETS: "hw.ckpt",
        checkpoint.Kind.PARTITION: "partition.metadata",
        checkpoint.Kind.RAFT_STATE: "hardstate",
        checkpoint.Kind.SNAPSHOT: ".snapshot",
        checkpoint.Kind.DAMAGE: "damaged.ckpt",
        checkpoint.Kind.COMPACTION: "compaction.ckpt",
        checkpoint.Kind.STATE: "producers.snap",
        checkpoint.Kind.RECOVERY_POINTS: "recovery.ckpt",
        checkpoint.Kind.HIGH_WATERMARKS: "hw.ckpt",
        checkpoint.Kind.LOG_STARTS: "logstart.ckpt",
    }
    assert set(rows) == set(checkpoint.Kind)
    assert set(rows.values()) <= {kind.name for kind in FILES}


def test_files_suffer_everything_unless_there_is_nothing_in_them() -> None:
    assert [kind.name for kind in FILES if kind.media != MEDIA] == ["disk-failed", ".log"]


@pytest.mark.timeout(300)
def test_every_file_of_a_running_cluster_is_of_a_kind() -> None:
    kinds = set()

    async def look(story: Story) -> None:
        run: Run = story.run
        await story.acknowledged(200)
        for machine in run.cluster.machines:
            for path, _ in machine.disk.files():
                kind = kind_of(path)
                assert kind is not None, f"{path} is of no kind"
                kinds.add(kind.name)

    assert perform(look, plan_of()).violation is None
    assert kinds >= {"meta.json", "incarnation", "hw.ckpt", ".log", "hardstate", ".raft"}


async def test_every_write_of_an_unwritable_file_fails_until_the_disk_is_healed() -> None:
    disk, file = await a_disk()
    other = disk.create("topics/other")
    disk.make_unwritable("topics/file")
    for _ in range(2):
        with pytest.raises(OSError, match="Errno 5"):
            file.pwrite(b"Y", 1)
    assert disk.has_failed
    assert file.pread(5, 0) == b"bytes"
    other.append([b"more"])
    disk.heal()
    file.pwrite(b"Y", 1)
    assert file.pread(5, 0) == b"bYtes"
