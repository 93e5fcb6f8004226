"""Small state files that are replaced as a whole, or not at all.

Every derived or decisive fact beside the logs (incarnation, recovery points, epoch tables ...) is
one such file. Big-endian::

     0        4     6      8        12                    12+n     16+n
    +--------+-----+------+--------+---------------------+--------+
    | "PLCK" | u16 | u16  | u32 n  | n bytes             | u32    |
    |        | kind| vers.|        | payload             | CRC-32C|
    +--------+-----+------+--------+---------------------+--------+

The CRC covers everything before it. Version 1 is a file of the node. One of a log has version 2,
and its payload is msgpack [[topic id, partition], the payload itself]: the file of another log is
not taken for this one's (``file_owner.py``; files of earlier versions name nobody). ``kind`` says
what the payload is, so that a file under a wrong name is not taken for another. Limit: 64 MiB.
Written to ``<name>.tmp``, synced, renamed over the old one, and the directory synced: after a power
cut either the old or the new content is there.
"""

from __future__ import annotations

import contextlib
import enum
import struct
from typing import Any

import msgpack
import trio

from paceline.errors import CorruptMessage
from paceline.wire.checksum import crc32c
from paceline_node.env import Disk, File
from paceline_node.storage.file_owner import Owner
from paceline_node.storage.log_file import Unreadable, is_unreadable, open_file
from paceline_node.storage.obstructing_entries import make_way

MAX_BYTES = 64 * 1024 * 1024
TEMPORARY = ".tmp"

_HEAD = struct.Struct(">4sHHI")
_TAIL = struct.Struct(">I")
_MAGIC = b"PLCK"
_VERSION = 1
_OWNED = 2


class Kind(enum.IntEnum):
    """What a checkpoint holds. Numbers are on disk: never reuse one."""

    INCARNATION = 1
    EPOCHS = 2
    PRODUCERS = 3
    OFFSETS = 4
    """Any of 11 to 13, as versions before wrote them."""
    PARTITION = 5
    RAFT_STATE = 6
    SNAPSHOT = 7
    DAMAGE = 8
    COMPACTION = 9
    STATE = 10
    RECOVERY_POINTS = 11
    HIGH_WATERMARKS = 12
    LOG_STARTS = 13


def new_lock() -> trio.Lock:
    """For the checkpoints of an open log that several tasks write: hold it from looking at what is
    to be written until the file and the log's memory say the same. Two writers of one file would
    take each other's temporary file away, and the older content could come last."""
    return trio.Lock()


def encode(kind: Kind, payload: bytes, owner: Owner | None = None) -> bytes:
    """The bytes of a checkpoint file; ``owner``: of which log."""
    version = _VERSION
    if owner is not None:
        version, payload = _OWNED, msgpack.packb([owner.named, payload])
    body = _HEAD.pack(_MAGIC, kind, version, len(payload)) + payload
    return body + _TAIL.pack(crc32c(body))


def decode(kind: Kind, data: bytes, owner: Owner | None = None) -> bytes:
    """The payload. Raises CorruptMessage naming what does not hold; also where it is not of
    ``owner`` (None: whoever has it)."""
    if len(data) < _HEAD.size + _TAIL.size:
        raise CorruptMessage(f"checkpoint of {len(data)} bytes is cut short")
    magic, found, version, length = _HEAD.unpack_from(data)
    if magic != _MAGIC or length != len(data) - _HEAD.size - _TAIL.size:
        raise CorruptMessage("not a checkpoint, or its length does not hold")
    (crc,) = _TAIL.unpack_from(data, len(data) - _TAIL.size)
    body = memoryview(data)[: -_TAIL.size]
    if crc32c(body) != crc:
        raise CorruptMessage("checkpoint: the checksum does not hold")
    if found != kind or version not in (_VERSION, _OWNED):
        raise CorruptMessage(f"checkpoint of kind {found} version {version}, expected {kind.name}")
    payload, named = bytes(body[_HEAD.size :]), None
    if version == _OWNED:
        named, payload = _owned(payload)
    if owner is not None:
        owner.check(named)
    return payload


def _owned(payload: bytes) -> tuple[object, bytes]:
    try:
        named, inner = msgpack.unpackb(payload)
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise CorruptMessage(f"checkpoint: {error}") from None
    if type(inner) is not bytes:
        raise CorruptMessage("checkpoint: expected whose it is, and bytes")
    return named, inner


async def write(
    disk: Disk, path: str, kind: Kind, payload: bytes, owner: Owner | None = None
) -> None:
    """Replace ``path``, of ``owner``'s log, durably. Raises OSError; the old content stays then.

    Cancellation may leave the old or the new content, never a mixture.
    """
    await replace(disk, path, encode(kind, payload, owner))


async def replace(disk: Disk, path: str, content: bytes) -> None:
    """Replace a file of any format durably: temporary file, sync, rename, directory sync."""
    file = _fresh(disk, path + TEMPORARY)
    try:
        file.append([content])
        await disk.sync([file])
        _put(disk, path)
    except OSError:
        with contextlib.suppress(OSError):  # on a full disk it would take room for nothing
            disk.remove(path + TEMPORARY)
        raise
    finally:
        file.close()
    await disk.fsync_dir(parent(path))


async def read(disk: Disk, path: str, kind: Kind, owner: Owner | None = None) -> bytes | None:
    """The payload; None when the file does not exist. Raises CorruptMessage naming the file; also
    where it is not of ``owner`` (None: whoever has it)."""
    content = await read_file(disk, path)
    if content is None:
        return None
    try:
        return decode(kind, content, owner)
    except CorruptMessage as error:
        raise CorruptMessage(f"{path}: {error}") from None


async def read_file(disk: Disk, path: str) -> bytes | None:
    """A whole small file; None when it does not exist. Raises CorruptMessage where the disk cannot
    give its bytes, and OSError."""
    try:
        file = await open_file(disk, path)
    except FileNotFoundError:
        return None
    try:
        if file.size() > MAX_BYTES:
            raise CorruptMessage(f"{path}: {file.size()} bytes, expected at most {MAX_BYTES}")
        return file.pread(file.size(), 0)
    except OSError as error:
        if not is_unreadable(error):
            raise
        raise Unreadable(f"{path}: cannot be read ({error.strerror})") from error
    finally:
        file.close()


def parent(path: str) -> str:
    """The directory a path lies in; "" is the data directory."""
    return path.rpartition("/")[0]


def unpack_rows(payload: bytes, *widths: int) -> list[list[Any]]:
    """A msgpack list of lists of as many elements as one of ``widths``. Raises CorruptMessage."""
    try:
        rows = msgpack.unpackb(payload)
    except (ValueError, msgpack.UnpackException) as error:
        raise CorruptMessage(f"checkpoint: {error}") from None
    if type(rows) is not list or any(type(r) is not list or len(r) not in widths for r in rows):
        raise CorruptMessage(f"checkpoint: expected rows of {' or '.join(map(str, widths))}")
    return rows


def _fresh(disk: Disk, path: str) -> File:
    make_way(disk, path)
    return disk.create(path)


def _put(disk: Disk, path: str) -> None:
    try:
        disk.rename(path + TEMPORARY, path)
    except IsADirectoryError:
        make_way(disk, path)
        disk.rename(path + TEMPORARY, path)
