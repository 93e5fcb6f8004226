"""The records of ``__transactions`` (``keyed_records.py`` says how they are laid out).

Names of a key: family, and the id's name, and behind them::

    kind 1  a transactional id: its producer, and the transaction it is in
    kind 2  a sink (it has no family): which batch it committed last, which run may write
    kind 3  a record staged in an id's transaction ``serial``,      | i64 serial | i32 number
            appended only at commit
    kind 4  of a family (the name is empty): where the epochs of its new ids begin
    kind 5  of an id: where its decided transaction needs nothing stored any more

The values are :class:`Transaction`, :class:`Sink`, :class:`Staged`, :class:`Floor` and
:class:`Marked`.
"""

from __future__ import annotations

import enum
import struct
from typing import Any, NamedTuple
from uuid import UUID

from paceline.errors import RemoteProtocolError
from paceline.values import dataclass
from paceline.wire.message import Message
from paceline.wire.peer.names import GroupName, PartitionName
from paceline_node.state_machines.keyed_records import KeyedRecords
from paceline_node.state_machines.machine import Entry
from paceline_node.transaction_names import Family, ProducerIdentity, TransactionKey
from paceline_node.transactions.keys import TRANSACTIONS_TOPIC

_RECORDS = KeyedRecords(TRANSACTIONS_TOPIC)
_STAGED = struct.Struct(">qi")


class Kind(enum.IntEnum):
    TRANSACTION = 1
    SINK = 2
    STAGED = 3
    FLOOR = 4
    MARKED = 5


class State(enum.IntEnum):
    """Where a transactional id is; the numbers are Kafka's."""

    EMPTY = 0
    """Has a producer, and no transaction yet."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """Decided: it will be committed, whatever happens."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """Every partition and group knows."""
    COMPLETE_ABORT = 5

    @property
    def is_prepared(self) -> bool:
        """Whether it is decided how the transaction ends, and not done yet."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        return self in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


@dataclass(frozen=True, slots=True, order=True)
class KnownTopic(Message):
    """Which topic a name means in a transaction. One that is deleted and made anew under its name
    is another: nothing of the transaction is in it."""

    name: str
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class StagedOffset(Message):
    """An offset that is committed with the transaction, held by its coordinator until then.
    ``member`` and ``generation`` say who commits it, where the family's members are fenced;
    ``topic_id`` in which topic it was reached, None where that was not known."""

    group: GroupName
    topic: str
    partition: int
    offset: int
    metadata: str = ""
    member: str = ""
    generation: int = -1
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Transaction(Message):
    """A transactional id and its present transaction.

    ``producer_id`` and ``producer_epoch`` are whom batches and markers name. ``next_*`` replace
    them when the transaction is complete (-1: they stay). ``ended_*`` are the identity that the
    last transaction was ended under, so that a repeated END is recognised. ``serial`` counts the
    id's transactions. ``began_ms``, ``changed_ms``: wall clock. ``wire_epoch`` is the epoch that
    the client sees where its protocol counts its own. ``staged`` counts records staged in
    transaction ``serial``, ``offset_count`` its offsets, also when it is complete. ``sink``,
    ``batch``, ``run`` say whose task attempt this is.
    ``reason`` says why the coordinator itself ended it. ``metadata_offset``: in metadata as new as
    this all ``partitions`` exist; one that a newer image lacks was deleted. ``topics``: those of
    ``partitions`` and of what is staged, as they were when last written to, where that is known.
    ``losses``: how often ``__transactions`` had been set back when the id was last initialised.
    ``dropped``: how many of ``staged`` were stored nowhere, their topic having been deleted, once
    it is complete; not written where that is none, as in records of before.
    """

    producer_id: int
    producer_epoch: int
    state: State
    timeout_ms: int
    partitions: tuple[PartitionName, ...] = ()
    groups: tuple[GroupName, ...] = ()
    offsets: tuple[StagedOffset, ...] = ()
    serial: int = 0
    began_ms: int = 0
    changed_ms: int = 0
    next_producer_id: int = -1
    next_producer_epoch: int = -1
    ended_producer_id: int = -1
    ended_producer_epoch: int = -1
    wire_epoch: int = -1
    staged: int = 0
    sink: str = ""
    batch: int = -1
    run: str = ""
    reason: str = ""
    metadata_offset: int = 0
    offset_count: int = 0
    topics: tuple[KnownTopic, ...] = ()
    losses: int = 0
    dropped: int = 0

    def pack(self) -> list[Any]:
        """As :meth:`Message.pack`."""
        packed = Message.pack(self)
        return packed if self.dropped else packed[:-1]

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def next_identity(self) -> ProducerIdentity:
        """Whom the next transaction is written by."""
        if self.next_producer_id < 0:
            return self.identity
        return ProducerIdentity(self.next_producer_id, self.next_producer_epoch)

    @property
    def ended_identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.ended_producer_id, self.ended_producer_epoch)

    @property
    def commits(self) -> bool:
        """Whether it ends, or ended, in a commit."""
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)


