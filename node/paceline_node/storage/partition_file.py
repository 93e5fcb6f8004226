"""``partition.metadata``: which partition a directory holds (SETTLED B5).

Framed as in ``checkpoint.py``; the payload is::

    msgpack [topic id (16 bytes), topic name, partition]

The directory's name alone does not tell: long topic names are cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import msgpack

from paceline.errors import CorruptMessage
from paceline.types import TopicId
from paceline_node.env import Disk
from paceline_node.storage import checkpoint

NAME = "partition.metadata"


@dataclass(frozen=True, slots=True)
class PartitionIdentity:
    """A partition of a topic, by id and by name."""

    topic_id: TopicId
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


async def write_identity(disk: Disk, directory: str, identity: PartitionIdentity) -> None:
    """Write the file durably."""
    payload = msgpack.packb([identity.topic_id.bytes, identity.topic, identity.partition])
    await checkpoint.write(disk, f"{directory}/{NAME}", checkpoint.Kind.PARTITION, payload)


async def read_identity(disk: Disk, directory: str) -> PartitionIdentity:
    """Read the file. Raises CorruptMessage when it is missing or not whole."""
    path = f"{directory}/{NAME}"
    payload = await checkpoint.read(disk, path, checkpoint.Kind.PARTITION)
    if payload is None:
        raise CorruptMessage(f"{path} is missing")
    try:
        topic_id, topic, partition = msgpack.unpackb(payload)
        return PartitionIdentity(TopicId(UUID(bytes=topic_id)), str(topic), int(partition))
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise CorruptMessage(f"{path}: {error}") from None
