"""No node is given more partitions than it says it may hold."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from paceline.errors import PolicyViolation
from paceline.types import NodeId
from paceline.wire.native.admin import AddPartitions, CreateTopic, ReassignPartition
from paceline.wire.peer.control import CreateSegmentRequest
from tests.unit.controller.bench import Bench


def cluster(*most: int) -> Bench:
    """Nodes 0, 1 ... that may hold so many partitions."""
    bench = Bench()
    for node, number in enumerate(most):
        bench.start(node)
        broker = bench.image.brokers[NodeId(node)]
        brokers = {**bench.image.brokers, NodeId(node): replace(broker, most_partitions=number)}
        bench.image = replace(bench.image, brokers=brokers)
    return bench


def test_a_registration_says_how_many() -> None:
    bench = Bench()
    bench.ask(replace(bench.registration(0), most_partitions=123))
    assert bench.image.brokers[NodeId(0)].most_partitions == 123
    assert type(bench.image).from_snapshot(bench.image.to_snapshot()) == bench.image


def test_a_topic_that_is_too_large_is_refused_with_the_counts() -> None:
    bench = cluster(10, 10, 10)
    bench.ask(CreateTopic("a", 8, 3))
    before = bench.image
    with pytest.raises(PolicyViolation, match="node 0 holds 8 partitions, 3 more are too many"):
        bench.ask(CreateTopic("b", 3, 3))
    with pytest.raises(PolicyViolation, match=r"may hold 10 \(limits.partitions\)"):
        bench.ask(AddPartitions("a", 11))
    assert bench.image is before
    bench.ask(CreateTopic("b", 2, 3))


def test_an_assignment_a_segment_and_a_move_count_too() -> None:
    bench = cluster(2, 2, 2, 0)
    with pytest.raises(PolicyViolation, match="node 1"):
        bench.ask(CreateTopic("a", -1, -1, assignment=((NodeId(1),),) * 3))
    bench.ask(CreateTopic("a", -1, -1, assignment=((NodeId(1),), (NodeId(1),), (NodeId(0),))))
    with pytest.raises(PolicyViolation, match="a/2: node 1 holds 2 partitions, 1 more"):
        bench.ask(ReassignPartition("a", 2, (NodeId(1),)))
    bench.ask(ReassignPartition("a", 1, (NodeId(2),)))
    bench.ask(ReassignPartition("a", 0, (NodeId(3),)))
    assert bench.image.brokers[NodeId(3)].most_partitions == 0, "one that did not say"
    full = cluster(1)
    full.ask(CreateSegmentRequest("s", 0, "scope/s", UUID(int=1)))
    with pytest.raises(PolicyViolation, match="s: node 0 holds 1"):
        full.ask(CreateSegmentRequest("s", 1, "scope/s", UUID(int=2)))
