"""Files and directories of one node that its disk cannot even open: damage, never a node that does
not start."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from paceline.types import NodeId, TopicId
from paceline_node.env import SyncFailed
from paceline_node.replication.log_directory import LogDirectory, OpenedLogs
from paceline_node.storage import checkpoint, incarnation, layout
from paceline_node.storage.disk import RealDisk, RealFile
from paceline_node.storage.layout import DirectoryMeta, PartitionKey
from paceline_node.storage.log import Log
from paceline_node.storage.log_file import Unreadable
from paceline_node.storage.partition_file import PartitionIdentity
from tests.unit.storage.world import SMALL, batch, env_on, flush

TOPIC = TopicId(UUID(int=0x12345678 << 96))
META = DirectoryMeta(UUID(int=7), NodeId(2), UUID(int=9))
FIRST = f"{0:020d}"
ROOT_FILES = (
    "durable.marks",
    "recovery.ckpt",
    "hw.ckpt",
    "logstart.ckpt",
    "logstart-copy.ckpt",
)


def key(number: int) -> PartitionKey:
    return TOPIC, number


class RottenDisk(RealDisk):
    """Real files, of which those with ``rotten`` in their paths cannot be opened; ``is_stuck``: nor
    looked at, replaced or removed, as where the inode has rotted."""

    rotten = ""
    code = errno.EIO
    is_stuck = False

    def _judge(self, path: str) -> None:
        if self.rotten and self.rotten in path:
            raise OSError(self.code, os.strerror(self.code), path)

    async def open(self, path: str) -> RealFile:
        if super().exists(path):
            self._judge(path)
        return await super().open(path)

    def list(self, path: str) -> list[str]:
        if self.rotten and path.endswith(self.rotten):
            self._judge(path)
        return super().list(path)

    def exists(self, path: str) -> bool:
        if self.is_stuck:
            self._judge(path)
        return super().exists(path)

    def remove(self, path: str) -> None:
        if self.is_stuck and super().exists(path):
            self._judge(path)
        super().remove(path)

    def rename(self, old: str, new: str) -> None:
        if self.is_stuck and super().exists(new):
            self._judge(new)
        super().rename(old, new)
        if self.rotten and new.endswith(self.rotten):
            self.rotten = ""  # another file by now


class World:
    """One process after another on one directory, with two logs of 12 records."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self.disk = RottenDisk(self._root)
        self.directory = LogDirectory(env_on(self.disk))

    async def fill(self) -> None:
        await layout.format_directory(self.disk, META)
        await self.open(clean=True)
        logs = [await self._create(number) for number in range(2)]
        await self.directory.write_checkpoints(dict.fromkeys(logs, 12))

    async def _create(self, number: int) -> Log:
        log = await self.directory.create(PartitionIdentity(TOPIC, "orders", number), SMALL)
        for _ in range(12):
            log.append_leader(batch(), 1, 1_000)
        await flush(log, self.disk)
        self.directory.marks.flush()
        return log

    async def open(self, *, clean: bool = False) -> OpenedLogs:
        return await self.directory.open_all(clean=clean, settings=SMALL, same_boot=True)

    def restart(self) -> None:
        self.disk.close()
        self.disk = RottenDisk(self._root)
        self.directory = LogDirectory(env_on(self.disk))


@asynccontextmanager
async def filled(root: Path) -> AsyncIterator[World]:
    world = World(root)
    try:
        await world.fill()
        world.restart()
        yield world
    finally:
        world.disk.close()


@pytest.mark.parametrize("code", [errno.EIO, errno.EUCLEAN])
@pytest.mark.parametrize("name", [f"{FIRST}.log", "orders-0.12345678"])
async def test_a_log_that_cannot_be_opened_is_damaged(tmp_path: Path, name: str, code: int) -> None:
    async with filled(tmp_path) as world:
        world.disk.rotten = name if name.startswith("orders") else f"orders-0.12345678/{name}"
        world.disk.code = code
        opened = await world.open()
        assert opened.missing == opened.damaged == (key(0),)
        assert opened.lost_ends == {key(0): 12}
        assert opened.logs[key(1)].log_end_offset == 12
        world.disk.rotten = ""
        (stray,) = await layout.list_strays(world.disk)
        assert stray.identity == PartitionIdentity(TOPIC, "orders", 0)


