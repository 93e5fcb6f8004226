"""Small files are replaced whole or not at all, and tell when they are not whole."""

from __future__ import annotations

import errno
import random

import pytest

from paceline.errors import CorruptMessage
from paceline_node.storage import checkpoint
from paceline_node.storage.checkpoint import Kind
from paceline_node.storage.memory_disk import MemoryDisk


def test_the_bytes() -> None:
    """A hex vector: other software may have to read these."""
    vector = "504c434b 0002 0001 00000004 91920100 a30108f9"
    assert checkpoint.encode(Kind.EPOCHS, b"\x91\x92\x01\x00") == bytes.fromhex(vector)
    assert checkpoint.decode(Kind.EPOCHS, checkpoint.encode(Kind.EPOCHS, b"abc")) == b"abc"
    assert checkpoint.decode(Kind.EPOCHS, checkpoint.encode(Kind.EPOCHS, b"")) == b""


def test_every_flipped_bit_and_every_cut_is_found() -> None:
    whole = checkpoint.encode(Kind.OFFSETS, b"payload")
    for at in range(len(whole)):
        for bit in range(8):
            bad = bytes([*whole[:at], whole[at] ^ (1 << bit), *whole[at + 1 :]])
            with pytest.raises(CorruptMessage):
                checkpoint.decode(Kind.OFFSETS, bad)
        with pytest.raises(CorruptMessage):
            checkpoint.decode(Kind.OFFSETS, whole[:at])
    with pytest.raises(CorruptMessage):
        checkpoint.decode(Kind.OFFSETS, whole + b"\0")
    with pytest.raises(CorruptMessage, match="expected EPOCHS"):
        checkpoint.decode(Kind.EPOCHS, whole)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "none"])
async def test_old_or_new_after_any_failure_and_power_cut(seed: int, operation: str) -> None:
    disk = MemoryDisk()
    disk.mkdir("d")
    await disk.fsync_dir("")
    await checkpoint.write(disk, "d/file", Kind.OFFSETS, b"old")
    if operation != "none":
        disk.fail_next(operation, code=errno.EIO, path="d/file")
        with pytest.raises(OSError, match="Input/output error"):
            await checkpoint.write(disk, "d/file", Kind.OFFSETS, b"new" * 3000)
        expected = {b"old"}
    else:
        await checkpoint.write(disk, "d/file", Kind.OFFSETS, b"new" * 3000)
        expected = {b"new" * 3000}
    disk.power_cut(random.Random(seed))
    assert await checkpoint.read(disk, "d/file", Kind.OFFSETS) in expected


async def test_a_missing_file_is_none() -> None:
    disk = MemoryDisk()
    assert await checkpoint.read(disk, "file", Kind.OFFSETS) is None
    assert await checkpoint.read_file(disk, "file") is None


async def test_reading_names_the_file() -> None:
    disk = MemoryDisk()
    disk.create("file").append([b"nonsense of some length"])
    with pytest.raises(CorruptMessage, match="file: not a checkpoint"):
        await checkpoint.read(disk, "file", Kind.OFFSETS)


@pytest.mark.parametrize("payload", [b"\xc0", b"\x91\x01", b"\x91\x91\x01", b"\xd9"])
def test_rows_of_another_shape_are_refused(payload: bytes) -> None:
    with pytest.raises(CorruptMessage):
        checkpoint.unpack_rows(payload, 2)
