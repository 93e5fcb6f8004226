"""Moving a partition to other replicas (DESIGN 10).

The partition first grows to old and new replicas together; the new ones catch up and join the ISR
through their leader's proposals; when all are in, the old ones that are not wanted leave. Until
then the effective min_isr counts the replicas it had before, so that growing stalls nobody.
"""

from __future__ import annotations

from dataclasses import replace

from paceline.errors import InvalidRequest, NoReassignmentInProgress
from paceline.types import NodeId
from paceline_node.controller.context import Draft
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.controller.partition_change import Change


def origin_of(partition: PartitionRegistration) -> tuple[NodeId, ...]:
    """The replicas a partition has, or had before its reassignment."""
    return tuple(node for node in partition.replicas if node not in partition.adding)


def effective_min_isr(configured: int, replicas: tuple[NodeId, ...]) -> int:
    """min.insync.replicas as a partition can keep it (DESIGN 1.7)."""
    return min(configured, len(replicas))


def start(
    draft: Draft,
    partition: PartitionRegistration,
    target: tuple[NodeId, ...],
    configured_min_isr: int,
) -> PartitionRegistration:
    """Begin to move ``partition`` to ``target`` (in order of preference), replacing any
    reassignment under way. The caller has checked that the target's nodes exist."""
    origin = origin_of(partition)
    leaving = tuple(node for node in origin if node not in target)
    change = Change(
        replicas=(*target, *leaving),
        adding=tuple(node for node in target if node not in origin),
        removing=leaving,
        slots=max(partition.slots, len(target)),
    )
    return draft.change(partition, completed(partition, change, configured_min_isr))


def cancel(
    draft: Draft, place: str, partition: PartitionRegistration, configured_min_isr: int
) -> PartitionRegistration:
    """Return to the replicas from before. Raises NoReassignmentInProgress, and InvalidRequest when
    too few of them are in sync to go on without the new ones."""
    if not partition.adding and not partition.removing:
        raise NoReassignmentInProgress(f"{place}: its replicas are not being moved")
    origin = origin_of(partition)
    min_isr = effective_min_isr(configured_min_isr, origin)
    in_sync = sum(node in partition.isr for node in origin)
    if in_sync < min_isr:
        raise InvalidRequest(
            f"{place}: only {in_sync} of the former replicas are in sync, need {min_isr}"
        )
    change = Change(replicas=origin, adding=(), removing=(), min_isr=min_isr)
    return draft.change(partition, change)


def completed(partition: PartitionRegistration, change: Change, configured_min_isr: int) -> Change:
    """``change`` with the end of the reassignment, if the partition would then be ready for it:
    all new replicas in the ISR, and enough of the target in it."""
    replicas = partition.replicas if change.replicas is None else change.replicas
    adding = partition.adding if change.adding is None else change.adding
    removing = partition.removing if change.removing is None else change.removing
    if not adding and not removing:
        return change
    isr = partition.isr if change.isr is None else change.isr
    target = tuple(node for node in replicas if node not in removing)
    min_isr = effective_min_isr(configured_min_isr, target)
    if any(node not in isr for node in adding) or sum(n in isr for n in target) < min_isr:
        return change
    return replace(change, replicas=target, adding=(), removing=(), min_isr=min_isr)
