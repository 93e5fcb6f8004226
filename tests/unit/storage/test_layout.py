"""The data directory: formatting, names, strays, offsets."""

from __future__ import annotations

import random
from pathlib import Path
from uuid import UUID

import pytest

from paceline.errors import ConfigurationError
from paceline.types import NodeId, TopicId
from paceline_node.storage import checkpoint, incarnation, layout
from paceline_node.storage.disk import RealDisk
from paceline_node.storage.layout import DirectoryMeta, Offsets
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.memory_disk import MemoryDisk
from paceline_node.storage.opening import create_log
from paceline_node.storage.partition_file import PartitionIdentity
from tests.unit.storage.world import batch, env_on

META = DirectoryMeta(UUID(int=7), NodeId(2), UUID(int=9))
TOPIC = TopicId(UUID("12345678-0000-0000-0000-000000000001"))


async def test_format_and_read() -> None:
    disk = MemoryDisk()
    assert await layout.read_meta(disk) is None
    await layout.format_directory(disk, META)
    disk.power_cut(random.Random(1))
    assert await layout.read_meta(disk) == META
    assert await incarnation.read(disk) == incarnation.FORMATTED
    with pytest.raises(ConfigurationError, match="in use by a node already"):
        await layout.format_directory(disk, META)


async def test_format_refuses_a_directory_with_logs() -> None:
    disk = MemoryDisk()
    disk.mkdir("topics/orders-0.00000000")
    with pytest.raises(ConfigurationError):
        await layout.format_directory(disk, META)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"{}", b'{"version": 2}', b'{"version": 1, "node_id": -1}',
     b'{"version": 1, "node_id": 1, "cluster_id": "x", "directory_id": "y"}'],
)  # fmt: skip
async def test_a_bad_meta_file_stops_the_node(text: bytes) -> None:
    disk = MemoryDisk()
    disk.create("meta.json").append([text])
    with pytest.raises(ConfigurationError, match=r"meta\.json"):
        await layout.read_meta(disk)


def test_partition_paths() -> None:
    assert layout.partition_path("orders", TOPIC, 3) == "topics/orders-3.12345678"
    longest = layout.partition_path("x" * 249, TOPIC, 99_999)
    assert longest == f"topics/{'x' * 180}-99999.12345678"
    assert len(f"stray-{2**63}-{longest}") <= 255


async def test_partitions_and_strays(tmp_path: Path) -> None:
    for disk in (MemoryDisk(), RealDisk(str(tmp_path))):
        await layout.format_directory(disk, META)
        env = env_on(disk)
        paths = []
        for number in (0, 1):
            path = layout.partition_path("orders", TOPIC, number)
            identity = PartitionIdentity(TOPIC, "orders", number)
            log = await create_log(env, path, identity, LogSettings())
            log.append_leader(batch(), 1, 1_000)
            await log.close()
            paths.append(path)
        disk.mkdir("topics/unknown")
        disk.create("topics/unknown/file").close()
        found = await layout.list_partitions(disk)
        assert [(each.path, each.identity and each.identity.partition) for each in found] == [
            (paths[0], 0),
            (paths[1], 1),
            ("topics/unknown", None),
        ]
        stray = await layout.set_aside(disk, paths[0], 123_456)
        assert [each.path for each in await layout.list_partitions(disk)] == [
            paths[1],
            "topics/unknown",
        ]
        (kept,) = await layout.list_strays(disk)
        assert (kept.path, kept.since_ms) == (stray, 123_456)
        assert kept.identity == PartitionIdentity(TOPIC, "orders", 0)
        disk.close()


async def test_offsets_under_the_name_of_others_are_none() -> None:
    """High watermarks taken for log starts would delete everything."""
    disk = MemoryDisk()
    await layout.write_offsets(disk, Offsets.HIGH_WATERMARK, {(TOPIC, 0): 70})
    for name in Offsets.LOG_START.files:
        disk.create(name).append([disk.content("hw.ckpt")])
    assert await layout.read_offsets(disk, Offsets.LOG_START) is None


async def test_offsets_of_versions_before_are_read() -> None:
    disk = MemoryDisk()
    await layout.write_offsets(disk, Offsets.RECOVERY, {(TOPIC, 0): 70})
    payload = checkpoint.decode(checkpoint.Kind.RECOVERY_POINTS, disk.content("recovery.ckpt"))
    disk.overwrite("recovery.ckpt", checkpoint.encode(checkpoint.Kind.OFFSETS, payload))
    assert await layout.read_offsets(disk, Offsets.RECOVERY) == {(TOPIC, 0): 70}


async def test_offsets() -> None:
    disk = MemoryDisk()
    assert await layout.read_offsets(disk, Offsets.RECOVERY) is None
    offsets = {(TOPIC, 0): 5, (TopicId(UUID(int=1)), 12): 2**62}
    await layout.write_offsets(disk, Offsets.RECOVERY, offsets)
    assert await layout.read_offsets(disk, Offsets.RECOVERY) == offsets
    assert await layout.read_offsets(disk, Offsets.HIGH_WATERMARK) is None
    disk.rot("recovery.ckpt", random.Random(3))
    assert await layout.read_offsets(disk, Offsets.RECOVERY) is None
