"""The nouns of the metadata quorum: members, configurations, entries, snapshots.

What belongs here: plain values that core, store and driver share. No behaviour beyond looking
things up, no I/O.
"""

from __future__ import annotations

import enum
from dataclasses import field
from functools import cached_property
from typing import NamedTuple
from uuid import UUID

from paceline.errors import ConfigurationError
from paceline.types import NodeId
from paceline.values import dataclass
from paceline.wire.message import Message


class MemberId(NamedTuple):
    """A member is a node *with a disk*: the same node on a new disk is somebody else, because it
    no longer knows what it voted and acknowledged. ``directory`` is the directory id's 16 bytes.
    """

    node: NodeId
    directory: bytes

    def __str__(self) -> str:
        return f"{self.node}@{self.directory.hex()[:8]}"


class Start(NamedTuple):
    """A process of a member: the count of starts of its directory, and the incarnation."""

    number: int
    incarnation: UUID

    def is_before(self, other: Start) -> bool:
        """Whether the directory was started as ``other`` since; one process comes before none of
        its own registrations."""
        return self.number <= other.number and self.incarnation != other.incarnation


UNKNOWN_START = Start(0, UUID(int=0))


@dataclass(frozen=True, slots=True)
class Member(Message):
    """One member of the configuration with its peer address."""

    node_id: NodeId
    directory_id: UUID
    host: str
    port: int

    @property
    def id(self) -> MemberId:
        return MemberId(self.node_id, self.directory_id.bytes)


@dataclass(frozen=True)
class Config(Message):
    """Who votes and who only listens. Members are kept in node order.

    Not slotted, so that the derived id sets are computed once.
    """

    voters: tuple[Member, ...] = ()
    learners: tuple[Member, ...] = ()

    @cached_property
    def voter_ids(self) -> frozenset[MemberId]:
        return frozenset(member.id for member in self.voters)

    @cached_property
    def members(self) -> tuple[Member, ...]:
        return self.voters + self.learners

    @cached_property
    def member_ids(self) -> tuple[MemberId, ...]:
        return tuple(sorted(member.id for member in self.members))

    def voter(self, node: NodeId) -> Member | None:
        """The voter with this node id, whatever its disk."""
        return next((member for member in self.voters if member.node_id == node), None)

    def learner(self, node: NodeId) -> Member | None:
        return next((member for member in self.learners if member.node_id == node), None)

    def addresses(self) -> dict[NodeId, tuple[str, int]]:
        """Peer address of every member; where a node stands twice (a wiped voter and the learner
        that replaces it) the learner's, because only that one can be there."""
        return {member.node_id: (member.host, member.port) for member in self.members}


class EntryKind(enum.IntEnum):
    NOOP = 0
    RECORDS = 1
    CONFIG = 2


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the metadata log. ``data``: NOOP empty, RECORDS a msgpack array of encoded
    records, CONFIG a packed :class:`Config`."""

    index: int
    term: int
    kind: EntryKind
    data: bytes = b""


class EntryAt(NamedTuple):
    """Which entry, by its index and its term: two of one term never stand at one index."""

    at: int
    term: int


UNKNOWN_ENTRY = EntryAt(0, 0)
"""Not known, as of snapshots that versions before wrote."""


@dataclass(frozen=True, slots=True)
class HardState:
    """What a member must never forget: its term and whom it voted for in it."""

    term: int = 0
    vote: MemberId | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State after entry ``index``; ``config`` is the configuration in force at it."""

    index: int
    term: int
    config: Config
    state: bytes = field(repr=False)
    terms: tuple[tuple[int, int], ...] = ()
    """(term, its first index) of what it stands for, oldest first, as far back as is known: none of
    a forced history (RAFT 6), which says nothing of the one before."""
    voters_since: EntryAt = UNKNOWN_ENTRY
    """The entry since which the voters are these."""

    def term_of(self, index: int) -> int | None:
        """The term of the entry ``index`` that it stands for; None: not known."""
        if index > self.index:
            return None
        return next((term for term, first in reversed(self.terms) if first <= index), None)


PATIENCE_TIMEOUTS = 4
"""Patience as a number of election timeouts: with the settings' own, four seconds."""
EMPTY_SNAPSHOT = Snapshot(0, 0, Config(), b"")
"""Of a node that knows nothing: no voters, so it can elect nobody."""


class Role(enum.Enum):
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class RoleInfo:
    """Who this node believes to lead. ``leader`` is None while nobody is known."""

    role: Role
    term: int
    leader: MemberId | None


@dataclass(frozen=True, slots=True)
class Apart:
    """A leader's log is another history (RAFT 2.7): entry ``index`` here is of term ``mine`` and is
    committed, or lies below what is; the one of ``leader`` is of term ``theirs``. Its voters are
    who they are since ``voters_since``."""

    leader: MemberId
    index: int
    mine: int
    theirs: int
    voters_since: EntryAt

    def __str__(self) -> str:
        return (
            f"node {self.leader.node} leads the metadata quorum without entry {self.index} of term "
            f"{self.mine}, which this node knows to be committed (it has one of term "
            f"{self.theirs} there)"
        )


@dataclass(frozen=True, slots=True)
class Outlived:
    """This member has never heard of the voters that are since entry ``index``, as ``witness``
    knows, though it could not miss them: it would have let them in, or what it knows to be
    committed is not so (RAFT 2.10)."""

    witness: MemberId
    index: int

    def __str__(self) -> str:
        return (
            f"node {self.witness.node} knows of other voters since entry {self.index} of the "
            "metadata, of which this node has never heard"
        )


@dataclass(frozen=True, slots=True)
class ReadReady:
    """Answer to a read request: the state must have applied ``index``; -1 when leadership was
    lost before a majority confirmed it."""

    context: int
    index: int


@dataclass(frozen=True, slots=True)
class RaftTiming:
    """How time passes. Election timeouts are drawn from [E, 2E).

    E must stay at least four times the worst loop lag, or a busy loop looks like a dead leader.
    ``patience_ticks``: how long after its start a member waits for every voter (RAFT 2.6).
    """

    tick_s: float = 0.05
    heartbeat_ticks: int = 2
    election_ticks: int = 20
    patience_ticks: int = 0

    def __post_init__(self) -> None:
        if self.tick_s <= 0 or self.heartbeat_ticks < 1:
            raise ConfigurationError("raft timing: tick and heartbeat must be positive")
        if self.election_ticks < 2 * self.heartbeat_ticks:
            raise ConfigurationError(
                f"raft timing: an election timeout of {self.election_ticks} ticks must be at least "
                f"two heartbeats of {self.heartbeat_ticks} ticks"
            )

    @classmethod
    def of(cls, *, heartbeat_ms: int, election_ms: int) -> RaftTiming:
        """From the settings' numbers; half a heartbeat is one tick."""
        tick_ms = heartbeat_ms / 2
        election = max(1, round(election_ms / tick_ms))
        return cls(tick_ms / 1000, 2, election, PATIENCE_TIMEOUTS * election)


@dataclass(frozen=True, slots=True)
class RaftLimits:
    """Bounds of the core (RAFT 3.2)."""

    append_bytes: int = 64 * 1024
    append_entries: int = 500
    inflight_appends: int = 64
    chunk_bytes: int = 256 * 1024
    keep_entries: int = 1000
    learner_lag: int = 1000
    uncommitted_bytes: int = 64 * 1024 * 1024
    snapshot_bytes: int = 1024 * 1024 * 1024
