"""A directory where a file of the node should be is moved aside (storage/DESIGN 5.6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from paceline.types import NodeId
from paceline_cluster.sim.raft.durable import CLUSTER, member
from paceline_node.controller.raft_mark import mark_of
from paceline_node.controller.raft_store import RaftStore, write_bootstrap
from paceline_node.env import Disk
from paceline_node.storage import durable_marks, incarnation
from paceline_node.storage.disk import RealDisk
from paceline_node.storage.durable_marks import DurableMarks
from paceline_node.storage.incarnation import Incarnation, Verdict
from paceline_node.storage.layout import DirectoryMeta, format_directory, read_meta
from paceline_node.storage.memory_disk import MemoryDisk


@pytest.fixture(params=["real", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    made: Disk = RealDisk(str(tmp_path)) if request.param == "real" else MemoryDisk()
    yield made
    made.close()


def put_directory(disk: Disk, path: str) -> None:
    """A directory with something in it."""
    disk.mkdir(f"{path}/inner")


async def test_a_directory_in_the_place_of_the_marks(disk: Disk) -> None:
    put_directory(disk, durable_marks.NAME)
    found = DurableMarks(disk)
    with capture_logs() as logs:
        assert await found.open() == {}
    assert found.was_missing
    assert disk.list(f"{durable_marks.NAME}.odd") == ["inner"]
    assert [(each["path"], each["to"]) for each in logs] == [
        (durable_marks.NAME, f"{durable_marks.NAME}.odd")
    ]
    again = DurableMarks(disk)
    await again.open()
    assert not again.was_missing


@pytest.mark.parametrize("name", [incarnation.NAME, f"{incarnation.NAME}.tmp"])
async def test_a_directory_in_the_place_of_the_incarnation(disk: Disk, name: str) -> None:
    for _ in range(2):  # what was moved aside before gives way
        disk.remove(incarnation.NAME)
        put_directory(disk, name)
        assert await incarnation.read(disk) is None
        await incarnation.write(disk, Incarnation(boot_seq=7))
        found = await incarnation.read(disk)
        assert found is not None
        assert found.boot_seq == 7
        assert incarnation.begin(found, Verdict.TRUSTED).boot_seq == 8
        assert disk.list(f"{name}.odd") == ["inner"]


async def test_a_directory_in_the_place_of_the_meta(disk: Disk) -> None:
    meta = DirectoryMeta(CLUSTER, NodeId(0), UUID(int=5))
    await format_directory(disk, meta)
    disk.remove("meta.json")
    put_directory(disk, "meta.json")
    assert await read_meta(disk) == meta


@pytest.mark.parametrize("name", ["metadata.mark", "metadata/hardstate", "metadata/hardstate.tmp"])
async def test_a_directory_in_the_place_of_a_file_of_the_metadata(disk: Disk, name: str) -> None:
    await write_bootstrap(disk, "metadata", cluster_id=CLUSTER, voters=[member(0)], state=b"")
    (await RaftStore.open(disk, "metadata", CLUSTER)).close()
    assert mark_of("metadata") == "metadata.mark"
    disk.remove(name)
    put_directory(disk, name)
    store = await RaftStore.open(disk, "metadata", CLUSTER)
    store.close()
    assert store.recovery.log.last_index == 1
    (await RaftStore.open(disk, "metadata", CLUSTER)).close()
