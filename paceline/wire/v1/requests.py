"""The arguments of every V1 command as values. What a listener supports is its choice.

A request holds what its command says, checked as far as the words themselves allow: counts,
integers, names. Whether a topic, partition or broker exists is for whoever serves the request.
"""

from __future__ import annotations

import enum

from paceline.assignors.registry import BrokerAssignor
from paceline.types import Acks
from paceline.values import dataclass


class ValueEncoding(enum.Enum):
    """How keys and values stand in a line: as they are, or percent-encoded (DESIGN 2.2)."""

    PLAIN = "plain"
    PERCENT = "pct"


class PartitionRole(enum.Enum):
    LEADER = "leader"
    FOLLOWER = "follower"


@dataclass(frozen=True, slots=True)
class Produce:
    topic: str
    key: bytes
    value: bytes
    acks: Acks


@dataclass(frozen=True, slots=True)
class Consume:
    """``offset`` is the first wanted; ``max_records`` None means as many as fit in a reply."""

    topic: str
    partition: int
    offset: int
    encoding: ValueEncoding = ValueEncoding.PLAIN
    with_keys: bool = False
    max_records: int | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """``assignor`` None keeps the group's."""

    group: str
    topic: str
    consumer_id: str
    assignor: BrokerAssignor | None


@dataclass(frozen=True, slots=True)
class Sync:
    group: str
    topic: str
    consumer_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    group: str
    topic: str
    consumer_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Leave:
    group: str
    topic: str
    consumer_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Commit:
    group: str
    topic: str
    consumer_id: str
    generation: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """OFFSET: the committed position of a group."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class ReplicaFetch:
    topic: str
    partition: int
    replica_id: int
    offset: int


@dataclass(frozen=True, slots=True)
class SetPartitionRole:
    topic: str
    partition: int
    role: PartitionRole


@dataclass(frozen=True, slots=True)
class BrokerFetch:
    topic: str
    partition: int
    follower_id: int
    offset: int
    max_messages: int


@dataclass(frozen=True, slots=True)
class BrokerReplicaAck:
    topic: str
    partition: int
    follower_id: int
    acked_offset: int


@dataclass(frozen=True, slots=True)
class AdminCreateTopic:
    topic: str
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True)
class AdminRegisterBroker:
    """``epoch`` None means now, in nanoseconds: it was absent or not positive."""

    broker_id: int
    host: str
    port: int
    epoch: int | None


@dataclass(frozen=True, slots=True)
class AdminBrokerHeartbeat:
    broker_id: int


@dataclass(frozen=True, slots=True)
class AdminSetPartitionLeader:
    """``leader_id`` -1 means no leader; ``isr`` is what the caller claims, in its order."""

    topic: str
    partition: int
    leader_id: int
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AdminFenceBroker:
    broker_id: int


@dataclass(frozen=True, slots=True)
class AdminUnfenceBroker:
    broker_id: int


@dataclass(frozen=True, slots=True)
class AdminReconcileBrokerHealth:
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class AdminElectTopicLeaders:
    topic: str


@dataclass(frozen=True, slots=True)
class AdminGetMetadata:
    pass


Request = (
    Produce
    | Consume
    | Join
    | Sync
    | Heartbeat
    | Leave
    | Commit
    | CommittedOffset
    | ReplicaFetch
    | SetPartitionRole
    | BrokerFetch
    | BrokerReplicaAck
    | AdminCreateTopic
    | AdminRegisterBroker
    | AdminBrokerHeartbeat
    | AdminSetPartitionLeader
    | AdminFenceBroker
    | AdminUnfenceBroker
    | AdminReconcileBrokerHealth
    | AdminElectTopicLeaders
    | AdminGetMetadata
)
