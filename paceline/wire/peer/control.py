"""Broker to controller: registration, heartbeats, ISR proposals (controller/DESIGN 2, 3, 6)."""

from __future__ import annotations

from uuid import UUID

from paceline.types import BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch, TopicId
from paceline.values import dataclass
from paceline.wire.message import Message


@dataclass(frozen=True, slots=True)
class Address(Message):
    """A listener's name and advertised address."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class PartitionRef(Message):
    topic_id: TopicId
    partition: int


@dataclass(frozen=True, slots=True)
class RegisterBrokerRequest(Message):
    """``trusted`` tells whether this start surely kept all that the previous one acknowledged
    (storage/DESIGN 2.3); ``damaged`` lists partitions whose recovery found corruption below the
    durable mark. ``most_partitions`` is how many the node may hold a replica of; 0: it does not
    say. ``metadata_offset`` is where the node's metadata log ended when this process started; -1:
    it cannot say."""

    cluster_id: UUID
    node_id: NodeId
    directory_id: UUID
    incarnation_id: UUID
    boot_seq: int
    prev_epoch: BrokerEpoch
    trusted: bool
    damaged: tuple[PartitionRef, ...]
    endpoints: tuple[Address, ...]
    feature_min: int
    feature_max: int
    rack: str = ""
    most_partitions: int = 0
    metadata_offset: int = -1


@dataclass(frozen=True, slots=True)
class RegisterBrokerResponse(Message):
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class HeartbeatRequest(Message):
    """``image_offset`` is the metadata offset this broker has applied. ``offline`` reports that
    its data directory failed. ``wall_ms``: what its wall clock shows. ``durable_offset`` is the
    metadata offset that it holds for good; -1: it does not say."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    image_offset: int
    want_fence: bool
    want_shutdown: bool
    offline: bool
    degraded: bool
    wall_ms: int = -1
    durable_offset: int = -1


@dataclass(frozen=True, slots=True)
class HeartbeatResponse(Message):
    """``cluster_ms``: the median of what the brokers' wall clocks show; -1: too few are heard."""

    fenced: bool
    caught_up: bool
    should_shutdown: bool
    cluster_ms: int = -1


@dataclass(frozen=True, slots=True)
class IsrMember(Message):
    """A member of a proposed ISR; broker_epoch is -1 for members already in it."""

    node_id: NodeId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class PartitionProposal(Message):
    """A leader's wish to change the ISR, valid only on exactly these epochs (I13). With
    ``relinquish`` it wishes another complete replica to lead, and ``isr`` is empty."""

    topic_id: TopicId
    partition: int
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[IsrMember, ...]
    relinquish: bool = False


@dataclass(frozen=True, slots=True)
class AlterPartitionRequest(Message):
    node_id: NodeId
    broker_epoch: BrokerEpoch
    proposals: tuple[PartitionProposal, ...]


@dataclass(frozen=True, slots=True)
class ProposalResult(Message):
    """``error`` is an ErrorCode; on success ``metadata_offset`` is the record to wait for. A hint
    only: the leader's view of the ISR changes through the metadata log alone
    (replication/DESIGN 3.6)."""

    topic_id: TopicId
    partition: int
    error: int
    metadata_offset: int


@dataclass(frozen=True, slots=True)
class AlterPartitionResponse(Message):
    results: tuple[ProposalResult, ...]


@dataclass(frozen=True, slots=True)
class RepairedRef(Message):
    """A replica that is whole again. ``partition_epoch`` is that of the registration in which the
    broker saw itself damaged: a report that was late is about an older damage."""

    topic_id: TopicId
    partition: int
    partition_epoch: PartitionEpoch


@dataclass(frozen=True, slots=True)
class LackingRef(Message):
    """A partition whose leader of ``leader_epoch`` asked its follower to cut records below
    ``high_watermark``, which the follower knows to be committed; or, if not ``is_committed``, such
    as may be, since its log is the longer one. It has not cut them."""

    topic_id: TopicId
    partition: int
    leader_epoch: LeaderEpoch
    high_watermark: int
    is_committed: bool = True


@dataclass(frozen=True, slots=True)
class ReportDamagedRequest(Message):
    """``partitions`` may have lost anything, their newest records too. Of those in ``holes`` only
    ranges cannot be read, found by the process that wrote or recovered what is behind them: they
    may lead on where no other replica is complete. ``lacking`` is damage of others: leaders."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    partitions: tuple[PartitionRef, ...]
    holes: tuple[PartitionRef, ...] = ()
    repaired: tuple[RepairedRef, ...] = ()
    lacking: tuple[LackingRef, ...] = ()


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsRequest(Message):
    node_id: NodeId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class AllocateProducerIdsResponse(Message):
    """A block of ids: first_id .. first_id + count - 1, never handed out again."""

    first_id: int
    count: int


@dataclass(frozen=True, slots=True)
class CreateInternalTopicRequest(Message):
    """Make one of the broker's own topics that exist only once needed; no effect when it is
    there."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateSegmentRequest(Message):
    """Add partition ``partition`` to a topic of kind ``segment``, which is made with it when it is
    missing. ``name``: what clients call a segment whose name does not tell its topic, else empty.
    ``token``: any UUID for this wish, so that it can be sent again when its outcome is unknown.
    """

    topic: str
    partition: int
    name: str = ""
    token: UUID | None = None


@dataclass(frozen=True, slots=True)
class DeleteSegmentRequest(Message):
    """Remove a partition of a topic of kind ``segment``; with the last one the topic goes."""

    topic: str
    partition: int
