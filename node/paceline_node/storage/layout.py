"""What lies where in a data directory (DESIGN 1).

::

    meta.json  meta.copy.json          cluster, node and directory id; written by format
    LOCK                               held for the life of the process
    incarnation, disk-failed           incarnation.py
    recovery.ckpt hw.ckpt logstart.ckpt   offsets per partition (below); offset_checkpoints.py
    logstart-copy.ckpt                 the same as logstart.ckpt, written before it
    topics/<topic cut to 180>-<p>.<8 hex of topic id>/    one log each: DESIGN 1.2
    topics/stray-<ms>-<name>/          a log whose partition is not ours (any more)
    metadata/                          the controller's

An offsets checkpoint, framed as in ``checkpoint.py``::

    msgpack [[topic id (16 bytes), partition, offset], ...]
    of hw.ckpt: [[topic id, partition, high watermark, log start, removed to], ...], since a log
        start and what compaction removed (``removed_tombstones.py``) may be forgotten in other
        files; earlier versions: without them

Directories are never deleted because local metadata does not know them: they are set aside as
strays, with the time in their name, until the topic's deletion is found in the metadata log.
"""

from __future__ import annotations

import enum
import errno
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import msgpack
import trio

from paceline.errors import ConfigurationError, CorruptMessage
from paceline.types import NodeId, TopicId
from paceline.values import dataclass
from paceline.wire.checksum import crc32c
from paceline_node.bare_errors import bare
from paceline_node.env import Disk
from paceline_node.storage import checkpoint, incarnation
from paceline_node.storage.log_file import Unreadable, list_directory
from paceline_node.storage.partition_file import PartitionIdentity, read_identity

TOPICS = "topics"
META = "meta.json"
META_COPY = "meta.copy.json"
_NAME_LIMIT = 180
_STRAY = "stray-"
_META_VERSION = 1
_ROWS_AT_A_TIME = 2000
"""Of a checkpoint, packed without a pause: a millisecond or two."""
_META_FIELDS = frozenset(("version", "cluster_id", "node_id", "directory_id", "generation"))

PartitionKey = tuple[TopicId, int]


@dataclass(frozen=True, slots=True)
class DirectoryMeta:
    """Whose data this directory holds. ``directory_id`` is made when it is formatted, and anew,
    with the next ``generation``, when the node rejoins the quorum as a new member."""

    cluster_id: UUID
    node_id: NodeId
    directory_id: UUID
    generation: int = 0

    @property
    def node(self) -> bytes:
        """Which node of which cluster, as files name it that a node keeps for itself."""
        return self.cluster_id.bytes + self.node_id.to_bytes(4, "big")


class LaterVersion(ConfigurationError):
    """The directory was written by other software than this."""


class Offsets(enum.Enum):
    """The offsets checkpoints. An empty one says that nothing is known; a
    missing or rotten one says nothing at all (``offset_checkpoints.py``)."""

    RECOVERY = "recovery.ckpt"
    """Recovery points: at most the durable offset and the high watermark (``Log.checkpoint``)."""
    HIGH_WATERMARK = "hw.ckpt"
    LOG_START = "logstart.ckpt"
    """Kept twice, and in ``hw.ckpt``: what was deleted would be there again if an older file were
    believed. A log start never falls, so the highest holds."""

    @property
    def kind(self) -> checkpoint.Kind:
        """Each is of its own: high watermarks in the place of log starts would delete all logs."""
        return {
            Offsets.RECOVERY: checkpoint.Kind.RECOVERY_POINTS,
            Offsets.HIGH_WATERMARK: checkpoint.Kind.HIGH_WATERMARKS,
            Offsets.LOG_START: checkpoint.Kind.LOG_STARTS,
        }[self]

    @property
    def files(self) -> tuple[str, ...]:
        """In the order in which they are written; each alone is enough."""
        if self is Offsets.LOG_START:
            return ("logstart-copy.ckpt", self.value)
        return (self.value,)


class CheckpointedStart(NamedTuple):
    """What ``hw.ckpt`` keeps of a partition beside its high watermark: where its log began when
    that was written, and ``Removals.removed_to``. Neither ever falls but in a log that begins anew;
    other files that say less are older."""

    log_start: int = 0
    removed_to: int = 0


