"""Nodes and the metadata quorum, by what each node says of itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paceline.health import RUNNING
from paceline.types import NO_NODE
from paceline.values import dataclass
from paceline.wire.native.data import StatusReply
from paceline.wire.native.load import NodeLoad

UNREACHABLE = "unreachable"
"""The state of a node that does not say how it is."""
DRAINED = "drained"
"""The state of a node that runs, and is to lead nothing until an operator revives it."""


def shown_state(state: str, *, is_drained: bool) -> str:
    """A node's word for how it is, which does not tell what metadata have it do."""
    return DRAINED if is_drained and state == RUNNING else state


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What was heard of a node: ``state`` is its own word, :data:`DRAINED`, or one for its silence,
    of which ``reason`` tells more."""

    node: int
    state: str
    status: StatusReply | None
    reason: str = ""


def controller_of(answers: Iterable[StatusReply]) -> int | None:
    """The node that most of them name as controller; None where none does."""
    named = [int(each.controller) for each in answers if each.controller != NO_NODE]
    return max(sorted(set(named)), key=named.count) if named else None


def newest_of(answers: Iterable[StatusReply]) -> StatusReply | None:
    """The one with the newest metadata."""
    return max(answers, key=lambda status: status.image_offset, default=None)


def node_document(
    found: NodeAnswer, *, controller: int | None, listeners: Mapping[str, str]
) -> dict[str, Any]:
    """A node; ``listeners`` are its addresses by protocol. What it alone knows is null while it is
    silent, and -1 where it does not know it either."""
    told = found.status
    return {
        "id": found.node,
        "pid": None if told is None else told.pid,
        "listeners": dict(listeners),
        "state": found.state,
        "role": "controller" if found.node == controller else None,
        "leads": None if told is None else told.leading_count,
        "hosts": None if told is None else told.hosting_count,
        "software": None if told is None else told.software,
        "uptime_ms": None if told is None else told.uptime_ms,
        "disk_bytes": None if told is None else told.disk_bytes,
        "disk_free_bytes": None if told is None else told.disk_free_bytes,
        "loop_delay_ms": None if told is None else told.loop_delay_ms,
        "reason": found.reason or ("" if told is None else "; ".join(told.reasons)) or None,
    }


def load_document(node: int, told: NodeLoad | None, reason: str) -> dict[str, Any]:
    """What a node has done since its process began; all null where it is silent."""
    return {
        "node": node,
        "uptime_ms": None if told is None else told.uptime_ms,
        "appended_records": None if told is None else told.appended_records,
        "appended_bytes": None if told is None else told.appended_bytes,
        "fetched_records": None if told is None else told.fetched_records,
        "fetched_bytes": None if told is None else told.fetched_bytes,
        "requests": None if told is None else told.requests,
        "connections": None if told is None else told.connections,
        "client_memory_bytes": None if told is None else told.client_memory_bytes,
        "writes": None if told is None else _spread(told.bounds_us, told.writes),
        "syncs": None if told is None else _spread(told.bounds_us, told.syncs),
        "reason": reason or None,
    }


def _spread(bounds_us: Sequence[int], counts: Sequence[int]) -> dict[str, Any]:
    """How many took how long: those of each bound took longer than the bound before it."""
    return {"up_to_ms": [each / 1000 for each in bounds_us], "counts": list(counts)}


def quorum_document(answers: Sequence[NodeAnswer], newest: StatusReply) -> dict[str, Any]:
    """What ``quorum describe`` tells: ``newest`` is the answer with the newest metadata."""
    voters = {int(node) for node in newest.voters}
    return {
        "leader": controller_of(each.status for each in answers if each.status is not None),
        "term": newest.term,
        "voters": sorted(voters),
        "learners": sorted(int(node) for node in newest.learners),
        "nodes": [_voter(each, is_voter=each.node in voters) for each in answers],
    }


def _voter(found: NodeAnswer, *, is_voter: bool) -> dict[str, Any]:
    told = found.status
    return {
        "node": found.node,
        "vote": "voter" if is_voter else "learner",
        "role": None if told is None else told.role,
        "term": None if told is None else told.term,
        "commit_offset": None if told is None else told.commit_offset,
        "image_offset": None if told is None else told.image_offset,
        "state": found.state,
    }
