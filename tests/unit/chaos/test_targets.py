from __future__ import annotations

import random

import pytest

from paceline_cluster.chaos.targets import NoTarget, PartitionView, Picture, parse_target

PICTURE = Picture(
    nodes=(0, 1, 2, 3, 4),
    controller=4,
    partitions={
        "orders/0": PartitionView(1, (1, 2, 3)),
        "orders/1": PartitionView(2, (2, 3, 4)),
        "other/0": PartitionView(None, (0, 1)),
    },
    is_healthy=True,
)


@pytest.mark.parametrize(
    ("text", "allowed", "count"),
    [
        ("node 3", {3}, 1),
        ("controller", {4}, 1),
        ("the  controller", {4}, 1),
        ("leader of orders/1", {2}, 1),
        ("leader of orders/*", {1, 2}, 1),
        ("a follower of orders/0", {2, 3}, 1),
        ("any", {0, 1, 2, 3, 4}, 1),
        ("a minority", {0, 1, 2, 3, 4}, 2),
        ("a majority", {0, 1, 2, 3, 4}, 3),
        ("all", {0, 1, 2, 3, 4}, 5),
    ],
)
def test_roles_become_nodes(text: str, allowed: set[int], count: int) -> None:
    for seed in range(20):
        nodes = parse_target(text).nodes(PICTURE, random.Random(seed))
        assert len(nodes) == count
        assert nodes == sorted(set(nodes))
        assert set(nodes) <= allowed


@pytest.mark.parametrize("text", ["node 9", "leader of other/0", "follower of absent/*"])
def test_nobody_has_the_role(text: str) -> None:
    with pytest.raises(NoTarget):
        parse_target(text).nodes(PICTURE, random.Random(0))


@pytest.mark.parametrize("text", ["", "leader", "leader of orders", "node x", "everybody"])
def test_what_is_no_target_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="is no target; expected 'node 2'"):
        parse_target(text)