NOTHING = CheckpointedStart()


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """One directory under ``topics/``. ``identity`` is None when its metadata cannot be read.
    ``belongs_at``: its metadata names a partition whose place is this other one; it is not the
    partition that the directory's name says, whatever the name says. ``is_unreadable``: the disk
    cannot even list it."""

    path: str
    identity: PartitionIdentity | None
    belongs_at: str | None = None
    is_unreadable: bool = False


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
    if disk.exists(META) or disk.exists(META_COPY) or disk.list(TOPICS):
        raise ConfigurationError("the data directory is in use by a node already")
    disk.mkdir(TOPICS)
    await disk.fsync_dir("")
    for which in Offsets:  # from now on a missing one is a lost one
        await write_offsets(disk, which, {})
    await incarnation.write(disk, incarnation.FORMATTED, meta.node)
    await write_meta(disk, meta)


async def write_meta(disk: Disk, meta: DirectoryMeta) -> None:
    """Say whose directory this is, in both places. Durable."""
    content = _meta_content(meta)
    await checkpoint.replace(disk, META_COPY, content)
    await checkpoint.replace(disk, META, content)


async def keep_meta(disk: Disk, meta: DirectoryMeta) -> None:
    """Mend the place that does not say ``meta``, as read from the other one."""
    content = _meta_content(meta)
    for name in (META, META_COPY):
        try:
            holds = await _read_meta_file(disk, name) == content
        except ConfigurationError:
            holds = False
        if not holds:
            await checkpoint.replace(disk, name, content)


def _meta_content(meta: DirectoryMeta) -> bytes:
    fields: dict[str, object] = {
        "version": _META_VERSION,
        "cluster_id": str(meta.cluster_id),
        "node_id": meta.node_id,
        "directory_id": str(meta.directory_id),
        "generation": meta.generation,
    }
    text = json.dumps({**fields, "checksum": _meta_checksum(fields)}, indent=2)
    return f"{text}\n".encode()


def _meta_checksum(fields: Mapping[str, object]) -> str:
    """CRC-32C of the fields: a digit that has changed on the disk makes another cluster's id, or
    another node's, that looks as good as the right one."""
    return f"{crc32c(json.dumps(dict(fields), sort_keys=True).encode()):08x}"


def _check_meta(name: str, fields: dict[str, object]) -> None:
    """Raises ValueError, LaterVersion. Without a checksum it is of an older software, which knew
    the other fields only."""
    told = fields.pop("checksum", None)
    if told is not None and told != _meta_checksum(fields):
        raise ValueError("its checksum does not hold")
    if fields["version"] != _META_VERSION:
        raise LaterVersion(
            f"{name}: version {fields['version']}, this software reads {_META_VERSION}"
        )
    strange = fields.keys() - _META_FIELDS
    if strange:
        raise ValueError(f"unknown field {min(strange)!r}")


async def read_meta(disk: Disk) -> DirectoryMeta | None:
    """Who the directory belongs to, by the newer of the two places that can be read; None when it
    is not formatted. Raises ConfigurationError when there is something and none makes sense: the
    node must refuse to start."""
    found: list[DirectoryMeta] = []
    problem: ConfigurationError | None = None
    for name in (META, META_COPY):
        try:
            content = await _read_meta_file(disk, name)
            if content is not None:
                found.append(_parse_meta(name, content))
        except LaterVersion:
            raise
        except ConfigurationError as error:
            problem = problem or bare(error)
    if not found and problem is not None:
        try:
            raise problem
        finally:
            del problem
    return max(found, key=lambda meta: meta.generation, default=None)


async def _read_meta_file(disk: Disk, name: str) -> bytes | None:
    try:
        return await checkpoint.read_file(disk, name)
    except CorruptMessage as error:
        raise ConfigurationError(str(error)) from None
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise ConfigurationError(f"{name} is not readable: {error}") from None


