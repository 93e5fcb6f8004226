"""SET_PARTITION_ROLE: marks and pins over elections (DESIGN 8).

``follower`` marks the node: it is not elected for the partition until the mark is cleared, but
stays in the ISR. If it leads, another in-sync node takes over; where there is none the partition
has no leader while the mark lasts. ``leader`` clears the node's mark and elects it, or changes
nothing at all. Both pin the partition against the balancer; ``auto`` clears mark and pin.
"""

from __future__ import annotations

from dataclasses import replace

from paceline.errors import InvalidRequest, NotAReplica
from paceline.types import NodeId
from paceline.wire.native.admin import SetRole
from paceline_node.controller import elections
from paceline_node.controller.context import Context, Draft, Outcome
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.controller.partition_change import Change


def set_role(request: SetRole, context: Context) -> Outcome:
    """Raises UnknownTopicOrPartition, NotAReplica, InvalidRequest (unknown role), and
    PreferredLeaderNotAvailable where ``leader`` cannot be (nothing is changed then)."""
    partition = context.image.partition(request.topic, request.partition)
    if request.node not in partition.replicas:
        raise NotAReplica(
            f"{request.topic}/{request.partition}: node {request.node} is not a replica"
        )
    draft = Draft(context.image)
    match request.role:
        case "leader":
            changed = _lead(draft, partition, request)
        case "follower":
            marks = (*partition.marks, request.node)
            changed = draft.change(partition, Change(marks=marks, pinned=True))
        case "auto":
            marks = _without(partition.marks, request.node)
            changed = draft.change(partition, Change(marks=marks, pinned=False))
            changed = elections.elect(draft, changed)
        case _:
            raise InvalidRequest(f"role {request.role!r}: expected leader, follower or auto")
    return elections.leadership_outcome(draft, changed)


def _lead(
    draft: Draft, partition: PartitionRegistration, request: SetRole
) -> PartitionRegistration:
    node = request.node
    marks = _without(partition.marks, node)
    if partition.leader == node:
        return draft.change(partition, Change(marks=marks, pinned=True))
    place = f"{request.topic}/{request.partition}"
    if node in partition.isr and draft.electable(node):
        elections.require_electable(draft, replace(partition, marks=marks), node, place)
        return draft.change(partition, Change(marks=marks, pinned=True, leader=node))
    # Outside the ISR a node may still be the complete one that an empty ISR waits for. If it is
    # not, the error below discards the draft.
    changed = elections.elect(draft, draft.change(partition, Change(marks=marks, pinned=True)))
    if changed.leader != node:
        elections.require_electable(draft, changed, node, place)
    return changed


def _without(marks: tuple[NodeId, ...], node: NodeId) -> tuple[NodeId, ...]:
    return tuple(mark for mark in marks if mark != node)