@dataclass(frozen=True, slots=True)
class FencedRun(Message):
    run: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Sink(Message):
    """``last_batch`` is -1 before the first commit; ``last_transactions`` are what it committed.
    ``planned_ms``, ``last_planned_ms``: when the batch that is being written, and the last one,
    were planned, by their writers' clock; -1 where nobody knows. Not written where neither is
    known, as in records of before."""

    query: str
    run: str
    fenced: tuple[FencedRun, ...] = ()
    last_batch: int = -1
    last_transactions: tuple[str, ...] = ()
    changed_ms: int = 0
    planned_ms: int = -1
    last_planned_ms: int = -1

    def pack(self) -> list[Any]:
        """As :meth:`Message.pack`."""
        packed = Message.pack(self)
        return packed if max(self.planned_ms, self.last_planned_ms) >= 0 else packed[:-2]


@dataclass(frozen=True, slots=True)
class Header(Message):
    name: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Staged(Message):
    """A record to be appended at commit. ``sequence`` is the client's number for it, by which a
    repeated one is recognised; -1 where it has none."""

    topic: str
    partition: int
    sequence: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()

    @property
    def size_bytes(self) -> int:
        """About what it takes, in memory and in a log."""
        size = 64 + len(self.topic) + len(self.key or b"") + len(self.value or b"")
        return size + sum(len(each.name) + len(each.value or b"") for each in self.headers)


class StagedKey(NamedTuple):
    transaction: TransactionKey
    serial: int
    number: int


class SinkKey(NamedTuple):
    sink: str


@dataclass(frozen=True, slots=True)
class Floor(Message):
    """``wire_epoch`` is above those of all ids that were forgotten: whoever has one of theirs yet
    is not taken for the client of an id that is made anew."""

    wire_epoch: int


class FloorKey(NamedTuple):
    family: Family


@dataclass(frozen=True, slots=True)
class Marked(Message):
    """The partitions that have all that was staged for them in a decided transaction, and its
    marker, committed. It is that of this identity, which no other one has."""

    producer_id: int
    producer_epoch: int
    partitions: tuple[PartitionName, ...]

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.producer_epoch)


class MarkedKey(NamedTuple):
    transaction: TransactionKey


@dataclass(frozen=True, slots=True)
class Change:
    """A decoded record; ``value`` None forgets ``key``."""

    key: TransactionKey | SinkKey | StagedKey | FloorKey | MarkedKey
    value: Transaction | Sink | Staged | Floor | Marked | None


# --- writing --------------------------------------------------------------------------------------


def transaction_entry(key: TransactionKey, value: Transaction | None) -> Entry:
    """A transactional id's new state, or that it is forgotten."""
    return _RECORDS.entry(Kind.TRANSACTION, (key.family.value, key.name), value)


def sink_entry(sink: str, value: Sink | None) -> Entry:
    """A sink's new state, or that it is forgotten."""
    return _RECORDS.entry(Kind.SINK, ("", sink), value)


def staged_entry(key: TransactionKey, serial: int, number: int, value: Staged | None) -> Entry:
    """A staged record, or that it is dropped."""
    rest = _STAGED.pack(serial, number)
    return _RECORDS.entry(Kind.STAGED, (key.family.value, key.name), value, rest)


def floor_entry(family: Family, wire_epoch: int) -> Entry:
    """Where the epochs of new ids begin."""
    return _RECORDS.entry(Kind.FLOOR, (family.value, ""), Floor(wire_epoch))


def marked_entry(key: TransactionKey, value: Marked | None) -> Entry:
    """Where the id's decided transaction is stored and marked, or that it does not matter."""
    return _RECORDS.entry(Kind.MARKED, (key.family.value, key.name), value)


# --- reading --------------------------------------------------------------------------------------


def decode(entry: Entry) -> Change | None:
    """What a record says; None for a kind that this version does not know.

    Raises RemoteProtocolError naming what is wrong.
    """
    key, value = entry
    match _RECORDS.kind_of(key):
        case Kind.TRANSACTION:
            return Change(_read_key(key)[0], _RECORDS.value(Transaction, value))
        case Kind.SINK:
            return Change(SinkKey(_RECORDS.names(key, 2)[0][1]), _RECORDS.value(Sink, value))
        case Kind.STAGED:
            name, at = _read_key(key)
            staged = StagedKey(name, *_RECORDS.rest(_STAGED, key, at))
            return Change(staged, _RECORDS.value(Staged, value))
        case Kind.FLOOR:
            return Change(FloorKey(_read_key(key)[0].family), _RECORDS.value(Floor, value))
        case Kind.MARKED:
            return Change(MarkedKey(_read_key(key)[0]), _RECORDS.value(Marked, value))
        case _:
            return None


def _read_key(key: bytes) -> tuple[TransactionKey, int]:
    """The id, and where its name ends."""
    (family, name), at = _RECORDS.names(key, 2)
    try:
        return TransactionKey(Family(family), name), at
    except ValueError:
        raise RemoteProtocolError(f"{TRANSACTIONS_TOPIC}: family {family!r}") from None