def _parse_meta(name: str, content: bytes) -> DirectoryMeta:
    try:
        fields = json.loads(content)
        _check_meta(name, fields)
        node_id, generation = fields["node_id"], fields.get("generation", 0)
        for number in (node_id, generation):
            if type(number) is not int or number < 0:
                raise ValueError(f"{number!r} is no number")
        return DirectoryMeta(
            UUID(fields["cluster_id"]),
            NodeId(node_id),
            UUID(fields["directory_id"]),
            generation,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(f"{name} is not readable: {error!r}") from None


# --- partitions ---------------------------------------------------------------------------------


def partition_path(topic: str, topic_id: TopicId, partition: int) -> str:
    """The directory of a partition's log."""
    return f"{TOPICS}/{topic[:_NAME_LIMIT]}-{partition}.{topic_id.hex[:8]}"


async def list_partitions(disk: Disk) -> list[PartitionDirectory]:
    """All logs that are not strays, by path."""
    found = []
    for name in disk.list(TOPICS):
        path = f"{TOPICS}/{name}"
        if name.startswith(_STRAY):
            continue
        try:
            if not list_directory(disk, path):
                continue
        except Unreadable:
            found.append(PartitionDirectory(path, None, is_unreadable=True))
            continue
        identity = await _identity(disk, path)
        place = path if identity is None else _path_of(identity)
        found.append(PartitionDirectory(path, identity, None if place == path else place))
    return found


def is_taken(disk: Disk, path: str) -> bool:
    """Whether something lies in the directory at ``path``, for all one can tell."""
    try:
        return bool(list_directory(disk, path))
    except Unreadable:
        return disk.exists(path)


def identity_by_name(path: str, known: Iterable[PartitionKey]) -> PartitionIdentity | None:
    """Which of the ``known`` partitions the directory at ``path`` was made for, by its name alone;
    None when that is none, or more than one, or the name was cut."""
    name = path.removeprefix(f"{TOPICS}/")
    matches = []
    for topic_id, partition in known:
        suffix = f"-{partition}.{topic_id.hex[:8]}"
        topic = name.removesuffix(suffix)
        if topic and topic != name and len(topic) < _NAME_LIMIT:
            matches.append(PartitionIdentity(topic_id, topic, partition))
    return matches[0] if len(matches) == 1 else None


def _path_of(identity: PartitionIdentity) -> str:
    return partition_path(identity.topic, identity.topic_id, identity.partition)


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
    await _write_rows(disk, which, [(*_packed(key), offset) for key, offset in offsets.items()])


async def write_watermarks(
    disk: Disk,
    watermarks: Mapping[PartitionKey, int],
    beside: Mapping[PartitionKey, CheckpointedStart],
) -> None:
    """Replace ``hw.ckpt`` durably, with what is to stand there of each partition besides."""
    rows = [(*_packed(key), mark, *beside.get(key, NOTHING)) for key, mark in watermarks.items()]
    await _write_rows(disk, Offsets.HIGH_WATERMARK, rows)


async def _write_rows(disk: Disk, which: Offsets, rows: Iterable[tuple[bytes | int, ...]]) -> None:
    packed = await _pack(sorted(rows))
    for name in which.files:
        await checkpoint.write(disk, name, which.kind, packed)


async def _pack(rows: Sequence[tuple[bytes | int, ...]]) -> bytes:
    """The rows as one array; others get their turns between thousands of them."""
    packer = msgpack.Packer()
    parts: list[bytes] = [packer.pack_array_header(len(rows))]
    for first in range(0, len(rows), _ROWS_AT_A_TIME):
        if first:
            await trio.lowlevel.checkpoint()
        parts.extend(map(packer.pack, rows[first : first + _ROWS_AT_A_TIME]))
    return b"".join(parts)


def _packed(key: PartitionKey) -> tuple[bytes, int]:
    return key[0].bytes, key[1]


async def read_offsets(disk: Disk, which: Offsets) -> dict[PartitionKey, int] | None:
    """An offsets checkpoint; None when it is missing or rotten: nothing is known then."""
    return higher(await read_each(disk, which))


async def read_each(disk: Disk, which: Offsets) -> list[dict[PartitionKey, int] | None]:
    """What each of its files says."""
    return [await _read_column(disk, which.kind, name, 2) for name in which.files]


async def read_beside(disk: Disk) -> dict[PartitionKey, CheckpointedStart]:
    """What ``hw.ckpt`` says besides, as far as it can be read."""
    which = Offsets.HIGH_WATERMARK
    starts, removed = [
        await _read_column(disk, which.kind, which.value, column) or {} for column in (3, 4)
    ]
    return {key: CheckpointedStart(start, removed.get(key, 0)) for key, start in starts.items()}


def higher(
    found: Iterable[Mapping[PartitionKey, int] | None],
) -> dict[PartitionKey, int] | None:
    """The highest offset of each partition that the readable ones name; None: there are none."""
    readable = [each for each in found if each is not None]
    if not readable:
        return None
    keys = {key for each in readable for key in each}
    return {key: max(each[key] for each in readable if key in each) for key in keys}


async def _read_column(
    disk: Disk, kind: checkpoint.Kind, name: str, column: int
) -> dict[PartitionKey, int] | None:
    """One number of each partition, of the rows that have it."""
    try:
        content = await checkpoint.read_file(disk, name)
        if content is None:
            return None
        try:
            payload = checkpoint.decode(kind, content)
        except CorruptMessage:
            payload = checkpoint.decode(checkpoint.Kind.OFFSETS, content)
        rows = checkpoint.unpack_rows(payload, 3, 5)
        return {
            (TopicId(UUID(bytes=row[0])), int(row[1])): int(row[column])
            for row in rows
            if column < len(row)
        }
    except (CorruptMessage, TypeError, ValueError):
        return None
