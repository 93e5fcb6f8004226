"""Quotas: how much a client may have of each node in a second, and the requests about them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from paceline.errors import RemoteProtocolError
from paceline.values import dataclass
from paceline.wire.message import Message, Packed

MAX_QUOTAS_OF_A_REQUEST = 1_000
MAX_RATE = 1e15


class QuotaOf(enum.IntEnum):
    """For whom: a user, by the name that policies know somebody by, or whoever comes from an IP
    address."""

    USER = 1
    ADDRESS = 2


class QuotaLimit(enum.IntEnum):
    """Of what: bytes of records that are written, or read, or requests."""

    PRODUCE = 1
    FETCH = 2
    REQUESTS = 3


@dataclass(frozen=True, slots=True)
class Quota(Message):
    """``rate`` a second, of each node. ``name`` None: each who has none of his own."""

    of: QuotaOf
    name: str | None
    limit: QuotaLimit
    rate: float


@dataclass(frozen=True, slots=True)
class QuotaChange(Message):
    """``rate`` None: there is no such quota from now on."""

    of: QuotaOf
    name: str | None
    limit: QuotaLimit
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class AlterQuotas(Message):
    """Set and take away quotas, all or nothing. Answered by ``Done``."""

    changes: tuple[QuotaChange, ...]


@dataclass(frozen=True, slots=True)
class ListQuotas(Message):
    """All of them."""


@dataclass(frozen=True, slots=True)
class QuotasListed(Message):
    """By whom they are for, by name (those of nobody's own first), by limit."""

    quotas: tuple[Quota, ...]


class Throttling:
    """Of messages whose last field is ``throttle_ms``, which hardly any needs: left out where it
    is 0."""

    __slots__ = ()

    def pack(self: Any) -> list[Any]:
        """The positional array."""
        packed = Message.pack(self)
        return packed if packed[-1] else packed[:-1]


def with_throttle(reply: Message | Packed, throttle_ms: int) -> Message | Packed:
    """A ProduceReply or a FetchReply that says so; the same one where there is nothing to say."""
    return Packed([reply.pack()[0], throttle_ms]) if throttle_ms else reply


def throttle_of(body: Sequence[Any]) -> int:
    """What the body of such a reply says. Raises RemoteProtocolError."""
    throttle_ms = body[1] if len(body) > 1 else 0
    if type(throttle_ms) is not int or throttle_ms < 0:
        raise RemoteProtocolError(f"throttled for {throttle_ms!r:.80} ms")
    return throttle_ms
