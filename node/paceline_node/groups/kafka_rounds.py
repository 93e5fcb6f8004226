"""Words of the classic Kafka group protocol, and one rebalance of a group: who has joined so far.

Nothing here is stored: a round lost with its coordinator is begun again by the members, who find
REBALANCE_IN_PROGRESS or no answer at all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import field

from paceline.errors import ErrorCode, InconsistentGroupProtocol
from paceline.values import dataclass
from paceline_node.groups.assignment_to_store import AssignmentToStore
from paceline_node.groups.keys import GroupKey
from paceline_node.groups.member_records import Ready
from paceline_node.groups.records import Member, Phase, Protocol
from paceline_node.state_machines.machine import Deferred


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """``needs_id``: a new dynamic member must come back with the id it is given (KIP-394)."""

    key: GroupKey
    member_id: str
    instance_id: str | None
    client_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    needs_id: bool = True
    client_host: str = ""

    def as_member(self, member_id: str, heard_ms: int) -> Member:
        """The member that this makes."""
        return Member(
            member_id,
            self.instance_id,
            self.client_id,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.protocols,
            heard_ms=heard_ms,
            client_host=self.client_host,
        )


@dataclass(frozen=True, slots=True)
class Joined:
    """``members`` for the leader. ``error`` MEMBER_ID_REQUIRED: join again as ``member_id``."""

    member_id: str
    generation: int = -1
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: tuple[Member, ...] = ()
    keep_assignment: bool = False
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Synced:
    assignment: bytes
    protocol_type: str
    protocol: str


@dataclass(frozen=True, slots=True)
class SyncRequest:
    key: GroupKey
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str
    protocol: str
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(slots=True)
class Waiting:
    """A member whose JOIN is not answered yet."""

    member: Member
    answer: Deferred[Joined]


@dataclass(slots=True)
class Round:
    """``deadline`` ends the joining, then the syncing. ``window_end`` is the end of the first join
    of an empty group, which every newcomer puts off until ``deadline``; inf otherwise.
    ``next_place`` is the seat of the next newcomer; ``ready`` are the records of those who joined.
    ``settling`` is what the leader has assigned, on its way into records."""

    phase: Phase
    deadline: float
    protocol_type: str = ""
    window_end: float = math.inf
    joined: dict[str, Waiting] = field(default_factory=dict)
    syncing: dict[str, Deferred[Synced]] = field(default_factory=dict)
    next_place: int = 0
    ready: dict[str, Ready] = field(default_factory=dict)
    settling: AssignmentToStore | None = None

    @property
    def is_first(self) -> bool:
        """Whether the group was empty when the round began."""
        return self.window_end != math.inf

    def ends_at(self) -> float:
        return min(self.deadline, self.window_end)


_PROTOCOL_BYTES = 64


def size_of(protocols: Sequence[Protocol]) -> int:
    """Bytes of what a member says of itself, as they take memory: 32,000 protocols whose names
    have two bytes are more than 64 KB."""
    size = _PROTOCOL_BYTES * len(protocols)
    for each in protocols:
        size += len(each.name) + len(each.metadata)
    return size


def common_protocols(members: Sequence[Member]) -> set[str]:
    """What all members know."""
    names = [{each.name for each in member.protocols} for member in members]
    return set.intersection(*names) if names else set()


def choose_protocol(members: Sequence[Member]) -> str:
    """The one that most members prefer among those that all know; by name where votes are even.
    Raises InconsistentGroupProtocol."""
    candidates = common_protocols(members)
    if not candidates:
        raise InconsistentGroupProtocol("the members have no protocol in common")
    votes = Counter(
        next(each.name for each in member.protocols if each.name in candidates)
        for member in members
    )
    return min(votes, key=lambda name: (-votes[name], name))
