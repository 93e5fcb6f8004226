"""``partition.metadata``: which partition a directory holds (DESIGN 5.4, 5.5).

Framed as in ``checkpoint.py``; the payload is::

    msgpack [topic id (16 bytes), topic name, partition, version]

The directory's name alone does not tell: long topic names are cut.
"""

from __future__ import annotations

from uuid import UUID

import msgpack

from paceline.errors import CorruptMessage
from paceline.types import TopicId
from paceline.values import dataclass
from paceline_node.env import Disk
from paceline_node.storage import checkpoint
from paceline_node.storage.file_owner import NAMED_SINCE, Owner

NAME = "partition.metadata"
VERSION = NAMED_SINCE


@dataclass(frozen=True, slots=True)
class PartitionIdentity:
    """A partition of a topic, by id and by name."""

    topic_id: TopicId
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"

    @property
    def owner(self) -> Owner:
        """As the files of its log name it."""
        return Owner(self.topic_id, self.partition)


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """``version`` 0 wrote none. From 1 on the log has an anchor (``log_state.py``) whenever its
    records begin above 0; from 2 on every file that decides something names its partition."""

    identity: PartitionIdentity
    version: int

    @property
    def owner(self) -> Owner:
        """Whose files may be believed here."""
        is_always_named = self.version >= NAMED_SINCE
        return Owner(self.identity.topic_id, self.identity.partition, is_always_named)


async def write_identity(disk: Disk, directory: str, identity: PartitionIdentity) -> None:
    """Write the file durably, for a log that is as this version keeps it."""
    values = [identity.topic_id.bytes, identity.topic, identity.partition, VERSION]
    payload = msgpack.packb(values)
    await checkpoint.write(disk, f"{directory}/{NAME}", checkpoint.Kind.PARTITION, payload)


async def read_identity(disk: Disk, directory: str) -> PartitionIdentity:
    """Whose directory it is. Raises CorruptMessage when the file is missing or not whole."""
    return (await read_metadata(disk, directory)).identity


async def read_metadata(disk: Disk, directory: str) -> PartitionMetadata:
    """Read the file. Raises CorruptMessage when it is missing or not whole."""
    path = f"{directory}/{NAME}"
    payload = await checkpoint.read(disk, path, checkpoint.Kind.PARTITION)
    if payload is None:
        raise CorruptMessage(f"{path} is missing")
    try:
        topic_id, topic, partition, *version = msgpack.unpackb(payload)
        identity = PartitionIdentity(TopicId(UUID(bytes=topic_id)), str(topic), int(partition))
        return PartitionMetadata(identity, int(version[0]) if version else 0)
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise CorruptMessage(f"{path}: {error}") from None
