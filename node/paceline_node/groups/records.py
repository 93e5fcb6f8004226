"""The records of ``__groups``: keyed, so that compaction keeps the last of each key.

Key, big-endian; ``str`` is u16 length and UTF-8::

     0    1    2
    +----+----+-------------+------------+---------------+---------------------------------+
    | u8 | u8 | str family  | str group  | str subject   | kinds 2 and 4 only:             |
    | v1 |kind|             |            | (cursus topic)| str topic | i32 partition       |
    +----+----+-------------+------------+---------------+---------------------------------+
                                                         kind 4: | i64 producer id
                                                         kind 5: | str member id

    kind 1  a group: its generation; behind those of its members that changed, in the same batch
    kind 2  a committed offset of it
    kind 3  the marker: this partition has begun (family, group and subject empty)
    kind 4  an offset that an open transaction of the producer will commit
    kind 5  a member of the group, and what it is assigned

Value: u8 version (1), then the fields of :class:`Group`, :class:`Offset`, :class:`Begun`,
:class:`Pending` or :class:`Seat` as a msgpack array, which grows at the end only. No value (null)
forgets the key. A reader passes over kinds it does not know, and refuses versions it does not know.

Older versions wrote a group with all its members in one record, and so do the records that take
over files. It is read as it is; the next change of the group stores its members apart.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple, TypeVar
from uuid import UUID

from paceline.errors import RemoteProtocolError
from paceline.values import dataclass
from paceline.wire.message import Message, Utf8
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.settings.counts import OFFSET_METADATA
from paceline_node.state_machines.machine import Entry

_VERSION = 1
_U16 = struct.Struct(">H")
_I32 = struct.Struct(">i")
_PENDING = struct.Struct(">iq")
_VALUE_HEAD = bytes((_VERSION,))
_PLACE_BYTES = OFFSET_METADATA.bound
NO_TEXT = Utf8(b"")
M = TypeVar("M", bound=Message)


class Kind(enum.IntEnum):
    GROUP = 1
    OFFSET = 2
    MARKER = 3
    PENDING = 4
    MEMBER = 5


class Phase(enum.IntEnum):
    """How far a group's members are in agreeing on who reads what."""

    EMPTY = 0
    PREPARING = 1
    """Members have to join (again)."""
    COMPLETING = 2
    """All have joined; the leader assigns."""
    STABLE = 3


@dataclass(frozen=True, slots=True)
class Protocol(Message):
    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Member(Message):
    """``partitions`` is what the broker assigned, ``assignment`` what a leading member did; a
    family uses one of them. ``heard_ms`` is wall-clock time of the last word from it when this was
    written; sessions themselves are volatile."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = 0
    protocols: tuple[Protocol, ...] = ()
    assignment: bytes = b""
    partitions: tuple[int, ...] = ()
    heard_ms: int = 0
    client_host: str = ""

    def metadata(self, protocol: str) -> bytes:
        """What the member says of itself in ``protocol``."""
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")


@dataclass(frozen=True, slots=True)
class ReadTopic(Message):
    topic: str
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class Group(Message):
    """``members`` in order of joining. ``protocol`` is the assignor. ``topic`` and
    ``partition_count`` where the broker assigns, ``topic_id`` that of the topic then (``topic_ids.
    py``). ``changed_ms``: wall clock of this record. ``is_head``: a record without the members, who
    are in records of their own; never of a group that was read. ``read``: what a leading member
    has assigned in this generation (``read_topics.py``)."""

    generation: int
    phase: Phase
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    topic: str = ""
    partition_count: int = 0
    members: tuple[Member, ...] = ()
    changed_ms: int = 0
    topic_id: UUID | None = None
    is_head: bool = False
    read: tuple[ReadTopic, ...] = ()

    def member(self, member_id: str) -> Member | None:
        """The member of that id."""
        return next((each for each in self.members if each.member_id == member_id), None)

    def instance(self, instance_id: str) -> Member | None:
        """The static member that holds ``instance_id``."""
        return next((each for each in self.members if each.instance_id == instance_id), None)


@dataclass(frozen=True, slots=True)
class Seat(Message):
    """A member's own record. Members are in the order of their ``place``."""

    place: int
    member: Member


@dataclass(frozen=True, slots=True)
class Offset(Message):
    """``offset`` is the next one to read, of the topic ``topic_id`` (``topic_ids.py``). ``order``:
    when it was sent, among all offsets of its partition of ``__groups``, pending ones too: one of a
    lower order does not replace it. 0 holds nothing back: of older versions, or sent by a family
    whose offsets never go back, as it then has the order of what was there before."""

    offset: int
    leader_epoch: int = -1
    metadata: Utf8 = NO_TEXT
    commit_ms: int = 0
    topic_id: UUID | None = None
    order: int = 0


@dataclass(frozen=True, slots=True)
class Begun(Message):
    """``imported`` counts the groups and offsets that were taken over from files."""

    imported: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Pending(Message):
    """As :class:`Offset`, once transaction ``serial`` of its producer commits."""

    offset: int
    leader_epoch: int
    metadata: Utf8
    producer_epoch: int
    serial: int
    topic_id: UUID | None = None
    order: int = 0


def places(metadata: bytes) -> int:
    """How many of the offsets that there may be one with this metadata counts for."""
    return 1 + len(metadata) // _PLACE_BYTES


