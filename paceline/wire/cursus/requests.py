"""The requests of Cursus, with values that are already valid.

Offsets are those of the log, next-to-read where they are committed ones. ``generation`` None means
that it was not given. ``dialect`` is how the answer's batches are to be written: as the request
was.
"""

from __future__ import annotations

from enum import Enum

from paceline.types import Acks, Isolation
from paceline.values import dataclass
from paceline.wire.cursus.batch import Dialect


class OffsetReset(Enum):
    """Where a reader without any offset begins."""

    EARLIEST = "earliest"
    LATEST = "latest"


class Partitioner(Enum):
    """How the broker chooses a partition for a key."""

    HASH_KEY = "hash_key"
    ROUND_ROBIN = "round_robin"


class AuthPolicy(Enum):
    """Who may use a topic."""

    OPEN = "open"
    DENY_WRITE = "deny_write"
    DENY_READ = "deny_read"
    ACL = "acl"


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """A topic's rules. ``cleanup`` is ``delete``, ``compact`` or ``delete,compact``; 0 retention
    means the broker's default."""

    cleanup: str = "delete"
    partitioner: Partitioner = Partitioner.HASH_KEY
    auth: AuthPolicy = AuthPolicy.OPEN
    read_acl: tuple[str, ...] = ()
    write_acl: tuple[str, ...] = ()
    retention_hours: int = 0
    retention_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Credentials:
    """What ``principal=… auth_token=…`` on a command says. Never to be logged."""

    principal: str
    token: str


# --- session ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProtocolInfo:
    pass


@dataclass(frozen=True, slots=True)
class Negotiate:
    """``features`` None asks for all of them."""

    version: int
    features: tuple[str, ...] | None
    required: bool


@dataclass(frozen=True, slots=True)
class Auth:
    credentials: Credentials


@dataclass(frozen=True, slots=True)
class Help:
    pass


@dataclass(frozen=True, slots=True)
class Exit:
    pass


# --- topics -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """``given``: the parts of the policy that it names, as :class:`TopicPolicy` calls them."""

    topic: str
    partitions: int
    idempotent: bool
    event_sourcing: bool
    replication_factor: int | None
    policy: TopicPolicy
    given: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    topic: str


@dataclass(frozen=True, slots=True)
class ListTopics:
    """``topic`` None lists names; else how many partitions that one has."""

    topic: str | None


@dataclass(frozen=True, slots=True)
class DescribeTopic:
    topic: str


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    topic: str


@dataclass(frozen=True, slots=True)
class ListOffsets:
    topic: str
    partition: int | None


# --- records ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Publish:
    """``partition`` None lets the broker choose."""

    topic: str
    partition: int | None
    acks: Acks
    producer_id: str
    key: str
    sequence: int
    epoch: int
    idempotent: bool
    message: str


@dataclass(frozen=True, slots=True)
class ReadPlace:
    """From where, for whom and how CONSUME and STREAM read."""

    topic: str
    partition: int
    offset: int | None
    group: str | None
    member: str | None
    generation: int | None
    isolation: Isolation
    reset: OffsetReset
    max_records: int
    dialect: Dialect


@dataclass(frozen=True, slots=True)
class Consume:
    place: ReadPlace
    wait_ms: int


@dataclass(frozen=True, slots=True)
class Stream:
    place: ReadPlace


# --- cluster ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Of a group, or of a transactional id when ``group`` is None."""

    group: str | None
    transactional_id: str | None


@dataclass(frozen=True, slots=True)
class ListCluster:
    pass


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    pass


@dataclass(frozen=True, slots=True)
class ElectLeader:
    topic: str
    partition: int
    broker: str


# --- groups -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegisterGroup:
    topic: str
    group: str


@dataclass(frozen=True, slots=True)
class JoinGroup:
    topic: str
    group: str
    member: str
    generation: int | None


@dataclass(frozen=True, slots=True)
class SyncGroup:
    topic: str
    group: str
    member: str
    generation: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    topic: str
    group: str
    member: str
    generation: int


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """``by_base`` tells that ``member`` may be the id that the consumer gave itself."""

    topic: str
    group: str
    member: str
    generation: int | None
    by_base: bool


@dataclass(frozen=True, slots=True)
class FetchOffset:
    """``member`` and ``generation``: for a reader of another node, which is refused when its
    generation is over. Shipped clients name none."""

    topic: str
    partition: int
    group: str
    member: str = ""
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class CommitOffset:
    """Without a member (the positional form) nothing is fenced."""

    topic: str
    partition: int
    group: str
    offset: int
    member: str | None
    generation: int | None


@dataclass(frozen=True, slots=True)
class BatchCommit:
    topic: str
    group: str
    member: str
    generation: int
    offsets: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class GroupStatus:
    group: str


@dataclass(frozen=True, slots=True)
class ListGroups:
    pass


# --- event sourcing -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AppendStream:
    """``version`` is the one that the event shall have."""

    topic: str
    key: str
    version: int
    event_type: str
    schema_version: int
    producer_id: str
    metadata: str
    message: str


@dataclass(frozen=True, slots=True)
class StreamVersion:
    topic: str
    key: str


@dataclass(frozen=True, slots=True)
class SaveSnapshot:
    topic: str
    key: str
    version: int
    message: str


@dataclass(frozen=True, slots=True)
class ReadSnapshot:
    topic: str
    key: str


@dataclass(frozen=True, slots=True)
class ReadStream:
    topic: str
    key: str
    from_version: int


# --- transactions -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InitProducerId:
    transactional_id: str


@dataclass(frozen=True, slots=True)
class TransactionFence:
    """Whose transaction a request belongs to."""

    transactional_id: str
    producer_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class BeginTransaction:
    fence: TransactionFence


@dataclass(frozen=True, slots=True)
class TransactionPublish:
    fence: TransactionFence
    topic: str
    partition: int | None
    sequence: int
    key: str
    message: str


@dataclass(frozen=True, slots=True)
class SendOffsets:
    fence: TransactionFence
    topic: str
    group: str
    member: str
    generation: int
    offsets: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class EndTransaction:
    fence: TransactionFence
    commit: bool


@dataclass(frozen=True, slots=True)
class TransactionStatus:
    transactional_id: str


Request = (
    ProtocolInfo
    | Negotiate
    | Auth
    | Help
    | Exit
    | CreateTopic
    | DeleteTopic
    | ListTopics
    | DescribeTopic
    | TopicMetadata
    | ListOffsets
    | Publish
    | Consume
    | Stream
    | FindCoordinator
    | ListCluster
    | ClusterStatus
    | ElectLeader
    | RegisterGroup
    | JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | FetchOffset
    | CommitOffset
    | BatchCommit
    | GroupStatus
    | ListGroups
    | AppendStream
    | StreamVersion
    | SaveSnapshot
    | ReadSnapshot
    | ReadStream
    | InitProducerId
    | BeginTransaction
    | TransactionPublish
    | SendOffsets
    | EndTransaction
    | TransactionStatus
)
