"""What a STATUS reply tells of a node part by part: lost ranges, certificates, failed checks; and
what an operator has wished of a partition."""

from __future__ import annotations

from paceline.health import Level
from paceline.types import NodeId
from paceline.values import dataclass
from paceline.wire.message import Message


@dataclass(frozen=True, slots=True)
class RangeStanding(Message):
    """Offsets ``start..end`` (exclusive; -1: nobody here knows) that a replica on the answering
    node lost.

    ``state``: ``damaged`` (waits for somebody to be repaired from, or for an operator),
    ``repairing`` (is fetched from the leader), ``incomplete`` (the partition has no leader, and
    this replica was not in sync), ``given-up`` (the log start lies behind it, or an operator let
    a replica lead that did not have it).
    """

    topic: str
    partition: int
    start: int
    end: int
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class CertificateStanding(Message):
    """The setting that names a file of certificates, and when the first of them ends, in seconds
    since 1970."""

    setting: str
    ends: int


@dataclass(frozen=True, slots=True)
class HealthFinding(Message):
    """What a node found of itself that is not in order: a named check (``paceline.health``), how
    bad it is, why, and what to do where there is something."""

    name: str
    level: Level
    reason: str
    what_to_do: str


@dataclass(frozen=True, slots=True)
class RoleOverride(Message):
    """What SET_ROLE has made of a partition (controller/DESIGN 8). ``pinned``: its leader is not
    moved back to the preferred one; ``followers``: nodes that do not lead it."""

    pinned: bool
    followers: tuple[NodeId, ...] = ()
