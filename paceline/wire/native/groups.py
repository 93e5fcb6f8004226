"""Consumer groups and their offsets: coordinator look-up, membership, commits, administration.

Membership is the classic Kafka protocol (groups/DESIGN 5): members join, wait for each
other, and the one chosen as leader assigns; the coordinator never looks into metadata and
assignments, which for protocol type ``consumer`` are as in ``paceline.wire.consumer_protocol``.
Requests go to the group's coordinator; another node answers NOT_COORDINATOR (16), one that is
still reading its log COORDINATOR_LOAD_IN_PROGRESS (14). README.md shows tables and bytes.

``family`` and ``subject`` name groups of other families, for whoever administers them: ``subject``
is the topic of a group that exists once for each topic (family ``cursus``), otherwise empty.
"""

from __future__ import annotations

from typing import Any

from paceline.values import dataclass
from paceline.wire.message import Message
from paceline.wire.native.data import BrokerInfo

KAFKA_FAMILY = "kafka"
NO_GENERATION = -1

# --- who coordinates -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FindCoordinator(Message):
    """Which node coordinates a group. Answered by any node from its metadata, which may be a
    moment old; COORDINATOR_NOT_AVAILABLE when nobody coordinates now."""

    group: str
    family: str = KAFKA_FAMILY
    subject: str = ""


@dataclass(frozen=True, slots=True)
class CoordinatorFound(Message):
    """``broker`` with the advertised addresses of all its listeners (services/DESIGN 3.3)."""

    broker: BrokerInfo


# --- membership ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupProtocol(Message):
    """A way of assigning that a member knows, and what it says of itself in it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinGroup(Message):
    """Become, or stay, a member. Answered when all known members have joined or the rebalance
    timeout of the slowest is over, so the answer may take that long; nothing else may.

    ``member_id`` empty: a new member, which is answered MEMBER_ID_REQUIRED and an id to join with
    (a static one, with ``instance_id``, joins at once). ``protocols`` in order of preference, at
    least one. Times in ms; ``rebalance_timeout_ms`` is how long this member may take to join again
    after HEARTBEAT_GROUP has answered REBALANCE_IN_PROGRESS.
    """

    group: str
    member_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[GroupProtocol, ...]
    instance_id: str | None = None
    client_id: str = ""


@dataclass(frozen=True, slots=True)
class JoinedMember(Message):
    """A member as the leader sees it; ``metadata`` is that of the chosen protocol."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class GroupJoined(Message):
    """``error`` is 0, or MEMBER_ID_REQUIRED (79): join again with ``member_id``; all else fails as
    a whole. ``members`` only for the member that is the ``leader``. A leader with
    ``keep_assignment`` (a static one that came back) sends no assignments, as the group has them.
    """

    error: int
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    keep_assignment: bool = False


@dataclass(frozen=True, slots=True)
class MemberAssignment(Message):
    member_id: str
    assignment: bytes


@dataclass(frozen=True, slots=True)
class SyncGroup(Message):
    """Hand in (leader) and get one's assignment; answered when the leader's is stored.
    ``protocol_type`` and ``protocol`` are checked unless empty."""

    group: str
    generation: int
    member_id: str
    assignments: tuple[MemberAssignment, ...] = ()
    instance_id: str | None = None
    protocol_type: str = ""
    protocol: str = ""


@dataclass(frozen=True, slots=True)
class GroupSynced(Message):
    assignment: bytes
    protocol_type: str = ""
    protocol: str = ""


@dataclass(frozen=True, slots=True)
class HeartbeatGroup(Message):
    """Stay a member. REBALANCE_IN_PROGRESS: join again within one's rebalance timeout;
    ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID: no member (of it) any more."""

    group: str
    generation: int
    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupDone(Message):
    """Success without more to say."""


@dataclass(frozen=True, slots=True)
class LeavingMember(Message):
    """By ``member_id``, or, with that empty, by ``instance_id``."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class LeaveGroup(Message):
    group: str
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True)
class MemberLeft(Message):
    member_id: str
    instance_id: str | None
    error: int


@dataclass(frozen=True, slots=True)
class GroupLeft(Message):
    """One result for each, in order."""

    members: tuple[MemberLeft, ...]


# --- offsets -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetToCommit(Message):
    """``offset`` is the next one to read. ``leader_epoch`` is that of the last record read, -1 if
    unknown; ``metadata`` is the committer's own."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class CommitOffsets(Message):
    """Store how far a member has read. ``generation`` -1 and ``member_id`` empty: on behalf of
    nobody, which a group with members refuses (UNKNOWN_MEMBER_ID). Answered when committed."""

    group: str
    generation: int
    member_id: str
    offsets: tuple[OffsetToCommit, ...]
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetResult(Message):
    """``error`` OFFSET_METADATA_TOO_LARGE, GROUP_SUBSCRIBED_TO_TOPIC, AUTHORIZATION_FAILED or 0."""

    topic: str
    partition: int
    error: int


