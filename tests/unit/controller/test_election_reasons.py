"""Each way to a new leader has its reason; what elects nobody has none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paceline.types import NO_NODE, NodeId
from paceline.wire.native.admin import ElectLeader, ReassignPartition
from paceline_node.controller.election_reasons import ElectionReason, election_reason
from tests.unit.controller.bench import Bench

Step = Callable[[Bench], object]


def three() -> Bench:
    bench = Bench()
    bench.start(0, 1, 2)
    bench.create()
    assert bench.partition().leader == 0
    return bench


def reason_of(bench: Bench, step: Step) -> ElectionReason | None:
    before = bench.partition()
    step(bench)
    return election_reason(before, bench.partition(), bench.image)


def elect(node: int, *, unclean: bool = False) -> Step:
    return lambda bench: bench.ask(ElectLeader("orders", 0, NodeId(node), unclean=unclean))


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda bench: bench.fence(0), ElectionReason.FENCED),
        (lambda bench: bench.heartbeat(0, want_shutdown=True), ElectionReason.SHUTDOWN),
        (lambda bench: bench.heartbeat(0, degraded=True), ElectionReason.DEGRADED),
        (elect(2), ElectionReason.REQUESTED),
        (lambda bench: bench.fence(1), None),
        (lambda bench: bench.propose((0, 1)), None),
    ],
)
def test_from_a_leader_that_works(step: Step, expected: ElectionReason | None) -> None:
    assert reason_of(three(), step) is expected


def test_back_to_the_preferred_replica() -> None:
    bench = three()
    elect(1)(bench)
    assert reason_of(bench, elect(NO_NODE)) is ElectionReason.PREFERRED


def test_the_same_leader_in_a_new_epoch() -> None:
    bench = three()
    keep = (NodeId(0), NodeId(1))
    reason = reason_of(bench, lambda bench: bench.ask(ReassignPartition("orders", 0, keep)))
    assert bench.partition().replicas == keep
    assert reason is ElectionReason.RENEWED


def test_losing_the_last_one_elects_nobody_and_its_return_elects_it() -> None:
    bench = three()
    bench.fence(1)
    bench.fence(2)
    assert reason_of(bench, lambda bench: bench.fence(0)) is None
    assert bench.partition().leader == NO_NODE
    complete = [*bench.partition().isr, *bench.partition().elr][0]
    assert reason_of(bench, lambda bench: bench.start(complete)) is ElectionReason.LEADERLESS


def test_unclean_until_somebody_complete_leads_again() -> None:
    bench = three()
    for node in (1, 2, 0):
        bench.fence(node)
    for node in range(3):
        if node not in (*bench.partition().isr, *bench.partition().elr):
            bench.start(node)
            survivor = node
            break
    assert reason_of(bench, elect(survivor, unclean=True)) is ElectionReason.UNCLEAN
    # The partition keeps its mark of an unclean recovery; going on is no further such election.
    bench.fence(survivor)
    assert reason_of(bench, lambda bench: bench.start(survivor)) is ElectionReason.LEADERLESS
