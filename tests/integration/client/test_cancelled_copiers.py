"""A member of a group that copies in transactions, cancelled at each step of its life: joining,
reading, sending, committing, leaving. Another goes on; each record is copied once, in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.client import Client, GroupSettings, Position
from paceline.types import TopicPartition
from tests.integration.client.test_cancelled_transactions import cut
from tests.integration.node.machines import connect
from tests.integration.node.nodes import lone_node

pytestmark = pytest.mark.virtual_time

FLAGS = {
    "groups.initial_delay_ms": "1",
    "topics.replication_factor": "1",
    "topics.min_insync_replicas": "1",
}
MEMBERSHIP = GroupSettings(session_timeout_s=10, rebalance_timeout_s=10, auto_commit_s=None)
A_LIFE = 2
"""Records that one life copies if nothing comes in between."""
LIMIT = 5000


async def live(client: Client, count: int = A_LIFE) -> None:
    async with (
        client.transactional_producer("cut") as producer,
        client.consumer("in", group="copiers", membership=MEMBERSHIP) as consumer,
    ):
        for _ in range(count):
            record = await anext(consumer)
            async with producer.transaction():
                await producer.send("out", record.value, partition=0)
                offsets = {TopicPartition("in", 0): record.offset + 1}
                await producer.send_offsets(offsets, consumer.member)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("stride", [29, pytest.param(1, marks=pytest.mark.slow)])
async def test_each_record_is_copied_once(tmp_path: Path, stride: int) -> None:
    async with lone_node(tmp_path, FLAGS) as node, connect(node.native) as client:
        for topic in ("in", "out"):
            await client.admin.create_topic(topic, partitions=1, replication_factor=1)
        written: list[bytes] = []
        for number in range(1, LIMIT, stride):
            fresh = [b"%d/%d" % (number, each) for each in range(A_LIFE)]
            async with client.producer() as producer:
                await producer.send_many("in", fresh)
            written += fresh
            if not await cut(lambda: live(client), number):
                break
        await copy_the_rest(client, len(written))
        copied = []
        async with client.consumer("out", stop=Position.LATEST) as consumer:
            async for record in consumer:
                copied.append(record.value)
        assert copied == written


async def copy_the_rest(client: Client, end: int) -> None:
    offsets = await client.admin.groups.offsets("copiers")
    done = offsets.get(TopicPartition("in", 0))
    await live(client, end - (0 if done is None else done.offset))
