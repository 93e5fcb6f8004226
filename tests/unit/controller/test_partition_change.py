"""The partition change function against its rules, in every small state (controller/DESIGN 4)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest

from paceline.types import NO_NODE, LeaderEpoch, NodeId, PartitionEpoch, TopicId
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.controller.partition_change import (
    Change,
    candidate,
    change_partition,
    elect_unclean,
)
from tests.unit.controller.invariants import check_shape, check_step

Nodes = tuple[int, ...]


@dataclass(frozen=True)
class Brokers:
    """An electorate by enumeration."""

    up: frozenset[int]
    slow: frozenset[int] = field(default_factory=frozenset)

    def electable(self, node: NodeId) -> bool:
        return node in self.up

    def degraded(self, node: NodeId) -> bool:
        return node in self.slow


def subsets(nodes: Nodes) -> list[Nodes]:
    return [
        chosen for size in range(len(nodes) + 1) for chosen in itertools.combinations(nodes, size)
    ]


def partition(
    replicas: Nodes = (0, 1, 2),
    isr: Nodes = (0, 1, 2),
    *,
    leader: int = NO_NODE,
    elr: Nodes = (),
    lkelr: Nodes = (),
    min_isr: int = 2,
    marks: Nodes = (),
) -> PartitionRegistration:
    def nodes(numbers: Nodes) -> tuple[NodeId, ...]:
        return tuple(NodeId(number) for number in numbers)

    return PartitionRegistration(
        topic_id=TopicId(UUID(int=9)),
        partition=0,
        replicas=nodes(replicas),
        isr=nodes(isr),
        elr=nodes(elr),
        lkelr=nodes(lkelr),
        leader=NodeId(leader),
        leader_epoch=LeaderEpoch(5),
        partition_epoch=PartitionEpoch(11),
        min_isr=min_isr,
        slots=len(replicas),
        marks=nodes(marks),
    )


def states(replicas: Nodes) -> Iterator[PartitionRegistration]:
    """Every valid registration without marks: each replica in sync, eligible, last known or out,
    the leader in sync or none."""
    for places in itertools.product("iel-", repeat=len(replicas)):
        members = {
            place: tuple(n for n, p in zip(replicas, places, strict=True) if p == place)
            for place in "iel"
        }
        for min_isr in range(1, len(replicas) + 1):
            if len(members["i"]) >= min_isr and (members["e"] or members["l"]):
                continue
            for leader in (NO_NODE, *members["i"]):
                yield partition(
                    replicas,
                    members["i"],
                    elr=members["e"],
                    lkelr=members["l"],
                    leader=leader,
                    min_isr=min_isr,
                )


def as_specified(
    p: PartitionRegistration, isr: Nodes, untrusted: Nodes, min_isr: int, active: frozenset[int]
) -> tuple[int, Nodes, Nodes, Nodes]:
    """The text of 5.5, word for word: leader, isr, elr, lkelr."""
    new_isr = [r for r in p.replicas if r in isr]
    cand = set(p.elr) | set(p.isr)
    if len(new_isr) >= min_isr:
        elr: list[int] = []
        lkelr: list[int] = []
    else:
        elr = [r for r in p.replicas if r in cand and r not in new_isr and r not in untrusted]
        lkelr = [
            r
            for r in p.replicas
            if (r in cand or r in p.lkelr) and r not in new_isr and r not in elr
        ]
    leader = int(p.leader)
    if leader not in new_isr:
        electable = [r for r in new_isr if r in active]
        eligible = [r for r in elr if r in active]
        if electable:
            leader = electable[0]
        elif not new_isr and eligible:
            leader = eligible[0]
            new_isr = [NodeId(leader)]
            elr.remove(leader)
            if len(new_isr) >= min_isr:
                elr, lkelr = [], []
        else:
            leader = NO_NODE
    return leader, tuple(new_isr), tuple(elr), tuple(lkelr)


@pytest.mark.parametrize("replicas", [(0,), (1, 0), (2, 0, 1)])
def test_every_small_state(replicas: Nodes) -> None:
    changed = elected_from_elr = leaderless = 0
    every_isr = subsets(replicas)
    untrusted_sets: list[Nodes] = [(), *((node,) for node in replicas), replicas]
    electorates = [Brokers(frozenset(up)) for up in subsets(replicas)]
    for old in states(replicas):
        # No caller changes min_isr and trust at once, so each varies with the other as it is.
        judgements: list[tuple[int, Nodes]] = [
            (min_isr, ()) for min_isr in range(1, len(replicas) + 1)
        ]
        judgements += [(old.min_isr, nodes) for nodes in untrusted_sets[1:]]
        for isr, (min_isr, untrusted), brokers in itertools.product(
            every_isr, judgements, electorates
        ):
            change = Change(
                isr=[NodeId(n) for n in isr],
                untrusted=frozenset(NodeId(n) for n in untrusted),
                min_isr=min_isr,
            )
            new = change_partition(old, brokers, change)
            leader, *members = as_specified(old, isr, untrusted, min_isr, brokers.up)
            result = old if new is None else new
            assert (result.leader, result.isr, result.elr, result.lkelr) == (leader, *members)
            assert result.min_isr == min_isr
            check_shape(result)
            # Nobody becomes eligible who was not complete before or proposed by the leader.
            complete = {*old.isr, *old.elr, *isr}
            assert complete.issuperset({*result.isr, *result.elr})
            assert not set(result.elr) & set(untrusted)
            if new is not None:
                changed += 1
                check_step(old, new)
                elected_from_elr += new.leader in old.elr and new.leader not in isr
                leaderless += old.leader != NO_NODE and new.leader == NO_NODE
                assert (new.leader_epoch > old.leader_epoch) == (new.leader != old.leader)
    assert changed > 10
    assert elected_from_elr
    assert leaderless


@pytest.mark.parametrize("replicas", [(0,), (1, 0), (2, 0, 1)])
def test_every_small_state_with_marks(replicas: Nodes) -> None:
    """A marked replica keeps its place in the ISR and is never elected."""
    moved = 0
    for old in states(replicas):
        for isr, marks, up in itertools.product(subsets(replicas), subsets(replicas), (replicas,)):
            brokers = Brokers(frozenset(up))
            change = Change(isr=[NodeId(n) for n in isr], marks=[NodeId(n) for n in marks])
            new = change_partition(old, brokers, change) or old
            check_shape(new)
            assert set(new.marks) == set(marks)
            if isr:
                assert set(new.isr) == set(isr)
            free = [n for n in new.replicas if n in new.isr and n not in marks]
            assert (new.leader == NO_NODE) == (not free)
            if old.leader in free:
                assert new.leader == old.leader
            moved += NO_NODE not in (old.leader, new.leader) and new.leader != old.leader
    assert moved or len(replicas) == 1


def test_no_record_when_nothing_changes() -> None:
    old = partition(leader=0)
    up = Brokers(frozenset((0, 1, 2)))
    assert change_partition(old, up, Change()) is None
    assert change_partition(old, up, Change(isr=old.isr, min_isr=2, marks=(), pinned=False)) is None


def test_bump_raises_the_partition_epoch_alone() -> None:
    old = partition(leader=0)
    new = change_partition(old, Brokers(frozenset((0, 1, 2))), Change(bump=True))
    assert new == replace(old, partition_epoch=PartitionEpoch(12))


def test_forced_leader_raises_the_leader_epoch_even_when_it_leads() -> None:
    up = Brokers(frozenset((0, 1, 2)))
    moved = change_partition(partition(leader=0), up, Change(leader=NodeId(2)))
    assert moved is not None
    assert (moved.leader, moved.leader_epoch) == (2, 6)
    again = change_partition(partition(leader=0), up, Change(leader=NodeId(0)))
    assert again is not None
    assert (again.leader, again.leader_epoch) == (0, 6)


@pytest.mark.parametrize("leader", [2, 1], ids=["outside the ISR", "not electable"])
def test_forcing_a_leader_that_may_not_lead_is_a_bug(leader: int) -> None:
    old = partition(isr=(0, 1), leader=0)
    with pytest.raises(AssertionError):
        change_partition(old, Brokers(frozenset((0, 2))), Change(leader=NodeId(leader)))


def test_healthy_members_come_before_degraded_ones() -> None:
    old = partition(leader=0)
    brokers = Brokers(frozenset((0, 1, 2)), slow=frozenset((1,)))
    new = change_partition(old, brokers, Change(isr=(NodeId(1), NodeId(2))))
    assert new is not None
    assert new.leader == 2
    only = change_partition(old, brokers, Change(isr=(NodeId(1),)))
    assert only is not None
    assert only.leader == 1


def test_candidate_is_the_next_leader() -> None:
    up = Brokers(frozenset((0, 1, 2)))
    assert candidate(partition(leader=0), up) == 1
    assert candidate(partition(leader=0, marks=(1,)), up) == 2
    assert candidate(partition(isr=(0,), leader=0, min_isr=1), up) is None


def test_resigning_leader_hands_over_or_leaves_nobody() -> None:
    others = Brokers(frozenset((1, 2)))
    new = change_partition(partition(leader=0), others, Change(resign=True))
    assert new is not None
    assert (new.leader, new.isr) == (1, (0, 1, 2))
    alone = partition(isr=(0,), leader=0, min_isr=1)
    new = change_partition(alone, Brokers(frozenset()), Change(resign=True))
    assert new is not None
    assert (new.leader, new.isr, new.leader_epoch) == (NO_NODE, (0,), 6)


def test_removing_a_replica_raises_the_leader_epoch() -> None:
    old = partition(leader=0)
    up = Brokers(frozenset((0, 1, 2)))
    new = change_partition(old, up, Change(replicas=(NodeId(0), NodeId(1))))
    assert new is not None
    assert (new.replicas, new.isr, new.leader, new.leader_epoch) == ((0, 1), (0, 1), 0, 6)


def test_removing_the_leader_elects_another() -> None:
    up = Brokers(frozenset((0, 1, 2)))
    new = change_partition(partition(leader=0), up, Change(replicas=(NodeId(2), NodeId(1))))
    assert new is not None
    assert (new.leader, new.isr, new.leader_epoch) == (2, (2, 1), 6)


def test_unclean_election_starts_over() -> None:
    old = partition(isr=(), elr=(1,), lkelr=(0, 2), marks=(2, 1))
    new = elect_unclean(old, NodeId(2))
    check_shape(replace(new, min_isr=1))
    assert (new.leader, new.isr, new.elr, new.lkelr) == (2, (2,), (), ())
    assert (new.leader_epoch, new.partition_epoch, new.recovery) == (6, 12, 1)
    assert new.marks == (1,)


def test_recovery_ends_when_enough_replicas_are_in_sync() -> None:
    started_over = elect_unclean(partition(isr=(), lkelr=(0, 1)), NodeId(0))
    up = Brokers(frozenset((0, 1, 2)))
    bumped = change_partition(started_over, up, Change(bump=True))
    assert bumped is not None
    assert bumped.recovery == 1
    grown = change_partition(started_over, up, Change(isr=(NodeId(0), NodeId(1))))
    assert grown is not None
    assert grown.recovery == 0
