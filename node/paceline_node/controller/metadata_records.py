"""Metadata records: the facts that the controller's quorum commits (DESIGN 1.2, 1.6).

A record is stored as msgpack ``[type, version, body]``. Records are facts, not commands: applying
one never fails and never depends on time or randomness. Unknown types at the running feature
level are fatal, because a node that skips a fact would act on a different state.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar
from uuid import UUID

import msgpack

from paceline.errors import RemoteProtocolError
from paceline.types import BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch, TopicId
from paceline.values import dataclass
from paceline.wire.message import Message, unpack_array
from paceline.wire.native.acls import Acl
from paceline.wire.native.users import ScramKey

FEATURE_LEVEL = 1


class Record(Message):
    """Base of all metadata records."""

    __slots__ = ()
    TYPE: ClassVar[int]
    VERSION: ClassVar[int] = 0


@dataclass(frozen=True, slots=True)
class Endpoint(Message):
    """Where a broker can be reached: listener name (``v1``, ``peer`` ...), advertised address."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class FeatureLevel(Record):
    TYPE: ClassVar[int] = 1
    name: str
    level: int


@dataclass(frozen=True, slots=True)
class RegisterBroker(Record):
    """A broker process was accepted.

    Its broker epoch is the metadata offset of the entry that holds this record, so whoever applies
    the entry knows it; ``broker_epoch`` is -1 when written, because the offset is assigned later.
    """

    TYPE: ClassVar[int] = 2
    node_id: NodeId
    broker_epoch: BrokerEpoch
    incarnation_id: UUID
    boot_seq: int
    directory_id: UUID
    prev_epoch: BrokerEpoch
    trusted: bool
    endpoints: tuple[Endpoint, ...]
    rack: str = ""
    most_partitions: int = 0


@dataclass(frozen=True, slots=True)
class BrokerChange(Record):
    """Flags of a registered broker; None leaves a flag as it is. The first ``fenced=False`` also
    makes the registration an activated one (DESIGN 2.5)."""

    TYPE: ClassVar[int] = 3
    node_id: NodeId
    broker_epoch: BrokerEpoch
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    degraded: bool | None = None
    operator_fenced: bool | None = None


@dataclass(frozen=True, slots=True)
class UnregisterBroker(Record):
    """A broker is forgotten, or an external entry where no broker has that id."""

    TYPE: ClassVar[int] = 4
    node_id: NodeId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class Topic(Record):
    TYPE: ClassVar[int] = 5
    topic_id: TopicId
    name: str
    replication_factor: int
    kind: str = "log"
    configs: dict[str, str] = field(default_factory=dict)
    token: UUID | None = None


@dataclass(frozen=True, slots=True)
class RemoveTopic(Record):
    TYPE: ClassVar[int] = 6
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class UnconfirmedTerm(Message):
    """A term that began when nobody was left in sync, and in which nothing could be committed: what
    ``leader`` wrote in it was acknowledged to nobody who waits for all (DESIGN 12.4)."""

    leader_epoch: LeaderEpoch
    leader: NodeId