class OffsetKey(NamedTuple):
    group: GroupKey
    topic: str
    partition: int


class SeatKey(NamedTuple):
    group: GroupKey
    member_id: str


class PendingKey(NamedTuple):
    group: GroupKey
    topic: str
    partition: int
    producer_id: int


@dataclass(frozen=True, slots=True)
class Change:
    """A decoded record; ``value`` None forgets ``key``."""

    key: GroupKey | OffsetKey | PendingKey | SeatKey | None
    value: Group | Offset | Begun | Pending | Seat | None


_NOBODY = b"".join(_U16.pack(0) for _ in range(3))
MARKER_KEY = bytes((_VERSION, Kind.MARKER)) + _NOBODY


# --- writing --------------------------------------------------------------------------------------


def group_entry(key: GroupKey, group: Group | None) -> Entry:
    """A group's new state, or that it is forgotten."""
    return Entry(bytes((_VERSION, Kind.GROUP)) + _name(key), _value(group))


def seat_entry(key: GroupKey, member_id: str, seat: Seat | None) -> Entry:
    """A member of a group, or that it is none any more."""
    head = bytes((_VERSION, Kind.MEMBER)) + _name(key)
    return Entry(head + _text(member_id), _value(seat))


def offset_entry(key: GroupKey, topic: str, partition: int, offset: Offset | None) -> Entry:
    """A committed offset, or that it is forgotten."""
    head = bytes((_VERSION, Kind.OFFSET)) + _name(key)
    return Entry(head + _text(topic) + _I32.pack(partition), _value(offset))


def pending_entry(key: PendingKey, pending: Pending | None) -> Entry:
    """An offset of an open transaction, or that the transaction is over."""
    head = bytes((_VERSION, Kind.PENDING)) + _name(key.group) + _text(key.topic)
    return Entry(head + _PENDING.pack(key.partition, key.producer_id), _value(pending))


def marker_entry(begun: Begun) -> Entry:
    """The first record of a partition."""
    return Entry(MARKER_KEY, _value(begun))


def _value(message: Message | None) -> bytes | None:
    return None if message is None else _VALUE_HEAD + message.to_bytes()


def _name(key: GroupKey) -> bytes:
    return _text(key.family.value) + _text(key.group) + _text(key.subject)


def _text(text: str) -> bytes:
    raw = text.encode()
    return _U16.pack(len(raw)) + raw


# --- reading --------------------------------------------------------------------------------------


def decode(entry: Entry) -> Change | None:
    """What a record says; None for a kind that this version does not know.

    Raises RemoteProtocolError naming what is wrong.
    """
    key = entry.key
    if len(key) < 2 or key[0] != _VERSION:
        raise RemoteProtocolError(f"__groups: key {key[:16].hex()}, expected version {_VERSION}")
    kind = key[1]
    if kind == Kind.MARKER:
        return Change(None, _read(Begun, entry.value))
    if kind == Kind.GROUP:
        return Change(_read_key(key)[0], _read(Group, entry.value))
    if kind == Kind.OFFSET:
        return Change(_offset_key(key), _read(Offset, entry.value))
    if kind == Kind.PENDING:
        return Change(_pending_key(key), _read(Pending, entry.value))
    if kind == Kind.MEMBER:
        return Change(_seat_key(key), _read(Seat, entry.value))
    return None


def _read(kind: type[M], value: bytes | None) -> M | None:
    if value is None:
        return None
    if value[:1] != _VALUE_HEAD:
        raise RemoteProtocolError(
            f"__groups: {kind.__name__} of version {value[:1].hex()}, expected {_VERSION}"
        )
    return kind.from_bytes(memoryview(value)[1:])


def _read_key(key: bytes) -> tuple[GroupKey, int]:
    family, at = _take(key, 2)
    group, at = _take(key, at)
    subject, at = _take(key, at)
    try:
        return GroupKey(Family(family), group, subject), at
    except ValueError:
        raise RemoteProtocolError(f"__groups: family {family!r}") from None


def _offset_key(key: bytes) -> OffsetKey:
    group, at = _read_key(key)
    topic, at = _take(key, at)
    if at + _I32.size != len(key):
        raise RemoteProtocolError(f"__groups: offset key of {len(key)} bytes, expected {at + 4}")
    return OffsetKey(group, topic, _I32.unpack_from(key, at)[0])


def _pending_key(key: bytes) -> PendingKey:
    group, at = _read_key(key)
    topic, at = _take(key, at)
    if at + _PENDING.size != len(key):
        raise RemoteProtocolError(f"__groups: pending key of {len(key)} bytes, expected {at + 12}")
    return PendingKey(group, topic, *_PENDING.unpack_from(key, at))


def _seat_key(key: bytes) -> SeatKey:
    group, at = _read_key(key)
    member_id, at = _take(key, at)
    if at != len(key):
        raise RemoteProtocolError(f"__groups: member key of {len(key)} bytes, expected {at}")
    return SeatKey(group, member_id)


def _take(key: bytes, at: int) -> tuple[str, int]:
    start = at + _U16.size
    if start <= len(key):
        end = start + _U16.unpack_from(key, at)[0]
        if end <= len(key):
            try:
                return key[start:end].decode(), end
            except UnicodeDecodeError as error:
                raise RemoteProtocolError(f"__groups: key: {error}") from None
    raise RemoteProtocolError(f"__groups: key of {len(key)} bytes is cut at byte {at}")
