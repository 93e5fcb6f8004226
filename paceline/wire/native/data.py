"""Data-plane messages of the native protocol: handshake, metadata, produce, fetch, offsets, status.

Each class is the body of one frame (``paceline.wire.frame``), a positional array; README.md shows
the bytes. Batches travel in the frame's payload: the concatenation, in the order of
``partitions``, of each partition's ``records_bytes`` bytes. Offsets are exclusive ends unless a
field says "last". ``error`` fields are ErrorCode numbers, 0 for success, with ``message`` for a
reader; a failure of the whole request is an ERROR frame instead.

What does not belong here: topic and quorum administration (``admin.py``), socket handling.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from paceline.types import NO_EPOCH, NO_NODE, Acks, Isolation, LeaderEpoch, NodeId, TopicId
from paceline.values import dataclass
from paceline.wire.message import Message
from paceline.wire.native.quotas import Throttling
from paceline.wire.native.status_details import (
    CertificateStanding,
    HealthFinding,
    RangeStanding,
    RoleOverride,
)
from paceline.wire.peer.control import Address

# --- connection ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello(Message):
    """First request of every connection; nothing else is answered before it.

    The server picks a version in ``min_version .. max_version`` or answers UNSUPPORTED_VERSION.
    ``cluster_id`` is the cluster the client means, None on first contact; another cluster answers
    INCONSISTENT_CLUSTER_ID. ``mechanism`` and ``credentials`` are empty without authentication.
    """

    min_version: int
    max_version: int
    client_id: str
    software: str = ""
    cluster_id: UUID | None = None
    mechanism: str = ""
    credentials: bytes = b""


@dataclass(frozen=True, slots=True)
class HelloReply(Message):
    """``max_frame_bytes`` bounds each frame that the client may send, ``max_in_flight`` its
    unanswered requests; a server stops reading a connection that exceeds the latter."""

    version: int
    cluster_id: UUID
    node_id: NodeId
    max_frame_bytes: int
    max_in_flight: int
    software: str = ""
    mechanisms: tuple[str, ...] = ()


# --- metadata ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MetadataRequest(Message):
    """Brokers and topics as the answering node knows them.

    ``topics`` None means all topics (internal ones too), an empty list only the brokers.
    ``allow_auto_create`` creates named topics that are missing, where the cluster allows it.
    ``min_metadata_offset`` makes the node wait, at most ``timeout_ms``, until its image includes
    that metadata record, and answer REQUEST_TIMED_OUT otherwise: how a client reads its own
    administrative writes (``Done.metadata_offset``) from any node.
    """

    topics: tuple[str, ...] | None
    allow_auto_create: bool = False
    min_metadata_offset: int = -1
    timeout_ms: int = 0


@dataclass(frozen=True, slots=True)
class BrokerInfo(Message):
    """A registered broker; ``addresses`` are advertised ones by listener name (``native`` ...),
    that of Kafka ``KAFKA_ENDPOINT`` (``paceline/types.py``). ``drained``: an operator has it lead
    nothing (controller/DESIGN 11.2)."""

    node_id: NodeId
    addresses: tuple[Address, ...]
    rack: str = ""
    fenced: bool = False
    drained: bool = False

    def pack(self) -> list[Any]:
        packed = Message.pack(self)
        return packed if self.drained else packed[:-1]


@dataclass(frozen=True, slots=True)
class PartitionInfo(Message):
    """``error`` is LEADER_NOT_AVAILABLE when ``leader`` is -1. ``replicas`` in preference order."""

    partition: int
    error: int
    leader: NodeId
    leader_epoch: LeaderEpoch
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo(Message):
    """``error`` UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC or AUTHORIZATION_FAILED leaves the rest
    empty. Where all topics are asked for, those that may not be seen are left out.
    ``configs`` is None for who may not see what is set."""

    name: str
    error: int
    topic_id: TopicId | None
    partitions: tuple[PartitionInfo, ...]
    kind: str = "log"
    configs: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class MetadataReply(Message):
    """``controller`` is -1 while none is known. ``metadata_offset`` is the image's."""

    cluster_id: UUID
    controller: NodeId
    metadata_offset: int
    brokers: tuple[BrokerInfo, ...]
    topics: tuple[TopicInfo, ...]


