"""Snapshot bytes, and moving them in chunks.

The same bytes lie on disk and travel to slow peers. Big-endian::

    0         4                   8             12       12+m
    +---------+-------------------+-------------+--------+---------------------+
    | "PLMS"  | u32 CRC-32C of all| u32 m       | meta   | state               |
    |         | that follows      | meta length | msgpack| opaque bytes        |
    +---------+-------------------+-------------+--------+---------------------+

``meta`` is :class:`SnapshotMeta`. Rules: RAFT 3.5 (chunks of 256 KiB, resumable, CRC
over the whole).
"""

from __future__ import annotations

import struct
from dataclasses import field
from itertools import chain
from uuid import UUID

from paceline.errors import RemoteProtocolError
from paceline.values import dataclass
from paceline.wire.checksum import crc32c
from paceline.wire.message import Message
from paceline_node.controller.raft_messages import SnapshotChunk
from paceline_node.controller.raft_types import Config, EntryAt, Snapshot

MAGIC = b"PLMS"
SNAPSHOT_FEATURE_LEVEL = 1
_HEAD = struct.Struct(">4sII")
_CRC_START = 8


@dataclass(frozen=True, slots=True)
class SnapshotMeta(Message):
    """What a snapshot says of itself. ``feature_level`` is the lowest level that can read it;
    ``terms`` are those of :class:`Snapshot`, term and first index in turn; ``voters_index`` and
    ``voters_term`` are its ``voters_since``."""

    cluster_id: UUID
    feature_level: int
    index: int
    term: int
    config: Config
    terms: tuple[int, ...] = ()
    voters_index: int = 0
    voters_term: int = 0


def encode_snapshot(snapshot: Snapshot, cluster_id: UUID) -> bytes:
    meta = SnapshotMeta(
        cluster_id,
        SNAPSHOT_FEATURE_LEVEL,
        snapshot.index,
        snapshot.term,
        snapshot.config,
        tuple(chain.from_iterable(snapshot.terms)),
        *snapshot.voters_since,
    ).to_bytes()
    body = struct.pack(">I", len(meta)) + meta + snapshot.state
    return MAGIC + struct.pack(">I", crc32c(body)) + body


def decode_snapshot(data: bytes, cluster_id: UUID | None) -> Snapshot:
    """Inverse of :func:`encode_snapshot`; ``cluster_id`` None accepts any cluster.

    Raises RemoteProtocolError when magic, checksum, cluster, feature level or meta do not hold.
    """
    if len(data) < _HEAD.size:
        raise RemoteProtocolError(f"snapshot of {len(data)} bytes is shorter than its head")
    magic, crc, size = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise RemoteProtocolError(f"snapshot begins with {magic!r}, expected {MAGIC!r}")
    found = crc32c(memoryview(data)[_CRC_START:])
    if found != crc:
        raise RemoteProtocolError(f"snapshot checksum is {found:#010x}, expected {crc:#010x}")
    meta = SnapshotMeta.from_bytes(memoryview(data)[_HEAD.size : _HEAD.size + size])
    if meta.feature_level > SNAPSHOT_FEATURE_LEVEL:
        raise RemoteProtocolError(
            f"snapshot needs feature level {meta.feature_level}, this is {SNAPSHOT_FEATURE_LEVEL}"
        )
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise RemoteProtocolError(f"snapshot of cluster {meta.cluster_id}, not {cluster_id}")
    terms = tuple(zip(meta.terms[::2], meta.terms[1::2], strict=False))
    state, since = data[_HEAD.size + size :], EntryAt(meta.voters_index, meta.voters_term)
    return Snapshot(meta.index, meta.term, meta.config, state, terms, since)


def snapshot_cluster_id(data: bytes) -> UUID:
    """The cluster a valid encoded snapshot belongs to. Raises RemoteProtocolError."""
    decode_snapshot(data, None)
    size = _HEAD.unpack_from(data)[2]
    return SnapshotMeta.from_bytes(memoryview(data)[_HEAD.size : _HEAD.size + size]).cluster_id


@dataclass(slots=True)
class SnapshotTransfer:
    """Leader's side of one transfer: one chunk under way, resent after silence."""

    index: int
    term: int
    data: bytes
    chunk_bytes: int
    crc: int = 0
    offset: int = 0
    sent_tick: int = -1

    def __post_init__(self) -> None:
        self.crc = crc32c(self.data)

    def piece(self) -> bytes:
        return self.data[self.offset : self.offset + self.chunk_bytes]


@dataclass(slots=True)
class SnapshotAssembly:
    """Follower's side: the bytes received so far, in memory only.

    Lost in a restart, which the answered offset (0) then tells the leader.
    """

    index: int = -1
    term: int = -1
    crc: int = 0
    buffer: bytearray = field(default_factory=bytearray)

    def add(self, chunk: SnapshotChunk) -> bytes | None:
        """Take one chunk; the whole bytes once complete and intact, else None.

        A chunk of another snapshot starts anew; one that does not continue the buffer is dropped.
        """
        if (chunk.index, chunk.snapshot_term, chunk.crc) != (self.index, self.term, self.crc):
            self.index, self.term, self.crc = chunk.index, chunk.snapshot_term, chunk.crc
            self.buffer = bytearray()
        if chunk.offset == len(self.buffer):
            self.buffer += chunk.data
        if len(self.buffer) < chunk.total:
            return None
        whole = bytes(self.buffer)
        self.buffer = bytearray()
        if len(whole) != chunk.total or crc32c(whole) != chunk.crc:
            return None
        return whole
