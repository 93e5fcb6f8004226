"""Targets by number and by role."""

import pytest

from paceline.types import NodeId, TopicPartition
from paceline_cluster.cli.targets import (
    ControllerNode,
    LeaderOf,
    NodeNumber,
    Target,
    parse_partition,
    parse_target,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", NodeNumber(NodeId(0))),
        ("12", NodeNumber(NodeId(12))),
        ("controller", ControllerNode()),
        ("leader-of:orders/2", LeaderOf(TopicPartition("orders", 2))),
    ],
)
def test_targets(text: str, expected: Target) -> None:
    assert parse_target(text) == expected


@pytest.mark.parametrize("text", ["", "-1", "leader", "Controller", "1.0", "٣"])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(ValueError, match="is no node"):
        parse_target(text)


@pytest.mark.parametrize("text", ["leader-of:orders", "leader-of:orders/x", "leader-of:/1"])
def test_leader_of_needs_a_partition(text: str) -> None:
    with pytest.raises(ValueError, match="is no TOPIC/PARTITION"):
        parse_target(text)


def test_partitions() -> None:
    assert parse_partition("a.b-c/0") == TopicPartition("a.b-c", 0)
