"""Records that a node shows of a partition which another one leads: LOOK_AT_RECORDS."""

from __future__ import annotations

import enum

from paceline.values import dataclass
from paceline.wire.message import Message


class LookFrom(enum.IntEnum):
    """What the ``number`` of a question means."""

    OFFSET = 0
    """The first of them, or the first that is there behind it."""
    TIME = 1
    """Of the first that is no older, in ms since 1970."""
    LAST = 2
    """So many offsets before the end."""


@dataclass(frozen=True, slots=True)
class RecordsLookedAt(Message):
    """To the leader: at most ``limit`` committed records, only such as hold ``contained`` in key,
    value or headers. Of longer keys and values the first ``most_bytes`` are told."""

    topic: str
    partition: int
    begin: LookFrom
    number: int
    limit: int
    most_bytes: int
    contained: bytes


@dataclass(frozen=True, slots=True)
class LookedHeader(Message):
    """The name, too, may be any bytes."""

    name: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class LookedRecord(Message):
    """``key_bytes`` and ``value_bytes``: how long they are, -1: null."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    key_bytes: int
    value_bytes: int
    headers: tuple[LookedHeader, ...]


@dataclass(frozen=True, slots=True)
class RecordsLooked(Message):
    """``next_offset``: behind the last one that was looked at. ``end``: of what is committed."""

    records: tuple[LookedRecord, ...]
    log_start_offset: int
    end: int
    next_offset: int