# --- produce -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProducePartition(Message):
    """``records_bytes`` of the payload go to this partition: whole batches, their base offsets
    and leader epochs ignored (the leader assigns them). ``current_leader_epoch`` -1 = unchecked;
    otherwise a different epoch answers FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH."""

    topic: str
    partition: int
    records_bytes: int
    current_leader_epoch: LeaderEpoch = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Produce(Message):
    """Append batches. Requests of one connection are appended in order of arrival, whatever order
    their answers take; a partition may appear once in a request. Every request is answered, with
    acks NONE as soon as the leader has appended, undurable. ``timeout_ms`` bounds the wait for
    acks; after it a partition answers REQUEST_TIMED_OUT with unknown outcome.

    With ``transactional_id`` all batches are transactional, of its producer, with acks ALL; the
    partitions become part of its transaction. ``transaction_family`` is ``sink`` for the task
    attempt of a sink."""

    timeout_ms: int
    acks: Acks
    partitions: tuple[ProducePartition, ...]
    transactional_id: str | None = None
    transaction_family: str = "kafka"


@dataclass(frozen=True, slots=True)
class ProducedPartition(Message):
    """Result for one partition, in the order of the request.

    ``base_offset .. last_offset`` (inclusive) hold the appended records, -1 on error.
    ``duplicate`` tells that an idempotent retry found its batch already in the log and the offsets
    are the original ones. On NOT_LEADER_OR_FOLLOWER ``leader`` and ``leader_epoch`` are what the
    node knows of the leader, so that the client need not ask.
    """

    topic: str
    partition: int
    error: int
    message: str
    base_offset: int
    last_offset: int
    leader_epoch: LeaderEpoch
    high_watermark: int
    log_start_offset: int
    duplicate: bool = False
    leader: NodeId = NO_NODE


@dataclass(frozen=True, slots=True)
class ProduceReply(Throttling, Message):
    """``throttle_ms``: so long the node reads no further PRODUCE and FETCH of this client, for it
    is over a quota; so in ``FetchReply``."""

    partitions: tuple[ProducedPartition, ...]
    throttle_ms: int = 0


def pack_produced(
    at: ProducePartition,
    base_offset: int,
    last_offset: int,
    leader_epoch: int,
    high_watermark: int,
    log_start_offset: int,
    duplicate: bool,
) -> list[Any]:
    """What ``ProducedPartition(...).pack()`` gives for a success, without making the object: the
    one message that a leader packs for every single write."""
    return [
        at.topic,
        at.partition,
        0,
        "",
        base_offset,
        last_offset,
        leader_epoch,
        high_watermark,
        log_start_offset,
        duplicate,
        NO_NODE,
    ]


@dataclass(frozen=True, slots=True)
class InitProducer(Message):
    """Ask for a producer identity. Without ``transactional_id`` always a new id, epoch 0.

    With one, to the transaction coordinator: the identity that fences whoever had the id before. A
    transaction that is open under it is aborted first: CONCURRENT_TRANSACTIONS (51) until that is
    done. ``transaction_timeout_ms``: how long a transaction may be open, 1 s to 15 min.
    ``expected_id`` and ``expected_epoch``, not -1: only if nobody has taken the id over from this
    identity, PRODUCER_FENCED (90) otherwise.
    """

    transactional_id: str | None = None
    transaction_timeout_ms: int = 0
    expected_id: int = -1
    expected_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ProducerIdentity(Message):
    producer_id: int
    producer_epoch: int


# --- fetch ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FetchPartition(Message):
    """Read from ``offset``, about ``max_bytes`` (at least one whole batch, however large). With a
    ``topic_id``, of that topic alone: UNKNOWN_TOPIC_ID where another one has its name."""

    topic: str
    partition: int
    offset: int
    max_bytes: int
    current_leader_epoch: LeaderEpoch = NO_EPOCH
    topic_id: TopicId | None = None


