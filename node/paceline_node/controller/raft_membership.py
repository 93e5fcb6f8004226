"""Changing who votes: the arithmetic of single-server changes, and the plan that a leader follows
by itself (joining, healing a wiped voter, growing the voter set).

Pure. Rules: RAFT 4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from uuid import UUID

from paceline.errors import InvalidRequest
from paceline.types import NodeId
from paceline.values import dataclass
from paceline_node.controller.raft_progress import majority
from paceline_node.controller.raft_types import Config, Member, MemberId


def _ordered(members: Collection[Member]) -> tuple[Member, ...]:
    return tuple(sorted(members, key=lambda member: member.id))


def with_learner(config: Config, member: Member) -> Config:
    """``member`` listens. Another disk of the same node leaves, voter or learner: a node holds one
    place. Its address is replaced when it is a member already."""
    if member.id in config.voter_ids:
        voters = [member if old.id == member.id else old for old in config.voters]
        return Config(_ordered(voters), config.learners)
    return Config(
        _ordered([old for old in config.voters if old.node_id != member.node_id]),
        _ordered([*(old for old in config.learners if old.node_id != member.node_id), member]),
    )


def with_voter(config: Config, node: NodeId) -> Config:
    """The learner ``node`` votes. Raises InvalidRequest when it is no learner."""
    learner = config.learner(node)
    if learner is None:
        raise InvalidRequest(f"node {node} is not a learner of the metadata quorum")
    return Config(
        _ordered([*config.voters, learner]),
        tuple(old for old in config.learners if old.node_id != node),
    )


def with_listener(config: Config, node: NodeId) -> Config:
    """The voter ``node`` votes no more, but goes on listening. Raises InvalidRequest when it is no
    voter."""
    voter = config.voter(node)
    if voter is None:
        raise InvalidRequest(f"node {node} is not a voter of the metadata quorum")
    return Config(
        tuple(old for old in config.voters if old.node_id != node),
        _ordered([*config.learners, voter]),
    )


def without(config: Config, node: NodeId) -> Config:
    """``node`` leaves. Raises InvalidRequest when it is no member."""
    if config.voter(node) is None and config.learner(node) is None:
        raise InvalidRequest(f"node {node} is not a member of the metadata quorum")
    return Config(
        tuple(old for old in config.voters if old.node_id != node),
        tuple(old for old in config.learners if old.node_id != node),
    )


def check_change(
    old: Config, new: Config, *, live: Collection[MemberId], force: bool = False
) -> None:
    """Raise InvalidRequest unless the change is safe to propose.

    One voter at a time: two configurations that differ by one voter share a member in every pair
    of majorities. A change that leaves fewer live voters than the new majority could never be
    committed, nor anything after it; ``force`` is for an operator who knows better.
    """
    changed = old.voter_ids ^ new.voter_ids
    if len(changed) > 1:
        names = ", ".join(str(member) for member in sorted(changed))
        raise InvalidRequest(f"one voter may change at a time, not {names}")
    if not new.voters:
        raise InvalidRequest("the last voter of the metadata quorum cannot leave")
    if not changed or force:
        return
    alive = sum(1 for voter in new.voter_ids if voter in live)
    needed = majority(len(new.voters))
    if alive < needed:
        raise InvalidRequest(
            f"{alive} live voters would remain of {len(new.voters)}, {needed} are needed"
        )


def wanted_voters(nodes: int, *, most: int) -> int:
    """1 voter for one or two nodes, 3 from three nodes on, more only where asked (RAFT 4.3)."""
    if nodes <= 2:
        return 1
    if nodes <= 4:
        return min(3, most)
    return most


def _never(directory_id: UUID) -> bool:
    """No directory is retired."""
    return False


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a leader knows when it plans: members heard recently (itself included), learners that
    have caught up, and nodes that asked to be let in. ``retired`` tells of a data directory that it
    will not come back: its broker was unregistered, or has another one now."""

    live: frozenset[MemberId]
    caught_up: frozenset[MemberId]
    joining: Mapping[NodeId, Member]
    most_voters: int = 3
    retired: Callable[[UUID], bool] = _never


def plan(config: Config, seen: Surroundings) -> Config | None:
    """The next configuration to propose, or None when all is well.

    A wiped voter (a voter's node joins with another disk) is healed only when a majority of the
    *other* voters is live and the old disk is silent: remove the old identity, let the new one
    listen, promote it later. A silent member whose directory is retired leaves.
    """
    for node in sorted(seen.joining):
        change = _admit(config, seen.joining[node], seen)
        if change is not None:
            return change
    return _retire(config, seen) or _promote(config, seen)


def rival_of(config: Config, member: Member) -> Member | None:
    """The member that holds the place of ``member``'s node with another disk."""
    for held in config.members:
        if held.node_id == member.node_id and held.id != member.id:
            return held
    return None


def _admit(config: Config, member: Member, seen: Surroundings) -> Config | None:
    if member in config.members:
        return None
    rival = rival_of(config, member)
    if rival is not None and rival.id in seen.live:
        return None  # two processes claim to be the node: the one that is there stays
    old = config.voter(member.node_id)
    if old is not None and old.id != member.id:
        others = config.voter_ids - {old.id}
        alive = sum(1 for voter in others if voter in seen.live)
        if alive < majority(len(others)) or not others:
            return None
    return with_learner(config, member)


def _retire(config: Config, seen: Surroundings) -> Config | None:
    for member in config.members:
        if member.id in seen.live or not seen.retired(member.directory_id):
            continue
        change = without(config, member.node_id)
        alive = sum(1 for voter in change.voters if voter.id in seen.live)
        if change.voters and alive >= majority(len(change.voters)):
            return change
    return None


def _promote(config: Config, seen: Surroundings) -> Config | None:
    count = len(config.voters)
    if not config.voters or count >= wanted_voters(len(config.members), most=seen.most_voters):
        return None
    ready = [
        learner
        for learner in config.learners
        if learner.id in seen.caught_up and learner.id in seen.live
    ]
    # An even number of voters tolerates no more losses than the odd number below it, so it is
    # only passed through: two learners must stand ready, or one to complete a pair.
    needed = 2 if count % 2 else 1
    if len(ready) < needed:
        return None
    change = with_voter(config, ready[0].node_id)
    alive = sum(1 for voter in change.voter_ids if voter in seen.live)
    return change if alive >= majority(len(change.voters)) else None
