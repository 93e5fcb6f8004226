"""Whose directory it is, said in two places."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from paceline.errors import ConfigurationError
from paceline.types import NodeId
from paceline_node.storage import layout
from paceline_node.storage.layout import META, META_COPY, DirectoryMeta
from paceline_node.storage.memory_disk import MemoryDisk

META_0 = DirectoryMeta(UUID(int=1), NodeId(4), UUID(int=2))


async def formatted() -> MemoryDisk:
    disk = MemoryDisk()
    await layout.format_directory(disk, META_0)
    return disk


@pytest.mark.parametrize("name", [META, META_COPY])
@pytest.mark.parametrize("fault", ["gone", "empty", "rotten", "old", "unreadable"])
async def test_one_place_is_enough_and_the_other_is_mended(name: str, fault: str) -> None:
    disk = await formatted()
    old = disk.content(name)
    meta = replace(META_0, directory_id=UUID(int=3), generation=1)
    await layout.write_meta(disk, meta)
    if fault == "gone":
        disk.remove(name)
    elif fault == "unreadable":
        disk.fail_next("open", path=name)
    else:
        disk.overwrite(name, {"empty": b"", "rotten": b"\xff{", "old": old}[fault])
    assert await layout.read_meta(disk) == meta
    await layout.keep_meta(disk, meta)
    assert disk.content(META) == disk.content(META_COPY)
    assert await layout.read_meta(disk) == meta


@pytest.mark.parametrize("name", [META, META_COPY])
async def test_no_bit_of_a_place_makes_another_identity(name: str) -> None:
    """A digit of the cluster's id that had changed on the disk made a node of another cluster."""
    disk = await formatted()
    content = disk.content(name)
    for position in range(len(content)):
        for bit in range(8):
            rotten = bytearray(content)
            rotten[position] ^= 1 << bit
            disk.overwrite(name, bytes(rotten))
            assert await layout.read_meta(disk) == META_0
    disk.overwrite(name, content.replace(b"0000-0000", b"0000-0001", 1))
    disk.remove(META if name == META_COPY else META_COPY)
    with pytest.raises(ConfigurationError, match="checksum does not hold"):
        await layout.read_meta(disk)


async def test_a_directory_of_one_place() -> None:
    """As an earlier version wrote it: no copy, no generation, no checksum."""
    disk = await formatted()
    disk.remove(META_COPY)
    older = disk.content(META).partition(b',\n  "generation": 0')[0] + b"\n}\n"
    disk.overwrite(META, older)
    assert b"generation" not in disk.content(META)
    assert await layout.read_meta(disk) == META_0
    await layout.keep_meta(disk, META_0)
    assert disk.content(META) == disk.content(META_COPY)


async def test_neither_makes_sense() -> None:
    disk = await formatted()
    for name in (META, META_COPY):
        disk.overwrite(name, b"{}")
    with pytest.raises(ConfigurationError, match=r"meta\.json is not readable"):
        await layout.read_meta(disk)
    assert await layout.read_meta(MemoryDisk()) is None
