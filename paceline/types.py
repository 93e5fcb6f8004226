"""Ground floor: the names every room shares.

What belongs here: identifiers and enumerations of the field (offsets, epochs, acks), nothing
with behaviour. All ends are exclusive: a log end offset is the next offset to be written, a high
watermark is the first offset not yet visible (DECISIONS 5).
"""

from __future__ import annotations

import enum
import re
from typing import NewType
from uuid import UUID

from paceline.values import dataclass

NodeId = NewType("NodeId", int)
"""A broker, 0 and up; -1 means none."""

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
PartitionEpoch = NewType("PartitionEpoch", int)
BrokerEpoch = NewType("BrokerEpoch", int)
Term = NewType("Term", int)
TopicId = NewType("TopicId", UUID)
ProducerId = NewType("ProducerId", int)

NO_NODE = NodeId(-1)
NO_EPOCH = LeaderEpoch(-1)
NO_PARTITION_EPOCH = PartitionEpoch(-1)

MAX_RECORD_BYTES = 16 * 1024 * 1024
"""Record cap (wire/DESIGN 1.4)."""
MAX_BATCH_BYTES = 1024 * 1024
"""Larger client frames are split into batches of at most this (wire/DESIGN 1.4)."""


class Acks(enum.IntEnum):
    """Which replicas must hold a record before its producer is answered."""

    NONE = 0
    LEADER = 1
    ALL = -1


class Isolation(enum.IntEnum):
    """How far a consumer may read: the high watermark or the last stable offset."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Compression(enum.IntEnum):
    """Codec id in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class OffsetSpec(enum.IntEnum):
    """Symbolic positions for ListOffsets; a value of 0 or more is a timestamp in ms."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EPOCH_END = -101
    AHEAD = -102


KAFKA_ENDPOINT = "coordinator"
"""What the address of a node's Kafka listener is called in the metadata log, and so in what brokers
tell of each other. It is the listener's first name: addresses that were registered under it are
still looked up by it, and older clients and nodes know no other."""


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition by name, as clients say it: ``orders/2``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")
TOPIC_NAMES = "1 to 249 of A-Z a-z 0-9 . _ -, not . or .."
"""What may name a topic, in words."""


def is_valid_topic_name(name: str) -> bool:
    """Whether ``name`` may name a topic (controller/DESIGN 9.2): ``[A-Za-z0-9._-]{1,249}``, not .
    or .. ."""
    return name not in (".", "..") and _TOPIC_NAME.match(name) is not None


INTERNAL_TOPICS = ("__groups", "__transactions", "__tables")
"""The broker's own topics; the last is made when somebody first needs it."""


def is_internal_topic(name: str) -> bool:
    """Whether ``name`` is one of the broker's own topics (``__groups`` ...)."""
    return name.startswith("__")