@dataclass(frozen=True, slots=True)
class OffsetResults(Message):
    """One for each, in the order of the request."""

    partitions: tuple[OffsetResult, ...]


@dataclass(frozen=True, slots=True)
class TopicPartitions(Message):
    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FetchOffsets(Message):
    """Committed offsets of a group; ``topics`` None means all there are. A group that does not
    exist has none. ``require_stable``: a partition with offsets that an open transaction may yet
    commit answers UNSTABLE_OFFSET_COMMIT."""

    group: str
    topics: tuple[TopicPartitions, ...] | None = None
    require_stable: bool = False
    family: str = KAFKA_FAMILY
    subject: str = ""


@dataclass(frozen=True, slots=True)
class CommittedOffset(Message):
    """``offset`` -1: nothing committed. ``commit_ms`` is the coordinator's time of the commit."""

    topic: str
    partition: int
    error: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_ms: int = -1


@dataclass(frozen=True, slots=True)
class OffsetsFetched(Message):
    partitions: tuple[CommittedOffset, ...]


# --- administration ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListGroups(Message):
    """The groups that the answering node coordinates, so all nodes have to be asked. Empty
    ``families`` or ``states`` do not filter."""

    families: tuple[str, ...] = ()
    states: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupListing(Message):
    """``state``: ``Empty``, ``PreparingRebalance``, ``CompletingRebalance`` or ``Stable``."""

    family: str
    group: str
    subject: str
    state: str
    protocol_type: str
    member_count: int
    generation: int


@dataclass(frozen=True, slots=True)
class GroupsListed(Message):
    groups: tuple[GroupListing, ...]


@dataclass(frozen=True, slots=True)
class DescribeGroup(Message):
    group: str
    family: str = KAFKA_FAMILY
    subject: str = ""


@dataclass(frozen=True, slots=True)
class GroupMember(Message):
    """``metadata`` and ``assignment`` as the member's protocol has them; ``assigned`` is what they
    mean, where the coordinator knows (protocol type ``consumer``, and families whose broker
    assigns). ``silent_ms``: since it was last heard of. ``host``: where a member that joined by
    Kafka's protocol comes from; left out where that is not known."""

    member_id: str
    instance_id: str | None
    client_id: str
    session_timeout_ms: int
    silent_ms: int
    metadata: bytes
    assignment: bytes
    assigned: tuple[TopicPartitions, ...] = ()
    host: str = ""

    def pack(self) -> list[Any]:
        packed = Message.pack(self)
        return packed if self.host else packed[:-1]


@dataclass(frozen=True, slots=True)
class GroupDescription(Message):
    """``state`` as in GroupListing, or ``Dead`` for a group that does not exist. ``protocol`` is
    the assignor in use, ``leader`` the member that assigns (none where the broker does).
    ``listed``, of family ``coordinator``: what consumers read that name no topics (ALTER_GROUP);
    empty for all."""

    family: str
    group: str
    subject: str
    state: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[GroupMember, ...]
    listed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteGroup(Message):
    """Forget a group and its offsets. NON_EMPTY_GROUP while it has members, GROUP_ID_NOT_FOUND."""

    group: str
    family: str = KAFKA_FAMILY
    subject: str = ""


@dataclass(frozen=True, slots=True)
class DeleteOffsets(Message):
    """Forget offsets. GROUP_SUBSCRIBED_TO_TOPIC for topics that members read, GROUP_ID_NOT_FOUND
    as a whole. A partition without an offset is success."""

    group: str
    topics: tuple[TopicPartitions, ...]
    family: str = KAFKA_FAMILY
    subject: str = ""


@dataclass(frozen=True, slots=True)
class ResetOffsets(Message):
    """Set offsets, forwards or backwards, of a group without members (NON_EMPTY_GROUP otherwise).
    A group that does not exist is made."""

    group: str
    offsets: tuple[OffsetToCommit, ...]
    family: str = KAFKA_FAMILY
    subject: str = ""
