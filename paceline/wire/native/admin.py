"""Administrative requests: topics, leadership, brokers. The active controller answers them; any
node forwards them to it.
"""

from __future__ import annotations

from dataclasses import field
from uuid import UUID

from paceline.types import NodeId, TopicId
from paceline.values import dataclass
from paceline.wire.message import Message


@dataclass(frozen=True, slots=True)
class Done(Message):
    """Success without more to say. ``metadata_offset`` is the metadata record that made it so;
    ``term`` the quorum's term."""

    metadata_offset: int
    term: int = 0


@dataclass(frozen=True, slots=True)
class CreateTopic(Message):
    """Create a topic. ``partitions``/``replication_factor`` -1 mean the cluster's defaults.

    With ``auto_create`` the replication factor is cut to the registered nodes
    (controller/DESIGN 9.1) and an existing topic is success. ``assignment`` gives replicas per
    partition, empty = placed by rack and load. ``internal`` allows ``__*`` names (refused from
    clients). ``if_not_exists``: the same name with the same counts is success, no change.

    ``token`` is any UUID of the caller's for this wish. It is kept with the topic, so a wish that
    is repeated because its outcome was unknown finds the topic that it made and succeeds as it
    would have. (To compare the topics would not do: somebody else may have made one just like it.)
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: dict[str, str] = field(default_factory=dict)
    kind: str = "log"
    assignment: tuple[tuple[NodeId, ...], ...] = ()
    auto_create: bool = False
    internal: bool = False
    if_not_exists: bool = False
    token: UUID | None = None


@dataclass(frozen=True, slots=True)
class TopicCreated(Message):
    topic_id: TopicId
    partitions: int
    replication_factor: int
    metadata_offset: int
    term: int
    existed: bool = False


@dataclass(frozen=True, slots=True)
class DeleteTopic(Message):
    name: str


@dataclass(frozen=True, slots=True)
class AlterTopic(Message):
    """Set (text) or remove (None) configuration values of a topic, all or nothing."""

    name: str
    configs: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class AlterGroup(Message):
    """Say what consumers of the coordinator protocol read that name no topics, as those of its
    version 0 cannot: these, or with none given again all that are not internal."""

    group: str
    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AddPartitions(Message):
    """Grow a topic to ``total`` partitions."""

    name: str
    total: int


@dataclass(frozen=True, slots=True)
class ElectLeader(Message):
    """Move leadership to ``node`` (-1: the preferred replica). ``unclean`` allows a replica that
    is not in sync and may lose records; ``pin`` keeps the balancer away."""

    topic: str
    partition: int
    node: NodeId
    pin: bool = False
    unclean: bool = False


@dataclass(frozen=True, slots=True)
class SetRole(Message):
    """SET_PARTITION_ROLE at ``node`` (controller/DESIGN 8): role ``leader``, ``follower``, or
    ``auto``, which clears the mark and the pin."""

    topic: str
    partition: int
    node: NodeId
    role: str


@dataclass(frozen=True, slots=True)
class RoleSet(Message):
    leader: NodeId
    leader_epoch: int
    metadata_offset: int
    term: int = 0


@dataclass(frozen=True, slots=True)
class FenceBroker(Message):
    """Operator's fence of a real or external broker (V1 ADMIN_FENCE_BROKER / UNFENCE)."""

    node: NodeId
    fenced: bool


@dataclass(frozen=True, slots=True)
class RegisterExternal(Message):
    """V1 ADMIN_REGISTER_BROKER (and, with an empty host, ADMIN_BROKER_HEARTBEAT) of an id."""

    node: NodeId
    host: str
    port: int
    epoch: int


@dataclass(frozen=True, slots=True)
class AddVoter(Message):
    """Let a member of the metadata quorum vote that listens so far. A ``directory_id`` must be its
    disk's; None: whichever it has."""

    node: NodeId
    directory_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class RemoveVoter(Message):
    """Let a voter of the metadata quorum listen only; ``directory_id`` as in AddVoter."""

    node: NodeId
    directory_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class UnregisterBroker(Message):
    """Forget a broker that will not come back, also as a member of the metadata quorum. Its data
    directory cannot register again."""

    node: NodeId


@dataclass(frozen=True, slots=True)
class ReconcileExternal(Message):
    """V1 ADMIN_RECONCILE_BROKER_HEALTH: fence external entries silent for longer than
    ``timeout_ms``, unfence the others."""

    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Reconciled(Message):
    """How many external entries changed."""

    count: int
    metadata_offset: int
    term: int = 0


@dataclass(frozen=True, slots=True)
class ReassignPartition(Message):
    """Move a partition to ``replicas``, preferred leader first; empty gives up a move under way,
    and is NO_REASSIGNMENT_IN_PROGRESS where there is none. Answered when the move has begun; it
    ends when the new replicas are in sync."""

    topic: str
    partition: int
    replicas: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True)
class ListReassignments(Message):
    """Which partitions are being moved: all, or those of ``topics``. Any node answers, as of its
    own metadata."""

    topics: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Reassignment(Message):
    """A move under way. ``replicas`` are old and new ones together; it ends when all ``adding`` are
    in the ISR, and then ``removing`` leave."""

    topic: str
    partition: int
    leader: NodeId
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class ReassignmentsListed(Message):
    """By topic and partition, as of metadata record ``metadata_offset``."""

    metadata_offset: int
    partitions: tuple[Reassignment, ...]
