"""What a node that is asked about the whole cluster asks the others: partitions of their leaders,
groups of their coordinators, transactions of theirs, and of all what they are busy with.

Whoever is asked by a node answers it: that node has judged for whom. NODE_STATUS is ``Status`` and
``StatusReply`` of the native protocol (``wire/native/data.py``).
"""

from __future__ import annotations

from paceline.values import dataclass
from paceline.wire.message import Message
from paceline.wire.native.data import PartitionDescription
from paceline.wire.native.groups import GroupDescription, GroupListing
from paceline.wire.native.transactions import TransactionListing
from paceline.wire.peer.names import GroupName, PartitionName


@dataclass(frozen=True, slots=True)
class PartitionsAsked(Message):
    """DESCRIBE_PARTITIONS."""

    partitions: tuple[PartitionName, ...]


@dataclass(frozen=True, slots=True)
class PartitionsDescribed(Message):
    """One for each, in the order of the request; ``error`` where this node does not lead it."""

    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class GroupsAsked(Message):
    """LIST_GROUPS: the first ``limit`` of those that the answering node coordinates, by family,
    name and subject, behind ``after``. Empty ``families`` or ``states`` do not filter."""

    families: tuple[str, ...]
    states: tuple[str, ...]
    after: GroupName | None
    limit: int


@dataclass(frozen=True, slots=True)
class GroupsFound(Message):
    groups: tuple[GroupListing, ...]
    has_more: bool


@dataclass(frozen=True, slots=True)
class GroupAsked(Message):
    """DESCRIBE_GROUP: with the first ``limit`` of the partitions behind ``after``, by topic and
    number, that its members read, that it has offsets of, or that its next member is dealt."""

    group: GroupName
    after: PartitionName | None
    limit: int


@dataclass(frozen=True, slots=True)
class GroupProgress(Message):
    """``committed`` -1: nothing. ``member``: who reads it."""

    topic: str
    partition: int
    committed: int
    member: str | None


@dataclass(frozen=True, slots=True)
class GroupFound(Message):
    """The members of ``description`` are without their protocol's own ``metadata`` and
    ``assignment``."""

    description: GroupDescription
    partitions: tuple[GroupProgress, ...]
    has_more: bool


@dataclass(frozen=True, slots=True)
class TransactionName(Message):
    """A transactional id, or a sink's, of a family of protocols."""

    family: str
    name: str


@dataclass(frozen=True, slots=True)
class TransactionsAsked(Message):
    """LIST_TRANSACTIONS: the first ``limit``, by family and name, behind ``after``, of those in one
    of ``states``; empty: in any."""

    states: tuple[str, ...]
    after: TransactionName | None
    limit: int


@dataclass(frozen=True, slots=True)
class TransactionsFound(Message):
    transactions: tuple[TransactionListing, ...]
    has_more: bool