@dataclass(frozen=True, slots=True)
class PartitionRegistration(Record):
    """The whole registration of a partition, written at every change of it.

    ``replicas`` is in preference order. ``min_isr`` is the effective one, min(configured, assigned
    replicas; DESIGN 1.7). ``recovery`` is 1 after an unclean election. ``marks`` are the nodes
    with a follower mark (DESIGN 8.1): they stay in the ISR but are not elected. ``pinned`` keeps
    the preferred-leader balance away. ``slots`` is the topic's replication factor, which may
    exceed the assigned replicas on a lone node (DESIGN 9.1): the rest are vacant slots.
    ``recovery`` 2 says that the only replica reported damage: an operator must decide. ``token`` is
    that of the wish which made a segment, None when it had none. ``damaged`` are the replicas that
    reported damage and have not reported themselves repaired since. ``given_up`` are the newest
    leader epochs that began with an operator's unclean election. ``losses`` counts the elections
    since which committed records may be lost: of a leader that was not complete, or in metadata
    that were set back. ``unconfirmed`` are the newest terms in which nothing was committed and of
    which a replica that is not in sync may still hold records, the present one among them.
    """

    TYPE: ClassVar[int] = 7
    topic_id: TopicId
    partition: int
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...]
    lkelr: tuple[NodeId, ...]
    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    min_isr: int
    slots: int
    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()
    marks: tuple[NodeId, ...] = ()
    pinned: bool = False
    recovery: int = 0
    token: UUID | None = None
    damaged: tuple[NodeId, ...] = ()
    given_up: tuple[LeaderEpoch, ...] = ()
    losses: int = 0
    unconfirmed: tuple[UnconfirmedTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class RemovePartition(Record):
    """A partition of a topic of kind ``segment`` is gone; its number is not used again while the
    topic lives."""

    TYPE: ClassVar[int] = 12
    topic_id: TopicId
    partition: int


@dataclass(frozen=True, slots=True)
class Config(Record):
    """One configuration value; ``value`` None removes it. resource: ``topic`` or ``cluster``."""

    TYPE: ClassVar[int] = 8
    resource: str
    name: str
    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class ProducerIds(Record):
    """Producer ids below ``next_producer_id`` are handed out in blocks and never reused."""

    TYPE: ClassVar[int] = 9
    broker_id: NodeId
    broker_epoch: BrokerEpoch
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class DurableOffset(Message):
    """The metadata offset that a broker process said it holds for good."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    offset: int


@dataclass(frozen=True, slots=True)
class NoOp(Record):
    """Keeps the commit index moving: brokers measure their metadata lag by it, and what they said
    they hold tells an older copy of a disk by it (DESIGN 2.8). ``durable`` names those that hold
    more than was noted of them."""

    TYPE: ClassVar[int] = 10
    term: int = 0
    durable: tuple[DurableOffset, ...] = ()


@dataclass(frozen=True, slots=True)
class ExternalBroker(Record):
    """A broker id registered through V1 ADMIN_REGISTER_BROKER that no node owns (DESIGN 11.1)."""

    TYPE: ClassVar[int] = 11
    node_id: NodeId
    host: str
    port: int
    epoch: int
    fenced: bool
    last_heartbeat_ms: int


@dataclass(frozen=True, slots=True)
class AddAcl(Record):
    """A rule of who may do what holds from here on (DESIGN 14)."""

    TYPE: ClassVar[int] = 21
    acl: Acl


@dataclass(frozen=True, slots=True)
class RemoveAcl(Record):
    TYPE: ClassVar[int] = 22
    acl: Acl


@dataclass(frozen=True, slots=True)
class TokenKey(Message):
    """A token of a user, known by the SHA-256 of its secret. ``expires_ms`` 0: never."""

    token_id: str
    digest: bytes
    created_ms: int
    expires_ms: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class User(Record):
    """A user, with everything that proves to be it, written at every change (DESIGN 15)."""

    TYPE: ClassVar[int] = 13
    name: str
    keys: tuple[ScramKey, ...] = ()
    tokens: tuple[TokenKey, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoveUser(Record):
    TYPE: ClassVar[int] = 14
    name: str


AnyRecord = (
    FeatureLevel
    | RegisterBroker
    | BrokerChange
    | UnregisterBroker
    | Topic
    | RemoveTopic
    | PartitionRegistration
    | Config
    | ProducerIds
    | NoOp
    | ExternalBroker
    | RemovePartition
    | AddAcl
    | RemoveAcl
    | User
    | RemoveUser
)

_TYPES: dict[int, type[Record]] = {
    cls.TYPE: cls
    for cls in (
        FeatureLevel,
        RegisterBroker,
        BrokerChange,
        UnregisterBroker,
        Topic,
        RemoveTopic,
        PartitionRegistration,
        Config,
        ProducerIds,
        NoOp,
        ExternalBroker,
        RemovePartition,
        AddAcl,
        RemoveAcl,
        User,
        RemoveUser,
    )
}


def encode_record(record: Record) -> bytes:
    """One record as msgpack ``[type, version, body]``."""
    packed: bytes = msgpack.packb((record.TYPE, record.VERSION, record.pack()))
    return packed


def decode_record(data: bytes | memoryview) -> AnyRecord:
    """Inverse of :func:`encode_record`. Raises RemoteProtocolError for what it does not know."""
    values = unpack_array(data)
    if len(values) != 3 or type(values[0]) is not int:
        raise RemoteProtocolError("metadata record: expected [type, version, body]")
    cls = _TYPES.get(values[0])
    if cls is None:
        raise RemoteProtocolError(
            f"metadata record type {values[0]} is unknown at feature level {FEATURE_LEVEL}"
        )
    record: AnyRecord = cls.unpack(values[2])  # type: ignore[assignment]
    return record
