"""Bodies of the coordinator protocol (DESIGN 1).

Version 0 is what the published page says; version 1 adds epochs, generations and topics. Layout 7,
the page's bare blocks, has the bodies of version 0 but names partitions by strings (``codec.py``).
"""

from __future__ import annotations

from typing import Annotated

from paceline.values import dataclass
from paceline.wire.kafka.layout import (
    I8,
    I16,
    I32,
    I64,
    NullableStr,
    Str,
    Struct,
    short_count,
    since,
)

BEGIN_AT_EARLIEST = -2
BEGIN_AT_LATEST = -1
"""Starting offsets that the consumer resolves itself."""
REBALANCE, DELETED, REPLACED, MOVING, SHUTDOWN = range(5)
"""Reasons of a Stop: another rebalance; the group was deleted; another registration has replaced
this one; the coordinator moves; the server ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsultRequest(Struct):
    """Who coordinates? Asked of any broker."""

    group_id: Annotated[NullableStr, since(1)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker(Struct):
    """``creator_id`` names one incarnation: host and start time."""

    creator_id: Str
    id: I32
    host: Str
    port: I32


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsultResponse(Struct):
    """All live brokers by id, and which of them coordinates (-1: none)."""

    coordinator_id: I16 = -1
    brokers: tuple[Broker, ...] = ()
    coordinator_epoch: Annotated[I32, since(1)] = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCount(Struct):
    """A topic, or a pattern of topics, and how many streams read it."""

    topic: Str
    streams: I16


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterRequest(Struct):
    """Makes the connection a channel on which only the coordinator asks.

    ``auto_commit`` is 0 or 1; ``auto_offset_rest``, spelt as on the published page, ``smallest`` or
    ``largest``; ``pattern_kind`` 0 list, 1 whitelist, 2 blacklist.
    """

    group_id: Str
    consumer_id: Str
    auto_commit: I8
    auto_offset_rest: Str
    heartbeat_interval_ms: I32 = 3000
    max_heartbeat_retries: I16 = 3
    topic_count: Annotated[tuple[TopicCount, ...], since(1)] = ()
    pattern_kind: Annotated[I8, since(1)] = 0
    generation: Annotated[I32, since(1)] = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterResponse(Struct):
    """Version 1 only: what holds, as the coordinator clamped it."""

    coordinator_epoch: I32
    generation: I32
    consumer_id: Str
    heartbeat_interval_ms: I32
    max_heartbeat_retries: I16


@dataclass(frozen=True, slots=True, kw_only=True)
class PingRequest(Struct):
    """Are you there? From the coordinator."""

    coordinator_epoch: Annotated[I32, since(1)] = -1
    generation: Annotated[I32, since(1)] = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequest(Struct):
    """Stop reading, and say how far you got."""

    coordinator_epoch: Annotated[I32, since(1)] = -1
    generation: Annotated[I32, since(1)] = -1
    reason: Annotated[I8, since(1)] = REBALANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Position(Struct):
    """The next offset that the application will read."""

    topic: Str
    partition: I32
    offset: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionsResponse(Struct):
    """Answers Ping and Stop."""

    generation: Annotated[I32, since(1)] = -1
    positions: Annotated[tuple[Position, ...], short_count()] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned(Struct):
    """A partition to read, from ``offset`` on (or one of the constants above)."""

    topic: Str
    partition: I32
    leader_id: Annotated[I32, since(1)] = -1
    leader_epoch: Annotated[I32, since(1)] = -1
    offset: I64
    stream: Annotated[I16, since(1)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest(Struct):
    """Read these partitions; none of them: rest."""

    coordinator_epoch: Annotated[I32, since(1)] = -1
    generation: Annotated[I32, since(1)] = -1
    partitions: Annotated[tuple[Assigned, ...], short_count()] = ()


Question = PingRequest | StopRequest | StartRequest
"""What a registered consumer is asked."""
