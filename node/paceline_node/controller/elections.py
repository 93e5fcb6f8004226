"""Who leads: fencing, unfencing, handovers, the balancer and ELECT_LEADER (DESIGN 7).

The functions take a :class:`Draft` and add what follows from an event; :func:`elect_leader`
handles the administrative request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from paceline.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    NotAReplica,
    PreferredLeaderNotAvailable,
)
from paceline.types import NO_NODE, NodeId
from paceline.wire.native.admin import ElectLeader, RoleSet
from paceline_node.controller.context import MAX_MOVES_PER_BATCH, Context, Draft, Outcome
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.controller.partition_change import (
    RECOVERY_DAMAGED,
    Change,
    candidate,
    elect_unclean,
)

BALANCE_MOVES = 50
"""Leaderships moved back per round of the balancer."""
_GIVEN_UP_KEPT = 8
IMBALANCE_PERCENT = 10
"""Share of misplaced leaderships of one broker that the balancer tolerates."""


# --- brokers come and go ---------------------------------------------------------------------


def fence(draft: Draft, node: NodeId) -> None:
    """``node`` may lead nothing and be in no ISR until it is unfenced."""
    draft.change_broker(node, fenced=True)
    leave_isrs(draft, node)


def leave_isrs(draft: Draft, node: NodeId) -> None:
    """Take ``node``, which is no longer active, out of every ISR; it may stay in ELRs."""
    members = [partition for partition in draft.partitions() if node in partition.isr]
    if draft.most is not None and len(members) > draft.most:
        members.sort(key=lambda partition: partition.leader != node)  # whose clients wait
    for partition in members:
        if not draft.has_room():
            return
        leave_isr(draft, node, partition)


def leave_isr(
    draft: Draft, node: NodeId, partition: PartitionRegistration
) -> PartitionRegistration:
    """As :func:`leave_isrs`, in one partition."""
    return draft.change(partition, Change(isr=_without(partition.isr, node)))


def distrust(draft: Draft, node: NodeId) -> None:
    """Take ``node`` out of every ISR and ELR: its logs may lack what it acknowledged."""
    for partition in draft.partitions():
        distrust_in(draft, node, partition)


def distrust_in(
    draft: Draft, node: NodeId, partition: PartitionRegistration, *, is_emptied: bool = False
) -> PartitionRegistration:
    """As :func:`distrust`, in one partition; ``is_emptied``: it lacks all that it acknowledged."""
    known = (*partition.isr, *partition.elr, *(partition.lkelr if is_emptied else ()))
    if node not in known:
        return partition
    isr = _without(partition.isr, node)
    emptied = frozenset((node,)) if is_emptied else frozenset()
    return draft.change(partition, Change(isr=isr, untrusted=frozenset((node,)), emptied=emptied))


def unfence(draft: Draft, node: NodeId) -> None:
    """``node`` may lead again; partitions without a leader get one if it makes that possible."""
    draft.change_broker(node, fenced=False)
    elect_leaderless(draft, node)


def elect_leaderless(draft: Draft, node: NodeId) -> None:
    """Elect in every partition without a leader that has ``node`` among its replicas."""
    for partition in draft.partitions():
        if partition.leader == NO_NODE and node in partition.replicas:
            if not draft.has_room():
                return
            elect(draft, partition)


def elect(draft: Draft, partition: PartitionRegistration) -> PartitionRegistration:
    """Give a partition without a leader one, if any complete replica may lead.

    A sole replica leads whatever its trust (DESIGN 5.3): nobody else ever held the partition, so
    waiting gains nothing. A damaged one waits for the operator all the same.
    """
    elected = draft.change(partition, Change())
    if elected.leader != NO_NODE or elected.isr or elected.elr or len(elected.replicas) != 1:
        return elected
    node = elected.replicas[0]
    if node in elected.marks or elected.recovery == RECOVERY_DAMAGED or not draft.electable(node):
        return elected
    elected = elect_unclean(elected, node)
    draft.put(elected)
    return elected


def shut_down(draft: Draft, node: NodeId) -> int:
    """One step of a controlled shutdown: at most MAX_MOVES_PER_BATCH partitions lose ``node``.

    Returns how many still have it in their ISR.
    """
    draft.change_broker(node, in_controlled_shutdown=True)
    moved = remaining = 0
    for partition in draft.partitions():
        if node not in partition.isr:
            continue
        if moved == MAX_MOVES_PER_BATCH:
            remaining += 1
            continue
        leave_isr(draft, node, partition)
        moved += 1
    return remaining


def hand_over(draft: Draft, node: NodeId) -> None:
    """Move leaderships off the degraded ``node`` to healthy ISR members, where there are any."""
    moved = 0
    for partition in draft.partitions():
        if partition.leader != node:
            continue
        successor = candidate(partition, draft)
        if successor is None or draft.degraded(successor):
            continue
        draft.change(partition, Change(leader=successor))
        moved += 1
        if moved == MAX_MOVES_PER_BATCH:
            return


def operator_fence(draft: Draft, node: NodeId) -> None:
    """``node`` leads nothing until the operator lifts it; it goes on following (DESIGN 11.2)."""
    draft.change_broker(node, operator_fenced=True)
    for partition in draft.partitions():
        if partition.leader == node:
            if not draft.has_room():
                return
            draft.change(partition, Change(resign=True))


def operator_unfence(draft: Draft, node: NodeId) -> None:
    """Lift :func:`operator_fence`."""
    draft.change_broker(node, operator_fenced=False)
    elect_leaderless(draft, node)


def _without(nodes: tuple[NodeId, ...], node: NodeId) -> tuple[NodeId, ...]:
    return tuple(other for other in nodes if other != node)


# --- the balancer ----------------------------------------------------------------------------


def balance(draft: Draft) -> int:
    """Move leaderships back to preferred replicas; returns how many (at most BALANCE_MOVES).

    Only brokers with more than IMBALANCE_PERCENT misplaced leaderships, as the one that leads or
    the one that should, are touched; pinned partitions never.
    """
    led: Counter[NodeId] = Counter()
    preferred: Counter[NodeId] = Counter()
    led_for_others: Counter[NodeId] = Counter()
    led_by_others: Counter[NodeId] = Counter()
    for partition in draft.partitions():
        if partition.leader == NO_NODE:
            continue
        first = partition.replicas[0]
        led[partition.leader] += 1
        preferred[first] += 1
        if first != partition.leader:
            led_for_others[partition.leader] += 1
            led_by_others[first] += 1
    moves = 0
    for partition in _misplaced(draft):
        first = partition.replicas[0]
        if not (
            _over(led_for_others[partition.leader], led[partition.leader])
            or _over(led_by_others[first], preferred[first])
        ):
            continue
        draft.change(partition, Change(leader=first))
        moves += 1
        if moves == BALANCE_MOVES:
            break
    return moves


def _over(misplaced: int, total: int) -> bool:
    return misplaced * 100 > total * IMBALANCE_PERCENT


def _misplaced(draft: Draft) -> Iterator[PartitionRegistration]:
    """Partitions that the preferred replica could lead but does not."""
    for partition in draft.partitions():
        first = partition.replicas[0]
        if (
            partition.leader not in (NO_NODE, first)
            and not partition.pinned
            and first in partition.isr
            and first not in partition.marks
            and draft.electable(first)
            and not draft.degraded(first)
        ):
            yield partition


# --- ELECT_LEADER ----------------------------------------------------------------------------


def elect_leader(request: ElectLeader, context: Context) -> Outcome:
    """Move leadership to a named or the preferred replica; with ``unclean``, bring back a
    partition whose complete replicas are all gone.

    Raises UnknownTopicOrPartition, NotAReplica, ElectionNotNeeded, PreferredLeaderNotAvailable,
    EligibleLeadersNotAvailable.
    """
    partition = context.image.partition(request.topic, request.partition)
    draft = Draft(context.image)
    place = f"{request.topic}/{request.partition}"
    if request.node != NO_NODE and request.node not in partition.replicas:
        raise NotAReplica(f"{place}: node {request.node} is not a replica of {partition.replicas}")
    if request.unclean:
        elected = _elect_uncleanly(draft, partition, request.node, place)
    else:
        node = partition.replicas[0] if request.node == NO_NODE else request.node
        if partition.leader == node:
            raise ElectionNotNeeded(f"{place}: node {node} leads already")
        require_electable(draft, partition, node, place)
        pinned = True if request.pin else None
        elected = draft.change(partition, Change(leader=node, pinned=pinned))
    return leadership_outcome(draft, elected)


def leadership_outcome(draft: Draft, partition: PartitionRegistration) -> Outcome:
    """The outcome of a request that names who shall lead ``partition``."""
    return Outcome(
        tuple(draft.records),
        lambda at: RoleSet(partition.leader, partition.leader_epoch, at.offset, at.term),
    )


def require_electable(
    draft: Draft, partition: PartitionRegistration, node: NodeId, place: str
) -> None:
    """Raise PreferredLeaderNotAvailable unless ``node`` may be elected cleanly right now, and would
    keep the leadership: one with a degraded disk hands it over to a healthy member at its next
    heartbeat."""
    if node in partition.damaged:
        reason = "replica is damaged, and not repaired yet"
    elif node not in partition.isr:
        reason = f"replica is not in sync (in-sync replicas {list(partition.isr)})"
    elif not draft.electable(node):
        reason = "broker is fenced or shutting down"
    elif node in partition.marks:
        reason = "replica has a follower mark; set its role to leader or auto"
    elif draft.degraded(node) and (healthy := _healthy(draft, partition)) is not None:
        reason = f"its disk is full or slow, and that of node {healthy} is not"
    else:
        return
    raise PreferredLeaderNotAvailable(f"{place}: node {node}: {reason}")


def _healthy(draft: Draft, partition: PartitionRegistration) -> NodeId | None:
    """Who would lead in place of a degraded broker, and is none itself."""
    members = (node for node in partition.isr if node not in partition.marks)
    return next((n for n in members if draft.electable(n) and not draft.degraded(n)), None)


def _elect_uncleanly(
    draft: Draft, partition: PartitionRegistration, node: NodeId, place: str
) -> PartitionRegistration:
    if partition.leader != NO_NODE:
        raise ElectionNotNeeded(f"{place}: node {partition.leader} leads; nothing to recover")
    complete = [n for n in (*partition.isr, *partition.elr) if draft.active(n)]
    if complete:
        raise ElectionNotNeeded(
            f"{place}: node {complete[0]} is alive and complete; clear its mark or fence instead"
        )
    if node == NO_NODE:
        node = _most_promising(draft, partition)
    if node == NO_NODE or not draft.electable(node):
        raise EligibleLeadersNotAvailable(f"{place}: no live replica to elect")
    elected = elect_unclean(partition, node)
    remembered = (*elected.given_up, elected.leader_epoch)[-_GIVEN_UP_KEPT:]
    elected = replace(elected, given_up=remembered)
    draft.put(elected)
    return elected


def _most_promising(draft: Draft, partition: PartitionRegistration) -> NodeId:
    """Who has most, as far as is known here: a damaged one may have lost a range or all it had, and
    one with an empty disk has registered since the others did."""

    def rank(node: NodeId) -> tuple[bool, bool, int]:
        broker = draft.broker(node)
        epoch = 0 if broker is None else int(broker.broker_epoch)
        return node in partition.damaged, node not in partition.lkelr, epoch

    pool = [node for node in partition.replicas if draft.electable(node)]
    return min(pool, key=rank, default=NO_NODE)
