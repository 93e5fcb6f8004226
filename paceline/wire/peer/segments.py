"""What one node asks the leader of a segment on behalf of a client that asked here."""

from __future__ import annotations

import enum

from paceline.types import NodeId
from paceline.values import dataclass
from paceline.wire.message import Message


class SegmentOperation(enum.IntEnum):
    """LOOK: where it begins and ends; SEAL: end it."""

    LOOK = 0
    SEAL = 1


@dataclass(frozen=True, slots=True)
class SegmentRequest(Message):
    """About a segment: partition ``partition`` of a topic of kind ``segment``."""

    operation: SegmentOperation
    topic: str
    partition: int
    name: str


@dataclass(frozen=True, slots=True)
class SegmentAnswer(Message):
    """The node that leads, and the segment's readable positions ``start..end``."""

    leader: NodeId
    start: int
    end: int
    is_sealed: bool
