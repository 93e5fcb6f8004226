"""What family ``coordinator`` knows of a group while its consumers are connected. Volatile.

A *driven group* is one with consumers, or one whose consumers are expected back after a failover.
What must survive lies in the group's record: who its members are, what they asked for, what they
have.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import field
from typing import NamedTuple, Protocol

from paceline.types import TopicId
from paceline.values import dataclass
from paceline.values import dataclass as message
from paceline.wire.coordinator.codec import Ask
from paceline.wire.coordinator.messages import (
    Question,
    RegisterRequest,
    StartRequest,
    StopRequest,
)
from paceline.wire.message import Message
from paceline_node.groups.keys import GroupKey, TopicAndNumber
from paceline_node.groups.records import Member
from paceline_node.groups.topic_pattern import TopicPattern
from paceline_node.state_machines.alarms import Alarms

PROTOCOL_TYPE = "coordinator"
PROTOCOL = "range"
LIST, WHITELIST, BLACKLIST = 0, 1, 2
Numbers = Mapping[str, Sequence[int]]
"""Partition numbers by topic."""


class State(enum.Enum):
    """Of a group (DESIGN 6.1)."""

    PENDING = "pending"
    """Something changed; more of it is waited for."""
    STOPPING = "stopping"
    """Consumers are told to stop."""
    ASSIGNING = "assigning"
    """All have stopped; a worker assigns, and stores the generation."""
    STARTING = "starting"
    """Consumers are told what to read."""
    STABLE = "stable"
    RECOVERING = "recovering"
    """After a failover: consumers may still be reading what they had, and are waited for."""


class Channel(Protocol):
    """A consumer's connection, as far as a coordinator can use it at once, without waiting."""

    def ask(self, question: Question) -> None:
        """Send a request; the answer, if any, comes back through ``answered``."""

    def end(self) -> None:
        """Close, once what was sent is answered, or soon."""

    def may_read(self, topic: str) -> bool:
        """Whether the consumer may read, and so hear of, a topic."""

    def owns(self, partitions: int) -> None:
        """Its coordinator keeps where the consumer is in so many partitions."""


@message(frozen=True, slots=True)
class Streams(Message):
    """A topic, or a pattern, and how many streams read it."""

    topic: str
    count: int


@message(frozen=True, slots=True)
class Wants(Message):
    """What a consumer registered with. Without ``topics`` it reads what is listed for its group, or
    all, with one stream each.
    ``version`` is that of the protocol; version 0 knows neither generations nor reasons."""

    version: int
    auto_commit: bool
    from_smallest: bool
    topics: tuple[Streams, ...] = ()
    pattern_kind: int = LIST

    @classmethod
    def of(cls, request: RegisterRequest, version: int) -> Wants:
        """What a request asks for."""
        return cls(
            version,
            request.auto_commit == 1,
            request.auto_offset_rest == "smallest",
            tuple(Streams(each.topic, each.streams) for each in request.topic_count),
            request.pattern_kind,
        )


@dataclass(slots=True)
class Consumer:
    """A connected one. ``generation`` is that of its last Start; ``counts`` are its streams for
    each topic that it names; ``owned`` what it was told to read and has not stopped to; ``next``
    waits for the answer to ``asked``. ``due_at``: of its next ping, or of the answer."""

    member: Member
    wants: Wants
    channel: Channel
    generation: int
    pattern: TopicPattern | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    owned: set[TopicAndNumber] = field(default_factory=set)
    asked: Ask | None = None
    next: StopRequest | StartRequest | None = None
    due_at: float = math.inf
    replaced_at: tuple[float, ...] = ()
    refused_until: float = -math.inf

    @property
    def id(self) -> str:
        return self.member.member_id

    @property
    def interval_s(self) -> float:
        return self.member.session_timeout_ms / 1000

    @property
    def fence_s(self) -> float:
        """Silence after which the consumer stops by itself."""
        return self.member.rebalance_timeout_ms / 1000

    @property
    def patience_s(self) -> float:
        """How long an answer is waited for: longer than the consumer waits for a request, so that
        it has stopped when its partitions are given to others (DESIGN 6.3)."""
        return self.fence_s + self.interval_s / 3

    @property
    def is_versioned(self) -> bool:
        return self.wants.version > 0

    def own(self, partitions: set[TopicAndNumber]) -> None:
        """It reads these from now on, and no others."""
        self.owned = partitions
        self.channel.owns(len(partitions))


