"""The partition change function: the only way a partition's registration changes
(DESIGN 4).

Everything that may move an ISR, a leader or an epoch (fencing, proposals, elections, role
commands, configuration, reassignment) says what it wants as a :class:`Change` and gets the next
:class:`PartitionRegistration` record, or None when nothing changes. Two invariants live here:

* an ISR that falls below ``min_isr`` leaves its complete members in the ELR, and only an ISR of at
  least ``min_isr`` empties it (I5, I12);
* a leader change raises both epochs, any change raises the partition epoch by one (I9);
* a damaged replica is in neither ISR nor ELR as long as anybody else is.

Rules that callers keep: only a leader's proposal may grow the ISR; a fenced broker leaves every
ISR, even as its last member.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from paceline.types import NO_NODE, LeaderEpoch, NodeId, PartitionEpoch
from paceline.values import dataclass
from paceline_node.controller.metadata_records import PartitionRegistration, UnconfirmedTerm

RECOVERY_CLEAN = 0
RECOVERY_UNCLEAN = 1
RECOVERY_DAMAGED = 2
RECOVERY_UNCONFIRMED = 3
"""The leader was complete before nobody was left in sync. Nothing has been committed since: whoever
has a longer log may take its place."""
_UNCONFIRMED_KEPT = 16
"""Terms a partition remembers. One that is forgotten counts as any other when logs are compared."""


class Electorate(Protocol):
    """What an election must know of the brokers."""

    def electable(self, node: NodeId) -> bool:
        """Whether ``node`` may be elected: unfenced, not shutting down, not held by an operator.
        (A broker that is just being unfenced counts.)"""

    def degraded(self, node: NodeId) -> bool:
        """Whether ``node`` has a slow or full disk: elected only when nobody else can be."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a caller wants of a partition; None leaves a value as it is.

    ``untrusted`` members lose their place in the ELR. They go to the LKELR, but for those that are
    ``emptied``: these hold nothing any more. ``leader`` is elected by force and must be electable
    and in the new ISR. ``passed_over`` is not elected this time, electable or not. ``damaged`` are
    the replicas that are so from now on. ``bump`` raises the partition epoch even if nothing else
    changes (a refused proposal). ``resign`` makes the present leader step down even if nobody
    can take over. ``replicas`` with ``adding`` and ``removing`` are those of a reassignment.
    """

    isr: Sequence[NodeId] | None = None
    untrusted: frozenset[NodeId] = frozenset()
    emptied: frozenset[NodeId] = frozenset()
    min_isr: int | None = None
    leader: NodeId | None = None
    passed_over: NodeId | None = None
    bump: bool = False
    resign: bool = False
    marks: Sequence[NodeId] | None = None
    pinned: bool | None = None
    replicas: tuple[NodeId, ...] | None = None
    adding: tuple[NodeId, ...] | None = None
    removing: tuple[NodeId, ...] | None = None
    slots: int | None = None
    recovery: int | None = None
    damaged: Sequence[NodeId] | None = None


@dataclass(frozen=True, slots=True)
class _Membership:
    leader: NodeId
    isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...]
    lkelr: tuple[NodeId, ...]
    from_elr: bool = False
    """The leader was elected out of the ELR."""

    def led_by(self, leader: NodeId) -> _Membership:
        return _Membership(leader, self.isr, self.elr, self.lkelr, self.from_elr)


def change_partition(
    partition: PartitionRegistration, electorate: Electorate, change: Change
) -> PartitionRegistration | None:
    """The next registration of ``partition``, or None when ``change`` changes nothing."""
    replicas = partition.replicas if change.replicas is None else change.replicas
    min_isr = partition.min_isr if change.min_isr is None else change.min_isr
    wanted_marks = partition.marks if change.marks is None else change.marks
    marks = tuple(node for node in replicas if node in wanted_marks)
    wanted_damaged = partition.damaged if change.damaged is None else change.damaged
    damaged = tuple(node for node in replicas if node in wanted_damaged)
    members = _membership(partition, change, replicas, min_isr, damaged)
    barred = marks if change.passed_over is None else (*marks, change.passed_over)
    members = _elected(members, electorate, min_isr, barred, resign=change.resign)
    if change.leader is not None:
        assert change.leader in members.isr, f"{change.leader} elected from outside the ISR"
        assert electorate.electable(change.leader), f"{change.leader} elected while not active"
        members = members.led_by(change.leader)
    values = {
        "replicas": replicas,
        "isr": members.isr,
        "elr": members.elr,
        "lkelr": members.lkelr,
        "leader": members.leader,
        "min_isr": min_isr,
        "slots": partition.slots if change.slots is None else change.slots,
        "adding": partition.adding if change.adding is None else change.adding,
        "removing": partition.removing if change.removing is None else change.removing,
        "marks": marks,
        "pinned": partition.pinned if change.pinned is None else change.pinned,
        "recovery": _recovery(partition, change, members, is_complete=len(members.isr) >= min_isr),
        "damaged": damaged,
    }
    forced = change.leader is not None
    if not (change.bump or forced) and all(
        getattr(partition, name) == value for name, value in values.items()
    ):
        return None
    removed = any(node not in replicas for node in partition.replicas)
    new_term = members.leader != partition.leader or forced or removed
    return _next(partition, values, new_term=new_term)


def _recovery(
    partition: PartitionRegistration, change: Change, members: _Membership, *, is_complete: bool
) -> int:
    if change.recovery is not None:
        return change.recovery
    if is_complete:
        return RECOVERY_CLEAN
    if members.from_elr and partition.recovery == RECOVERY_CLEAN:
        return RECOVERY_UNCONFIRMED
    return partition.recovery


def elect_unclean(partition: PartitionRegistration, leader: NodeId) -> PartitionRegistration:
    """``leader`` starts over with what it has; records that only others held are lost (DESIGN 5.4).

    The caller has the operator's word for it, or the partition has a single replica.
    """
    assert leader in partition.replicas, f"{leader} is no replica"
    values = {
        "isr": (leader,),
        "elr": (),
        "lkelr": (),
        "leader": leader,
        "marks": tuple(node for node in partition.marks if node != leader),
        "recovery": RECOVERY_UNCLEAN,
        "losses": partition.losses + 1,
    }
    return _next(partition, values, new_term=True)


def _next(
    partition: PartitionRegistration, values: dict[str, Any], *, new_term: bool
) -> PartitionRegistration:
    """The registration with these values, with its epochs raised. Made at once: of a broker that
    dies thousands change."""
    leader_epoch = LeaderEpoch(partition.leader_epoch + new_term)
    return replace(
        partition,
        **values,
        leader_epoch=leader_epoch,
        partition_epoch=PartitionEpoch(partition.partition_epoch + 1),
        unconfirmed=_unconfirmed(
            partition.unconfirmed,
            UnconfirmedTerm(leader_epoch, values["leader"]),
            values["recovery"],
            is_whole=len(values["isr"]) == len(values.get("replicas", partition.replicas)),
        ),
    )


def _unconfirmed(
    known: tuple[UnconfirmedTerm, ...], present: UnconfirmedTerm, recovery: int, *, is_whole: bool
) -> tuple[UnconfirmedTerm, ...]:
    """Remember the present term as long as it is not confirmed. What a confirmed leader wrote in
    terms of its own lies below what is committed now, so these count again; terms of others count
    for nothing until every replica is in sync (``is_whole``), and so holds none of their
    records."""
    terms = [term for term in known if term.leader_epoch != present.leader_epoch]
    if recovery == RECOVERY_UNCONFIRMED:
        if present.leader != NO_NODE:
            terms.append(present)
    elif is_whole:
        terms = []
    else:
        terms = [term for term in terms if term.leader != present.leader]
    return tuple(terms[-_UNCONFIRMED_KEPT:])


def _membership(
    partition: PartitionRegistration,
    change: Change,
    replicas: tuple[NodeId, ...],
    min_isr: int,
    damaged: tuple[NodeId, ...],
) -> _Membership:
    """ISR as asked for, and who else may still be complete. Damaged replicas count for nothing,
    unless they are all there is: then it is better that they go on than that nobody does."""
    wanted = partition.isr if change.isr is None else change.isr
    complete = {*partition.elr, *partition.isr}
    lost = change.untrusted
    if any(
        node in wanted or (node in complete and node not in lost)
        for node in replicas
        if node not in damaged
    ):
        lost = lost.union(damaged)
        wanted = [node for node in wanted if node not in damaged]
    isr = tuple(node for node in replicas if node in wanted)
    if len(isr) >= min_isr:
        return _Membership(partition.leader, isr, (), ())
    elr = tuple(
        node for node in replicas if node in complete and node not in isr and node not in lost
    )
    lkelr = tuple(
        node
        for node in replicas
        if (node in complete or node in partition.lkelr)
        and node not in isr
        and node not in elr
        and node not in change.emptied
    )
    return _Membership(partition.leader, isr, elr, lkelr)


def _elected(
    members: _Membership,
    electorate: Electorate,
    min_isr: int,
    barred: tuple[NodeId, ...],
    *,
    resign: bool,
) -> _Membership:
    """The same members with a leader that may lead: ISR first, then, if it is empty, the ELR."""
    if members.leader in members.isr and members.leader not in barred and not resign:
        return members
    chosen = _candidate(members.isr, electorate, barred)
    if chosen is not None:
        return members.led_by(chosen)
    if members.isr:
        return members.led_by(NO_NODE)
    chosen = _candidate(members.elr, electorate, barred)
    if chosen is None:
        return members.led_by(NO_NODE)
    if min_isr <= 1:
        return _Membership(chosen, (chosen,), (), ())
    elr = tuple(node for node in members.elr if node != chosen)
    return _Membership(chosen, (chosen,), elr, members.lkelr, from_elr=True)


def _candidate(
    pool: tuple[NodeId, ...], electorate: Electorate, barred: tuple[NodeId, ...]
) -> NodeId | None:
    """First electable, unmarked member; replica order is preference, healthy before degraded."""
    candidates = [node for node in pool if node not in barred and electorate.electable(node)]
    healthy = [node for node in candidates if not electorate.degraded(node)]
    return next(iter(healthy or candidates), None)


def candidate(partition: PartitionRegistration, electorate: Electorate) -> NodeId | None:
    """The ISR member that would lead if the present leader did not count, or None."""
    others = tuple(node for node in partition.isr if node != partition.leader)
    return _candidate(others, electorate, partition.marks)
