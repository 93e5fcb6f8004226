"""What members of protocol type ``consumer`` say of themselves, and what their leader answers.

The coordinator stores both unread; they are Kafka's bytes, so that clients of either protocol can
share a group (groups/DESIGN 1.1). Big-endian; ``str`` is i16 length and UTF-8, ``bytes`` i32 length
(-1 null), an array i32 count and its items::

    Subscription v0  i16 version | [ topic str ] | user data bytes
                 v1  + [ topic str | [ i32 partition ] ]   what it owned until now
                 v2  + i32 generation it owned that in, -1 none
                 v3  + rack str, length -1 none
    Assignment   v0  i16 version | [ topic str | [ i32 partition ] ] | user data bytes

Newer versions only append, so a reader takes what it knows and leaves the rest. Source: Kafka's
ConsumerProtocolSubscription and ConsumerProtocolAssignment schemas, KIP-429, KIP-792.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import field

from paceline.errors import RemoteProtocolError
from paceline.values import dataclass

PROTOCOL_TYPE = "consumer"
_SUBSCRIPTION_VERSION = 2
_ASSIGNMENT_VERSION = 0
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")

Partitions = Mapping[str, Sequence[int]]
"""Partition numbers by topic."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """``owned`` is what the member had in ``generation`` and would like to keep."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: Partitions = field(default_factory=dict)
    generation: int = -1

    def to_bytes(self) -> bytes:
        """As version 2."""
        parts = [_I16.pack(_SUBSCRIPTION_VERSION), _I32.pack(len(self.topics))]
        parts += [_text(topic) for topic in self.topics]
        parts += [_nullable(self.user_data), _pack_partitions(self.owned)]
        parts.append(_I32.pack(self.generation))
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> Subscription:
        """Of any version from 0. What a version has more than the one before may be missing: some
        clients name a version and stop where an older one does. Raises RemoteProtocolError."""
        reader = _Reader(data, "subscription")
        version = reader.i16()
        topics = tuple([reader.text() for _ in range(reader.count())])
        user_data = reader.nullable()
        owned = reader.partitions() if version >= 1 and reader.left else {}
        generation = reader.i32() if version >= 2 and reader.left else -1
        return cls(topics, user_data, owned, generation)


def says_the_same(subscription: bytes, other: bytes) -> bool:
    """Whether both ask for the same, whatever their members owned at that time and in which
    generation. Bytes that are no subscription are compared as they are."""
    if subscription == other:
        return True
    try:
        return _without_ownership(subscription) == _without_ownership(other)
    except RemoteProtocolError:
        return False


def _without_ownership(data: bytes) -> tuple[bytes, bytes]:
    """What stands before and behind what the member owned."""
    reader = _Reader(data, "subscription")
    version = reader.i16()
    for _ in range(reader.count()):
        reader.text()
    reader.nullable()
    start = reader.at
    if version >= 1 and reader.left:
        reader.partitions()
    if version >= 2 and reader.left:
        reader.i32()
    return data[:start], data[reader.at :]


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one member reads from now on."""

    partitions: Partitions
    user_data: bytes | None = None

    def to_bytes(self) -> bytes:
        """As version 0."""
        head = _I16.pack(_ASSIGNMENT_VERSION)
        return head + _pack_partitions(self.partitions) + _nullable(self.user_data)

    @classmethod
    def from_bytes(cls, data: bytes) -> Assignment:
        """Of any version from 0; no bytes at all mean nothing assigned. Raises
        RemoteProtocolError."""
        if not data:
            return cls({})
        reader = _Reader(data, "assignment")
        reader.i16()
        return cls(reader.partitions(), reader.nullable())


def assigned_topics(data: bytes) -> list[str]:
    """The topics of an assignment, without a look at their partitions. Raises
    RemoteProtocolError."""
    if not data:
        return []
    reader = _Reader(data, "assignment")
    reader.i16()
    found = []
    for _ in range(reader.count()):
        found.append(reader.text())
        reader.pass_over(reader.count())
    return found


def _text(text: str) -> bytes:
    raw = text.encode()
    return _I16.pack(len(raw)) + raw


def _nullable(data: bytes | None) -> bytes:
    return _I32.pack(-1) if data is None else _I32.pack(len(data)) + data


def _pack_partitions(partitions: Partitions) -> bytes:
    parts = [_I32.pack(len(partitions))]
    for topic in sorted(partitions):
        numbers = partitions[topic]
        parts += (_text(topic), _I32.pack(len(numbers)), *(_I32.pack(each) for each in numbers))
    return b"".join(parts)


class _Reader:
    """Reads in order; every length is checked against the bytes that are there."""

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._at = 0

    @property
    def at(self) -> int:
        """How many bytes have been read."""
        return self._at

    @property
    def left(self) -> int:
        """How many have not."""
        return len(self._data) - self._at

    def i16(self) -> int:
        number: int = _I16.unpack(self._take(_I16.size))[0]
        return number

    def i32(self) -> int:
        number: int = _I32.unpack(self._take(_I32.size))[0]
        return number

    def count(self) -> int:
        """The count of an array, each of whose items takes two bytes at least."""
        number = self.i32()
        if not 0 <= number * 2 <= len(self._data) - self._at:
            raise RemoteProtocolError(f"{self._what}: {number} items at byte {self._at}")
        return number

    def text(self) -> str:
        try:
            return self._take(self.i16()).decode()
        except UnicodeDecodeError as error:
            raise RemoteProtocolError(f"{self._what}: {error}") from None

    def nullable(self) -> bytes | None:
        size = self.i32()
        return None if size == -1 else self._take(size)

    def partitions(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for _ in range(self.count()):
            topic = self.text()
            found[topic] = tuple([self.i32() for _ in range(self.count())])
        return found

    def pass_over(self, numbers: int) -> None:
        """So many i32 more are read."""
        self._take(numbers * _I32.size)

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise RemoteProtocolError(
                f"{self._what}: {size} bytes at byte {self._at} of {len(self._data)}"
            )
        taken = self._data[self._at : end]
        self._at = end
        return taken
