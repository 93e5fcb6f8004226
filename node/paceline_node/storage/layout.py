"""What lies where in a data directory (spec replication 2.1, SETTLED B5).

::

    meta.json                          cluster, node and directory id; written by format
    LOCK                               held for the life of the process
    incarnation, disk-failed           incarnation.py
    recovery.ckpt hw.ckpt logstart.ckpt   offsets per partition (below)
    topics/<topic cut to 180>-<p>.<8 hex of topic id>/    one log each: README.md
    topics/stray-<ms>-<name>/          a log whose partition is not ours (any more)
    metadata/                          the controller's

An offsets checkpoint, framed as in ``checkpoint.py``::

    msgpack [[topic id (16 bytes), partition, offset], ...]

Directories are never deleted because local metadata does not know them: they are set aside as
strays, with the time in their name, until the topic's deletion is found in the metadata log.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

import msgpack

from paceline.errors import ConfigurationError, CorruptMessage
from paceline.types import NodeId, TopicId
from paceline_node.env import Disk
from paceline_node.storage import checkpoint, incarnation
from paceline_node.storage.partition_file import PartitionIdentity, read_identity

TOPICS = "topics"
META = "meta.json"
_NAME_LIMIT = 180
_STRAY = "stray-"
_META_VERSION = 1

PartitionKey = tuple[TopicId, int]


@dataclass(frozen=True, slots=True)
class DirectoryMeta:
    """Whose data this directory holds. ``directory_id`` is made when it is formatted."""

    cluster_id: UUID
    node_id: NodeId
    directory_id: UUID


class Offsets(enum.Enum):
    """The offsets checkpoints; a missing one only costs time (spec replication 2.1)."""

    RECOVERY = "recovery.ckpt"
    """Recovery points: at most the durable offset and the high watermark (``Log.checkpoint``)."""
    HIGH_WATERMARK = "hw.ckpt"
    LOG_START = "logstart.ckpt"


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """One directory under ``topics/``. ``identity`` is None when its metadata cannot be read."""

    path: str
    identity: PartitionIdentity | None


@dataclass(frozen=True, slots=True)
class StrayDirectory:
    """A log set aside at ``since_ms`` (wall clock)."""

    path: str
    since_ms: int
    identity: PartitionIdentity | None


# --- the directory ------------------------------------------------------------------------------


async def format_directory(disk: Disk, meta: DirectoryMeta) -> None:
    """Make an empty directory a data directory.

    Raises ConfigurationError when it has been formatted already or holds logs. The meta file comes
    last: a directory without it is not formatted.
    """
    if disk.exists(META) or disk.list(TOPICS):
        raise ConfigurationError("the data directory is in use by a node already")
    disk.mkdir(TOPICS)
    await disk.fsync_dir("")
    await incarnation.write(disk, incarnation.FORMATTED)
    text = json.dumps(
        {
            "version": _META_VERSION,
            "cluster_id": str(meta.cluster_id),
            "node_id": meta.node_id,
            "directory_id": str(meta.directory_id),
        },
        indent=2,
    )
    await checkpoint.replace(disk, META, f"{text}\n".encode())


async def read_meta(disk: Disk) -> DirectoryMeta | None:
    """Who the directory belongs to; None when it is not formatted. Raises ConfigurationError when
    the file does not make sense: the node must refuse to start."""
    content = await checkpoint.read_file(disk, META)
    if content is None:
        return None
    try:
        fields = json.loads(content)
        if fields["version"] != _META_VERSION:
            raise ConfigurationError(
                f"{META}: version {fields['version']}, this software reads {_META_VERSION}"
            )
        node_id = fields["node_id"]
        if type(node_id) is not int or node_id < 0:
            raise ValueError(f"node_id {node_id!r}")
        return DirectoryMeta(
            UUID(fields["cluster_id"]), NodeId(node_id), UUID(fields["directory_id"])
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(f"{META} is not readable: {error!r}") from None


# --- partitions ---------------------------------------------------------------------------------


def partition_path(topic: str, topic_id: TopicId, partition: int) -> str:
    """The directory of a partition's log."""
    return f"{TOPICS}/{topic[:_NAME_LIMIT]}-{partition}.{topic_id.hex[:8]}"


async def list_partitions(disk: Disk) -> list[PartitionDirectory]:
    """All logs that are not strays, by path."""
    return [
        PartitionDirectory(path, await _identity(disk, path))
        for name in disk.list(TOPICS)
        if not name.startswith(_STRAY) and disk.list(path := f"{TOPICS}/{name}")
    ]


async def set_aside(disk: Disk, path: str, wall_ms: int) -> str:
    """Rename a partition's directory to a stray; return the new path. Durable."""
    name = path.removeprefix(f"{TOPICS}/")
    stray = f"{TOPICS}/{_STRAY}{wall_ms}-{name}"
    disk.rename(path, stray)
    await disk.fsync_dir(TOPICS)
    return stray


async def list_strays(disk: Disk) -> list[StrayDirectory]:
    """All logs that were set aside, by path."""
    strays = []
    for name in disk.list(TOPICS):
        since, _, _ = name.removeprefix(_STRAY).partition("-")
        if name.startswith(_STRAY) and since.isdecimal():
            path = f"{TOPICS}/{name}"
            strays.append(StrayDirectory(path, int(since), await _identity(disk, path)))
    return strays


async def _identity(disk: Disk, path: str) -> PartitionIdentity | None:
    try:
        return await read_identity(disk, path)
    except CorruptMessage:
        return None


# --- offsets ------------------------------------------------------------------------------------


async def write_offsets(disk: Disk, which: Offsets, offsets: Mapping[PartitionKey, int]) -> None:
    """Replace an offsets checkpoint durably."""
    rows = sorted((key[0].bytes, key[1], offset) for key, offset in offsets.items())
    await checkpoint.write(disk, which.value, checkpoint.Kind.OFFSETS, msgpack.packb(rows))


async def read_offsets(disk: Disk, which: Offsets) -> dict[PartitionKey, int]:
    """An offsets checkpoint; empty when it is missing or corrupt, which only costs time."""
    try:
        payload = await checkpoint.read(disk, which.value, checkpoint.Kind.OFFSETS)
        rows = checkpoint.unpack_rows(payload, 3) if payload is not None else []
        return {(TopicId(UUID(bytes=row[0])), int(row[1])): int(row[2]) for row in rows}
    except (CorruptMessage, TypeError, ValueError):
        return {}