@pytest.mark.parametrize(
    "name",
    [
        f"{FIRST}.index",
        f"{FIRST}.timeindex",
        "epochs.ckpt",
        "partition.metadata",
        "compaction.ckpt",
        "damaged.ckpt",
    ],
)
@pytest.mark.parametrize("is_stuck", [False, True])
async def test_a_small_file_of_a_log_that_cannot_be_opened(
    tmp_path: Path, name: str, is_stuck: bool
) -> None:
    """It is derived anew; where not even that can be done, the log is damaged."""
    async with filled(tmp_path) as world:
        path = f"topics/orders-0.12345678/{name}"
        if not world.disk.exists(path):
            await checkpoint.replace(world.disk, path, b"anything")
        world.disk.rotten, world.disk.is_stuck = path, is_stuck
        opened = await world.open()
        assert opened.logs[key(1)].log_end_offset == 12
        log = opened.logs.get(key(0))
        if not is_stuck:
            assert log is not None
        if log is None:
            assert opened.missing == opened.damaged == (key(0),)
        else:
            assert log.log_end_offset == 12


@pytest.mark.parametrize("name", ROOT_FILES)
async def test_a_file_of_the_node_that_cannot_be_opened_is_lost(tmp_path: Path, name: str) -> None:
    """What that means is the same as for one that is not there."""
    found = []
    for how in ("gone", "rotten"):
        async with filled(tmp_path / how) as world:
            if how == "gone":
                world.disk.remove(name)
            else:
                world.disk.rotten = f"/{name}" if "/" in name else name
            opened = await world.open()
            ends = [log.log_end_offset for log in opened.logs.values()]
            found.append((sorted(ends), opened.missing, opened.doubtful, opened.list_is_lost))
    assert found[0] == found[1]
    assert found[0][0] == [12, 12]


async def test_a_sync_that_fails_is_the_whole_disk(tmp_path: Path) -> None:
    async with filled(tmp_path) as world:

        async def fail(path: str) -> None:
            raise SyncFailed(errno.EIO, "sync failed", path)

        world.disk.fsync_dir = fail  # type: ignore[method-assign]
        world.disk.rotten = f"orders-0.12345678/{FIRST}.log"
        with pytest.raises(ExceptionGroup) as caught:
            await world.open()
        assert caught.group_contains(SyncFailed)


async def test_a_stray_that_cannot_be_deleted_stays(tmp_path: Path) -> None:
    async with filled(tmp_path) as world:
        opened = await world.open()

        def stuck(path: str) -> None:
            raise OSError(errno.EUCLEAN, os.strerror(errno.EUCLEAN), path)

        world.disk.remove_tree = stuck  # type: ignore[method-assign]
        await world.directory.retire([opened.logs[key(0)]], delete=True)
        (stray,) = await layout.list_strays(world.disk)
        assert stray.identity == PartitionIdentity(TOPIC, "orders", 0)


async def test_files_of_the_node_that_say_how_it_ended(tmp_path: Path) -> None:
    async with filled(tmp_path) as world:
        await incarnation.write(world.disk, incarnation.Incarnation(clean=True))
        world.disk.rotten, world.disk.is_stuck = "incarnation", True
        assert await incarnation.read(world.disk) is None
        assert not incarnation.has_failed(world.disk)
        world.disk.rotten = incarnation.FAILED
        assert incarnation.has_failed(world.disk)
        world.disk.rotten = "meta.json"
        with pytest.raises(Unreadable):
            await checkpoint.read_file(world.disk, "meta.json")
        assert await layout.read_meta(world.disk) == META
