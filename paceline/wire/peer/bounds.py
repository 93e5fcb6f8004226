"""Where partitions begin and end, asked of their leader by a coordinator of consumers."""

from __future__ import annotations

from paceline.values import dataclass
from paceline.wire.message import Message
from paceline.wire.peer.names import PartitionName


@dataclass(frozen=True, slots=True)
class BoundsAsked(Message):
    partitions: tuple[PartitionName, ...]


@dataclass(frozen=True, slots=True)
class Bounds(Message):
    """``start`` is the log start offset and ``end`` the high watermark, both -1 where the answering
    node does not lead the partition, or does not know its high watermark yet."""

    topic: str
    partition: int
    start: int
    end: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class BoundsFound(Message):
    partitions: tuple[Bounds, ...]
