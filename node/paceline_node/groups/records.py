"""The records of ``__groups`` (``keyed_records.py`` says how they are laid out).

Names of a key: family, group, subject (``cursus``: the topic), and behind them::

    kind 1  a group: its generation; behind those of its members that changed, in the same batch
    kind 2  a committed offset of it                                | str topic | i32 partition
    kind 3  the marker: this partition has begun (all names empty)
    kind 4  an offset that an open transaction will commit          | as 2 | i64 producer id
    kind 5  a member of the group, and what it is assigned          | str member id

The values are :class:`Group`, :class:`Offset`, :class:`Begun`, :class:`Pending` and :class:`Seat`.

Older versions wrote a group with all its members in one record, and so do the records that take
over files. It is read as it is; the next change of the group stores its members apart.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple
from uuid import UUID

from paceline.errors import RemoteProtocolError
from paceline.values import dataclass
from paceline.wire.message import Message, Utf8
from paceline_node.groups.keys import GROUPS_TOPIC, Family, GroupKey
from paceline_node.settings.counts import OFFSET_METADATA
from paceline_node.state_machines.keyed_records import KeyedRecords
from paceline_node.state_machines.machine import Entry

_RECORDS = KeyedRecords(GROUPS_TOPIC)
_NOTHING = struct.Struct("")
_PARTITION = struct.Struct(">i")
_PENDING = struct.Struct(">iq")
_PLACE_BYTES = OFFSET_METADATA.bound
NO_TEXT = Utf8(b"")


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


MARKER_KEY = _RECORDS.entry(Kind.MARKER, ("", "", ""), None).key


# --- writing --------------------------------------------------------------------------------------


def group_entry(key: GroupKey, group: Group | None) -> Entry:
    """A group's new state, or that it is forgotten."""
    return _RECORDS.entry(Kind.GROUP, (key.family.value, key.group, key.subject), group)


def seat_entry(key: GroupKey, member_id: str, seat: Seat | None) -> Entry:
    """A member of a group, or that it is none any more."""
    names = key.family.value, key.group, key.subject, member_id
    return _RECORDS.entry(Kind.MEMBER, names, seat)


def offset_entry(key: GroupKey, topic: str, partition: int, offset: Offset | None) -> Entry:
    """A committed offset, or that it is forgotten."""
    names = key.family.value, key.group, key.subject, topic
    return _RECORDS.entry(Kind.OFFSET, names, offset, _PARTITION.pack(partition))


def pending_entry(key: PendingKey, pending: Pending | None) -> Entry:
    """An offset of an open transaction, or that the transaction is over."""
    names = key.group.family.value, key.group.group, key.group.subject, key.topic
    rest = _PENDING.pack(key.partition, key.producer_id)
    return _RECORDS.entry(Kind.PENDING, names, pending, rest)


def marker_entry(begun: Begun) -> Entry:
    """The first record of a partition."""
    return _RECORDS.entry(Kind.MARKER, ("", "", ""), begun)


# --- reading --------------------------------------------------------------------------------------


def decode(entry: Entry) -> Change | None:
    """What a record says; None for a kind that this version does not know.

    Raises RemoteProtocolError naming what is wrong.
    """
    key, value = entry
    kind = _RECORDS.kind_of(key)
    if kind == Kind.OFFSET:
        names, at = _RECORDS.names(key, 4)
        (partition,) = _RECORDS.rest(_PARTITION, key, at)
        name = OffsetKey(_group(names), names[3], partition)
        return Change(name, _RECORDS.value(Offset, value))
    if kind == Kind.GROUP:
        return Change(_group(_RECORDS.names(key, 3)[0]), _RECORDS.value(Group, value))
    if kind == Kind.MEMBER:
        names, at = _RECORDS.names(key, 4)
        _RECORDS.rest(_NOTHING, key, at)
        return Change(SeatKey(_group(names), names[3]), _RECORDS.value(Seat, value))
    if kind == Kind.PENDING:
        names, at = _RECORDS.names(key, 4)
        partition, producer_id = _RECORDS.rest(_PENDING, key, at)
        pending = PendingKey(_group(names), names[3], partition, producer_id)
        return Change(pending, _RECORDS.value(Pending, value))
    if kind == Kind.MARKER:
        return Change(None, _RECORDS.value(Begun, value))
    return None


def _group(names: list[str]) -> GroupKey:
    try:
        return GroupKey(Family(names[0]), names[1], names[2])
    except ValueError:
        raise RemoteProtocolError(f"{GROUPS_TOPIC}: family {names[0]!r}") from None