class Share(NamedTuple):
    """A partition that a consumer is about to read, with one of its streams."""

    at: TopicAndNumber
    stream: int


@dataclass(slots=True, eq=False)
class Plan:
    """What a worker carries out: for each consumer what it shall read in ``generation``.
    ``committed`` are the offsets known, ``topic_ids`` say in which topics; ``from_smallest`` says
    where others begin."""

    generation: int
    shares: Mapping[str, Sequence[Share]]
    consumers: Mapping[str, Consumer]
    committed: Mapping[TopicAndNumber, int]
    topic_ids: Mapping[str, TopicId | None]

    def from_smallest(self) -> Mapping[TopicAndNumber, bool]:
        """For every partition whether its consumer begins at the smallest offset."""
        return {
            share.at: self.consumers[name].wants.from_smallest
            for name, shares in self.shares.items()
            for share in shares
        }


@dataclass(slots=True)
class DrivenGroup:
    """``timer`` is when ``state`` has lasted long enough. ``awaited``: members that have not come
    back yet. ``returned``: consumers to be started again as they were. ``positions`` are how far
    consumers have read in this generation, of which ``unstored`` are not committed. ``listed``:
    what consumers read that name no topics, if an operator has said so. ``seen_ids`` are those of
    the topics in ``seen``, ``topic_ids`` of those that ``positions`` are in. ``reading`` is being
    found out (``driven_reading.py``); ``looks_again``: what there is to read has changed."""

    key: GroupKey
    state: State
    timer: float = math.inf
    since: float = 0.0
    was_empty: bool = False
    is_dirty: bool = False
    failed_rounds: int = 0
    round_failed: bool = False
    consumers: dict[str, Consumer] = field(default_factory=dict)
    awaited: set[str] = field(default_factory=set)
    returned: dict[str, None] = field(default_factory=dict)
    plan: Plan | None = None
    seen: Numbers | None = None
    seen_ids: Mapping[str, TopicId | None] = field(default_factory=dict)
    topic_ids: dict[str, TopicId | None] = field(default_factory=dict)
    listed: Set[str] | None = None
    reading: object | None = None
    looks_again: bool = False
    positions: dict[TopicAndNumber, int] = field(default_factory=dict)
    unstored: dict[TopicAndNumber, None] = field(default_factory=dict)
    store_at: float = math.inf
    alarms: Alarms[str] = field(default_factory=Alarms)

    def next_alarm(self) -> float:
        """When anything here is due."""
        return min(self.timer, self.store_at, self.alarms.next())

    def is_read(self, topic: str) -> bool:
        """Whether any consumer reads ``topic``, as far as that is known: what comes of patterns is
        found out for each round."""
        return (
            self.seen is None
            or topic in self.seen
            or any(topic in each.counts for each in self.consumers.values())
        )


class RoundsDue:
    """Groups for which a worker is wanted; each stands there once until it is taken. ``wake`` is
    called when one is added."""

    def __init__(self) -> None:
        self._keys: dict[GroupKey, None] = {}
        self.wake: Callable[[], None] = lambda: None

    def add(self, key: GroupKey) -> None:
        """A worker is wanted."""
        self._keys[key] = None
        self.wake()

    def take(self) -> GroupKey | None:
        """The one that has waited longest."""
        key = next(iter(self._keys), None)
        if key is not None:
            del self._keys[key]
        return key
