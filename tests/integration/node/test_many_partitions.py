"""A topic of more partitions than a node looks at without a pause, through all that befalls one:
what is done for them in turns is done for each of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from paceline.types import NO_NODE, NodeId
from paceline_node.controller.metadata_records import PartitionRegistration
from paceline_node.loop_turns import AT_A_TIME
from paceline_node.replication.partition import Partition
from tests.integration.node.machines import connect
from tests.integration.node.nodes import Cluster, cluster

pytestmark = pytest.mark.virtual_time

COUNT = 2 * AT_A_TIME
"""With two replicas on three nodes: more than AT_A_TIME on each."""


def hosted(nodes: Cluster, number: int) -> list[Partition]:
    table = nodes.process(number).broker.replicas.table
    return [partition for partition in table.partitions if partition.topic == "wide"]


def registered(nodes: Cluster, number: int) -> list[PartitionRegistration]:
    topic = nodes.process(number).broker.metadata.image_store.image.find_topic("wide")
    return [] if topic is None else list(topic.partitions.values())


async def come_true(what: Callable[[], bool]) -> None:
    with trio.fail_after(120):
        while not what():  # noqa: ASYNC110  many places change
            await trio.sleep(0.05)


@pytest.mark.slow
async def test_all_of_them_are_made_configured_led_and_deleted(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes, connect(nodes.bootstrap_native) as client:
        every = range(3)
        await client.admin.create_topic("wide", partitions=COUNT, replication_factor=2)

        def whole() -> bool:
            return (
                sum(len(hosted(nodes, number)) for number in every) == 2 * COUNT
                and all(len(each.isr) == 2 for each in registered(nodes, 0))
                and all(each.leader != NO_NODE for each in registered(nodes, 0))
            )

        await come_true(whole)
        assert len(hosted(nodes, 2)) > AT_A_TIME

        await client.admin.alter_topic("wide", {"retention.ms": "86400000"})
        await client.admin.alter_topic("wide", {"min.insync.replicas": "1"})
        await come_true(
            lambda: all(
                each.config.retention_ms == 86_400_000 and each.log.settings.retention_ms
                for number in every
                for each in hosted(nodes, number)
            )
        )
        await come_true(lambda: {each.min_isr for each in registered(nodes, 1)} == {1})

        await nodes.crash(2)
        await come_true(
            lambda: all(
                each.leader in (0, 1) and NodeId(2) not in each.isr for each in registered(nodes, 0)
            )
        )
        await nodes.start(2)
        await come_true(whole)

        await client.admin.delete_topic("wide")
        await come_true(lambda: not any(hosted(nodes, number) for number in every))
        await come_true(
            lambda: (
                not any(
                    name.startswith("wide-")
                    for number in every
                    for name in nodes.process(number).broker.replicas.table._directory._disk.list(
                        "topics"
                    )
                )
            )
        )
