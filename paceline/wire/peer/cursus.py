"""What nodes ask each other for clients of Cursus.

A client's own frame goes as it came (:class:`CursusFrame`), one hop at most: the receiver never
forwards again. What a node asks of itself for a client is a message of its own, whose answer says
what a client would be told in words. Whoever cannot answer says so with an ERROR frame; NOT_LEADER:
nothing was done, and the sender may look elsewhere.

``budget_ms`` is what is left of the request's time.
"""

from __future__ import annotations

import enum

from paceline.values import dataclass
from paceline.wire.message import Message


@dataclass(frozen=True, slots=True)
class CursusFrame(Message):
    """The frame's body, not compressed, is the payload. ``classed``: whether the client has asked
    for classes in errors; ``account``: whom quotas count it for."""

    budget_ms: int
    classed: bool
    account: str = ""


@dataclass(frozen=True, slots=True)
class CursusReply(Message):
    """The payload holds the body of the reply that the client is to get."""


@dataclass(frozen=True, slots=True)
class CursusGroupsAsked(Message):
    """Which groups of Cursus does the receiver coordinate?"""

    budget_ms: int


@dataclass(frozen=True, slots=True)
class CursusGroupsFound(Message):
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CursusEndsAsked(Message):
    """Where do the partitions of a topic begin and end that the receiver leads?"""

    budget_ms: int
    topic: str


@dataclass(frozen=True, slots=True)
class CursusEnds(Message):
    """Offsets as LIST_OFFSETS tells them."""

    partition: int
    earliest: int
    latest: int
    log_end: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class CursusEndsFound(Message):
    """Nothing of a topic that the receiver does not know."""

    partitions: tuple[CursusEnds, ...]


class CursusGroupStatus(enum.IntEnum):
    """What a group's coordinator makes of a question. MOVES: a transaction that is being ended may
    commit the offset that was asked for."""

    FOUND = 0
    NO_GROUP = 1
    STALE_GENERATION = 2
    UNKNOWN_MEMBER = 3
    MOVES = 4


@dataclass(frozen=True, slots=True)
class CursusPositionAsked(Message):
    """What has a group committed? ``generation``: of the reader that asks, if it says one."""

    budget_ms: int
    group: str
    topic: str
    partition: int
    generation: int | None


@dataclass(frozen=True, slots=True)
class CursusPositionFound(Message):
    """``offset``: where FOUND, 0 where nothing is committed. ``generation``: the group's, of a
    STALE_GENERATION."""

    status: CursusGroupStatus
    offset: int = 0
    generation: int = -1


@dataclass(frozen=True, slots=True)
class CursusMemberAsked(Message):
    """What does a member read? Keeps its session."""

    budget_ms: int
    group: str
    topic: str
    member: str
    generation: int


@dataclass(frozen=True, slots=True)
class CursusMemberFound(Message):
    """As :class:`CursusPositionFound`."""

    status: CursusGroupStatus
    partitions: tuple[int, ...] = ()
    generation: int = -1


@dataclass(frozen=True, slots=True)
class CursusRecordsAsked(Message):
    """Records from ``offset`` on, of a partition that the receiver leads; none of them after
    ``wait_ms`` without any. ``committed``: none of open transactions."""

    budget_ms: int
    topic: str
    partition: int
    offset: int
    committed: bool
    max_records: int
    wait_ms: int


@dataclass(frozen=True, slots=True)
class CursusRecordsFound(Message):
    """The payload is a data frame, empty where the log does not have the offset any more:
    ``is_out_of_range``, and where it begins and ends."""

    is_out_of_range: bool = False
    earliest: int = -1
    latest: int = -1