@dataclass(frozen=True, slots=True)
class Fetch(Message):
    """Read committed batches; wait up to ``max_wait_ms`` until ``min_bytes`` can be answered. An
    error of any partition answers at once. ``max_bytes`` bounds the payload, except for a first
    batch that is larger. With ``own_replica`` the node reads its own copy, whether it leads or not,
    as far as it knows it to be committed."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: Isolation
    partitions: tuple[FetchPartition, ...]
    own_replica: bool = False


@dataclass(frozen=True, slots=True)
class ReportCorrupt(Message):
    """The batch at ``offset`` does not hold as FETCH gave it. The leader reads its own copy of that
    batch; nothing else follows from the claim. Claims that come too fast answer THROTTLED."""

    topic: str
    partition: int
    offset: int
    current_leader_epoch: LeaderEpoch = NO_EPOCH


@dataclass(frozen=True, slots=True)
class CorruptExamined(Message):
    """``damaged``: the leader's copy is bad; another replica takes over and this one is repaired.
    Otherwise it holds, and the bytes were changed on their way."""

    damaged: bool


@dataclass(frozen=True, slots=True)
class TrimPartition(Message):
    """Delete the records below ``offset``, at most the high watermark, which -1 means. To be sent
    to the leader; answered once every in-sync replica has it on disk, REQUEST_TIMED_OUT after
    ``timeout_ms``: deleted at the leader at least."""

    topic: str
    partition: int
    offset: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class PartitionTrimmed(Message):
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class AbortedTransaction(Message):
    """Records of ``producer_id`` from ``first_offset`` up to its abort marker are not committed."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class FetchedPartition(Message):
    """Slice of one partition, in the order of the request.

    The slice holds whole batches; the first may begin before the offset asked for. ``aborted``
    (READ_COMMITTED only) is in order of first_offset. ``leader`` as in ProducedPartition.
    ``next_offset`` is where the slice ends, so that the client can ask on before it has looked
    into the slice; -1 makes it look first.
    """

    topic: str
    partition: int
    error: int
    message: str
    leader_epoch: LeaderEpoch
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records_bytes: int
    aborted: tuple[AbortedTransaction, ...] = ()
    leader: NodeId = NO_NODE
    next_offset: int = -1


@dataclass(frozen=True, slots=True)
class FetchReply(Throttling, Message):
    partitions: tuple[FetchedPartition, ...]
    throttle_ms: int = 0


# --- offsets -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetQuery(Message):
    """``spec``: an OffsetSpec, or a timestamp in ms: the first record at or after it.

    EPOCH_END: where leader epoch ``epoch``, or the last one below it, ends in the leader's log; the
    answer's ``leader_epoch`` is the one found. AHEAD: the end of the last batch that ends within
    ``ahead_bytes`` stored bytes from ``after_offset`` on, of the first one if that is larger, at
    most LATEST. Such a batch may be found too short by what the index leaves out, never too long.
    """

    topic: str
    partition: int
    spec: int
    current_leader_epoch: LeaderEpoch = NO_EPOCH
    epoch: LeaderEpoch = NO_EPOCH
    after_offset: int = -1
    ahead_bytes: int = -1


@dataclass(frozen=True, slots=True)
class ListOffsets(Message):
    """LATEST is the high watermark, or the last stable offset with READ_COMMITTED; a fresh leader
    that does not know its true high watermark yet answers OFFSET_NOT_AVAILABLE."""

    isolation: Isolation
    partitions: tuple[OffsetQuery, ...]


@dataclass(frozen=True, slots=True)
class OffsetFound(Message):
    """``offset`` -1: no record at or after the timestamp. ``timestamp_ms`` -1: not a record's."""

    topic: str
    partition: int
    error: int
    message: str
    offset: int
    timestamp_ms: int
    leader_epoch: LeaderEpoch
    leader: NodeId = NO_NODE


@dataclass(frozen=True, slots=True)
class ListOffsetsReply(Message):
    partitions: tuple[OffsetFound, ...]


