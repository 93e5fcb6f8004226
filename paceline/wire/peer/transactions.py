"""Between a transaction coordinator and the nodes whose partitions and groups are in transactions.

``family``, ``name``: a transactional id. ``producer_id``, ``producer_epoch``: whom batches name.
``serial`` counts the id's transactions: with it a late order is told from one for the next
transaction. ``coordinator_epoch`` is the leader epoch of ``__transactions`` in which the
coordinator speaks. ``timeout_ms`` is how long the answer may take.
"""

from __future__ import annotations

from uuid import UUID

from paceline.types import LeaderEpoch
from paceline.values import dataclass
from paceline.wire.message import Message
from paceline.wire.peer.names import GroupName


@dataclass(frozen=True, slots=True)
class VerifyTransaction(Message):
    """May this producer write here now? To the coordinator, from the leader of a partition
    (``topic``, ``partition``) or the coordinator of ``group``. ``adds``: let the transaction have
    the member from now on, beginning one if none is open. ``topic_id``: which topic of that name
    the leader would write to, as its metadata of ``metadata_offset`` have it: the coordinator's may
    be older."""

    family: str
    name: str
    producer_id: int
    producer_epoch: int
    topic: str
    partition: int
    group: GroupName | None
    adds: bool
    topic_id: UUID | None = None
    metadata_offset: int = 0


@dataclass(frozen=True, slots=True)
class TransactionVerified(Message):
    """``coordinator_epoch``: the leadership in which the coordinator says so."""

    serial: int
    coordinator_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class MarkedPartition(Message):
    """``leader_epoch``: the leadership that the order is for, so that a late one is refused.
    ``topic_id``: which topic the transaction has written to, where that is known; in another of its
    name there is nothing to end."""

    topic: str
    partition: int
    leader_epoch: LeaderEpoch
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class WriteMarkers(Message):
    """End a producer's transaction in these partitions, which the receiver leads."""

    producer_id: int
    producer_epoch: int
    serial: int
    commits: bool
    coordinator_epoch: int
    timeout_ms: int
    partitions: tuple[MarkedPartition, ...]


@dataclass(frozen=True, slots=True)
class MarkersWritten(Message):
    """An error code and text for each partition, in order; 0 when the marker is committed."""

    errors: tuple[int, ...]
    messages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SettledOffset(Message):
    """An offset that the coordinator held itself, of the topic ``topic_id`` if that is known."""

    topic: str
    partition: int
    offset: int
    metadata: str
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class SettleOffsets(Message):
    """Commit, or drop, what the transaction has pending in a group; then commit ``offsets``, each
    unless the group is further already. To the group's coordinator."""

    group: GroupName
    producer_id: int
    serial: int
    commits: bool
    offsets: tuple[SettledOffset, ...]


@dataclass(frozen=True, slots=True)
class OffsetsSettled(Message):
    """It is committed."""


@dataclass(frozen=True, slots=True)
class StageOffsets(Message):
    """Have ``offsets`` pending in a Cursus group for the open transaction of ``family`` and
    ``name``, if ``member`` of ``generation`` reads those partitions. To the group's coordinator,
    before the transaction is decided."""

    family: str
    name: str
    producer_id: int
    producer_epoch: int
    group: GroupName
    member: str
    generation: int
    offsets: tuple[SettledOffset, ...]


@dataclass(frozen=True, slots=True)
class OffsetsStaged(Message):
    """They are pending, which is committed."""


@dataclass(frozen=True, slots=True)
class AppendStaged(Message):
    """Append a committed transaction's staged batches, which are the payload, to a partition that
    the receiver leads, of the topic ``topic_id`` if that is known. Repeated it is recognised by the
    batches' sequences. ``began_ms`` (-1: not said) is when the transaction began, by the wall
    clock, if it may have ended here so long ago that its producer is forgotten: then the log is to
    tell."""

    topic: str
    partition: int
    leader_epoch: LeaderEpoch
    coordinator_epoch: LeaderEpoch
    timeout_ms: int
    topic_id: UUID | None = None
    began_ms: int = -1


@dataclass(frozen=True, slots=True)
class StagedAppended(Message):
    """It is committed."""


@dataclass(frozen=True, slots=True)
class OpenTransaction(Message):
    """A producer's transaction that is open in a partition's log, or with ``group`` one that has
    offsets pending there."""

    producer_id: int
    topic: str
    partition: int
    group: GroupName | None


@dataclass(frozen=True, slots=True)
class FindHanging(Message):
    """Which of these does nobody end any more? To the coordinator."""

    open: tuple[OpenTransaction, ...]


@dataclass(frozen=True, slots=True)
class HangingFound(Message):
    """For each, in order, whether no transaction is known that has anything to do with it;
    ``coordinator_epoch``: the leadership in which the coordinator says so."""

    hanging: tuple[bool, ...]
    coordinator_epoch: LeaderEpoch
