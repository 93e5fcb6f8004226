"""ALTER_PARTITION: leaders' proposals to change an ISR (DESIGN 6).

A proposal is accepted only on exactly the epochs it was made under (I13), checked in this
order, because the first error found tells the leader what to wait for.
"""

from __future__ import annotations

from collections.abc import Callable

from paceline.errors import ErrorCode
from paceline.types import NO_NODE
from paceline.wire.peer.control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrMember,
    PartitionProposal,
    ProposalResult,
)
from paceline_node.controller import reassignment
from paceline_node.controller.context import Context, Draft, Outcome
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.controller.partition_change import Change, change_partition
from paceline_node.settings.topic_config import min_insync_replicas


def alter_partitions(request: AlterPartitionRequest, context: Context) -> Outcome:
    """Judge each proposal on its own; errors come per partition, none is raised."""
    draft = Draft(context.image)
    errors = [_alter(request, proposal, draft, context) for proposal in request.proposals]

    def reply(offset: int) -> AlterPartitionResponse:
        return AlterPartitionResponse(
            tuple(
                ProposalResult(proposal.topic_id, proposal.partition, int(error), offset)
                for proposal, error in zip(request.proposals, errors, strict=True)
            )
        )

    return Outcome(tuple(draft.records), lambda at: reply(at.offset))


def _alter(
    request: AlterPartitionRequest, proposal: PartitionProposal, draft: Draft, context: Context
) -> ErrorCode:
    topic = context.image.topics.get(proposal.topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = draft.partition(proposal.topic_id, proposal.partition)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for check in _CHECKS:
        error = check(request, proposal, partition, draft)
        if error is not ErrorCode.NONE:
            return error
    if proposal.relinquish:
        return _relinquish(partition, draft)
    if not all(_eligible(member, partition, draft) for member in proposal.isr):
        # The leader may have another copy of this proposal under way, which could be accepted
        # later; the new partition epoch kills it (DESIGN 6.3).
        draft.change(partition, Change(bump=True))
        return ErrorCode.INELIGIBLE_REPLICA
    change = Change(isr=[member.node_id for member in proposal.isr])
    configured = min_insync_replicas(topic.configs)
    draft.change(partition, reassignment.completed(partition, change, configured))
    return ErrorCode.NONE


def _relinquish(partition: PartitionRegistration, draft: Draft) -> ErrorCode:
    """The leader sees this controller but no follower: treat it as fenced for this partition, so
    that somebody else may gather the others (DESIGN 5.6). It stays in the ELR: it is complete."""
    others = Change(
        isr=[node for node in partition.isr if node != partition.leader],
        passed_over=partition.leader,
    )
    changed = change_partition(partition, draft, others)
    if len(partition.isr) >= partition.min_isr or changed is None or changed.leader == NO_NODE:
        draft.change(partition, Change(bump=True))  # kills other copies, and tells the leader
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    draft.put(changed)
    return ErrorCode.NONE


_Check = Callable[
    [AlterPartitionRequest, PartitionProposal, PartitionRegistration, Draft], ErrorCode
]


def _not_from_the_future(
    request: AlterPartitionRequest,
    proposal: PartitionProposal,
    partition: PartitionRegistration,
    draft: Draft,
) -> ErrorCode:
    """A leader that knows more than this controller is talking to a stale controller."""
    offset = draft.image.offset
    newer = (
        request.broker_epoch > offset
        or proposal.leader_epoch > partition.leader_epoch
        or proposal.partition_epoch > partition.partition_epoch
        or any(member.broker_epoch > offset for member in proposal.isr)
    )
    return ErrorCode.NOT_CONTROLLER if newer else ErrorCode.NONE


def _from_the_leader(
    request: AlterPartitionRequest,
    proposal: PartitionProposal,
    partition: PartitionRegistration,
    draft: Draft,
) -> ErrorCode:
    sender = draft.broker(request.node_id)
    is_leader = (
        partition.leader == request.node_id
        and proposal.leader_epoch == partition.leader_epoch
        and sender is not None
        and sender.broker_epoch == request.broker_epoch
    )
    return ErrorCode.NONE if is_leader else ErrorCode.FENCED_LEADER_EPOCH


def _on_this_version(
    request: AlterPartitionRequest,
    proposal: PartitionProposal,
    partition: PartitionRegistration,
    draft: Draft,
) -> ErrorCode:
    current = proposal.partition_epoch == partition.partition_epoch
    return ErrorCode.NONE if current else ErrorCode.INVALID_UPDATE_VERSION


def _well_formed(
    request: AlterPartitionRequest,
    proposal: PartitionProposal,
    partition: PartitionRegistration,
    draft: Draft,
) -> ErrorCode:
    nodes = {member.node_id for member in proposal.isr}
    valid = (
        not nodes
        if proposal.relinquish
        else (
            nodes <= set(partition.replicas)
            and partition.leader in nodes
            and len(nodes) == len(proposal.isr)
            and all(m.broker_epoch >= 0 or m.node_id in partition.isr for m in proposal.isr)
        )
    )
    return ErrorCode.NONE if valid else ErrorCode.INVALID_REQUEST


_CHECKS: tuple[_Check, ...] = (
    _not_from_the_future,
    _from_the_leader,
    _on_this_version,
    _well_formed,
)


def _eligible(member: IsrMember, partition: PartitionRegistration, draft: Draft) -> bool:
    """Whether a member may be in the ISR: the process that the leader saw, alive, and not damaged
    (whatever the leader saw of it was before that). A member that shuts down may stay until it is
    moved, but may not be added."""
    broker = draft.broker(member.node_id)
    if broker is None or broker.fenced:
        return False
    if member.broker_epoch < 0:
        return True
    if member.node_id in partition.damaged:
        return False
    return broker.broker_epoch == member.broker_epoch and not broker.in_controlled_shutdown