# --- looking inside ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DescribeTopic(Message):
    """What the answering node knows of partitions it leads; others answer
    NOT_LEADER_OR_FOLLOWER, so the client asks each leader. Empty ``partitions`` = all. With
    ``own_replica`` a follower describes its own copy too, without its leader's view of others. With
    ``settings``, left out where it is not asked for, all that hold for the topic are told."""

    topic: str
    partitions: tuple[int, ...] = ()
    own_replica: bool = False
    settings: bool = False

    def pack(self) -> list[Any]:
        packed = Message.pack(self)
        return packed if self.settings else packed[:-1]


@dataclass(frozen=True, slots=True)
class ReplicaProgress(Message):
    """A replica as its leader sees it: ``log_end_offset`` by its last fetch, ``acked_offset`` what
    counts for acknowledgement (durable); -1 unknown. ``caught_up_ms`` is how long ago it had all
    that the leader had, -1 never."""

    node_id: NodeId
    in_sync: bool
    log_end_offset: int
    acked_offset: int
    caught_up_ms: int = -1


@dataclass(frozen=True, slots=True)
class PartitionDescription(Message):
    """All offsets -1 on error. ``size_bytes`` is the leader's log. ``override`` is None where there
    is none, or with an error, where it is not known."""

    partition: int
    error: int
    message: str
    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: int
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    log_end_offset: int
    size_bytes: int
    segment_count: int
    progress: tuple[ReplicaProgress, ...]
    override: RoleOverride | None = None

    def pack(self) -> list[Any]:
        packed = Message.pack(self)
        return packed[:-1] if self.override is None else packed


@dataclass(frozen=True, slots=True)
class EffectiveSetting(Message):
    """``source``: ``topic`` (set for it), ``node`` (in the answering node's) or ``default``."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class TopicDescription(Message):
    """``configs``: what was set for the topic, None for who may not see it. ``settings``: what
    holds for it, sorted by name; left out for him, and where it was not asked for."""

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionDescription, ...]
    kind: str = "log"
    configs: dict[str, str] | None = None
    settings: tuple[EffectiveSetting, ...] = ()

    def pack(self) -> list[Any]:
        packed = Message.pack(self)
        return packed if self.settings else packed[:-1]


@dataclass(frozen=True, slots=True)
class Status(Message):
    """Ask the answering node about itself and its view of the cluster; never forwarded."""


@dataclass(frozen=True, slots=True)
class StatusReply(Message):
    """State of one node.

    ``state``: ``starting``, ``fenced``, ``running``, ``draining`` or ``failed``; ``reasons`` says
    why it is not plainly running. ``role``: ``leader``, ``follower``, ``candidate`` (voters) or
    ``learner``. Partition counts are over the whole cluster as in this node's image;
    ``leading``/``hosting`` count this node's own. ``controller`` -1 while none is known.
    ``damaged``: a sentence for each range that cannot be read on this node, and for what else of it
    an operator has to mend; ``ranges`` has those and the ones that were given up. ``certificates``:
    until when those of this node are good. ``findings``: which of its checks fail. ``disk_bytes``
    and ``disk_free_bytes``: of its data directory's file system, -1: not known.
    ``loop_delay_ms``: how long it stood still at a time, of late; -1: not known.
    """

    node_id: NodeId
    cluster_id: UUID
    software: str
    state: str
    reasons: tuple[str, ...]
    role: str
    term: int
    controller: NodeId
    voters: tuple[NodeId, ...]
    image_offset: int
    commit_offset: int
    brokers: tuple[BrokerInfo, ...]
    topic_count: int
    partition_count: int
    leaderless_count: int
    under_replicated_count: int
    under_min_isr_count: int
    leading_count: int
    hosting_count: int
    degraded: bool
    uptime_ms: int
    pid: int = 0
    learners: tuple[NodeId, ...] = ()
    damaged: tuple[str, ...] = ()
    ranges: tuple[RangeStanding, ...] = ()
    certificates: tuple[CertificateStanding, ...] = ()
    findings: tuple[HealthFinding, ...] = ()
    disk_bytes: int = -1
    disk_free_bytes: int = -1
    loop_delay_ms: int = -1


@dataclass(frozen=True, slots=True)
class StopCluster(Message):
    """The whole cluster is going to stop: nobody waits for a quorum or hands leadership over
    (paceline_node/DESIGN 2.4). Answered with ``Done`` before the node drains; each node is told by
    the client."""
