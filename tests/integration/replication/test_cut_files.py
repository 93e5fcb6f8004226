"""Somebody cuts a log file that a running node writes to: what was in it is damage, and comes from
another replica (storage/DESIGN 4.11)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline_node.replication.partition import Partition
from tests.integration.replication.cluster import (
    TestCluster,
    TestNode,
    batch,
    produce,
    running_cluster,
)
from tests.integration.replication.test_damage import written
from tests.integration.replication.test_replication import settled, values

COUNT = 12


def cut(node: TestNode, *, to: int) -> None:
    """Cut the file that is written to inside the batch at offset ``to``."""
    log = node.partition("t").log
    found = log.locate(to, 1, log.log_end_offset)
    assert found is not None
    assert found.file.path == log.segments[-1].path()
    os.truncate(node.root / found.file.path, found.position + 30)


def chosen(cluster: TestCluster, leader: Partition, role: str) -> TestNode:
    is_leader = role == "leader"
    return next(n for n in cluster.nodes.values() if (n.node_id == leader.leader) == is_leader)


async def is_whole(cluster: TestCluster, expected: list[bytes]) -> None:
    """Every replica is in sync, and has what was acknowledged, once."""
    # What is found a moment before the controller is told of it.
    await cluster.wait(
        lambda: not any(node.partition("t").log.is_damaged for node in cluster.nodes.values())
    )
    await cluster.wait(lambda: len(cluster.registration("t").isr) == 3)
    await cluster.wait(lambda: not cluster.registration("t").damaged)
    await settled(cluster, "t")
    for node in cluster.nodes.values():
        assert not node.failures
        assert not node.partition("t").log.is_damaged
        assert values(node.partition("t"), from_follower=True) == expected


async def write_more(cluster: TestCluster, count: int) -> list[bytes]:
    more = [b"more %d" % number for number in range(count)]
    for value in more:
        await cluster.wait(lambda: cluster.leader("t") is not None)
        leader = cluster.leader("t")
        assert leader is not None
        await produce(leader, batch(value))
    return more


@pytest.mark.parametrize("role", ["leader", "follower"])
@pytest.mark.parametrize("more", [0, 4])
@pytest.mark.parametrize("to", [0, pytest.param(5, marks=pytest.mark.slow), COUNT - 1])
@pytest.mark.parametrize("how", ["scrub", "kill", pytest.param("stop", marks=pytest.mark.slow)])
async def test_the_active_file_is_cut(
    how: str, to: int, more: int, role: str, tmp_path: Path
) -> None:
    async with running_cluster(tmp_path) as cluster:
        leader = await written(cluster, COUNT)
        expected = [b"value %d" % number for number in range(COUNT)]
        node = chosen(cluster, leader, role)
        cut(node, to=to)
        expected += await write_more(cluster, more)
        if how == "scrub":
            await node.manager.repairs.scrub_round()
        else:
            await (cluster.kill if how == "kill" else cluster.stop)(node.node_id)
            node = await cluster.start(node.node_id, clean=how == "stop")
            # What was written behind leaves zeros in between. A start after a clean stop does not
            # read them: whoever reads does, or the next scrub.
            await node.manager.repairs.scrub_round()
        await is_whole(cluster, expected)
        expected += await write_more(cluster, 1)
        await is_whole(cluster, expected)


@pytest.mark.parametrize("first", ["cut", "others"])
@pytest.mark.parametrize("role", ["leader", "follower"])
@pytest.mark.parametrize("to", [0, COUNT - 1])
async def test_the_active_file_is_cut_and_all_are_killed(
    to: int, role: str, first: str, tmp_path: Path
) -> None:
    async with running_cluster(tmp_path) as cluster:
        leader = await written(cluster, COUNT)
        expected = [b"value %d" % number for number in range(COUNT)]
        node = chosen(cluster, leader, role)
        cut(node, to=to)
        expected += await write_more(cluster, 4)
        numbers = sorted(cluster.nodes, key=lambda n: (n == node.node_id) == (first != "cut"))
        for number in numbers:
            await cluster.kill(number)
        for number in numbers:
            await cluster.start(number)
        await is_whole(cluster, expected)
