"""Records deleted on request: on all replicas, through crashes, by whoever leads."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from paceline.client import Client
from paceline.errors import ErrorCode, OffsetOutOfRange, PolicyViolation
from paceline.types import NodeId, OffsetSpec, TopicPartition
from paceline.wire.kafka import records
from tests.integration.node.kafka_client import KafkaClient
from tests.integration.node.machines import connect
from tests.integration.node.nodes import cluster, lone_node
from tests.integration.node.test_kafka import ONE, fetch, fetched

pytestmark = pytest.mark.virtual_time

AT = TopicPartition("orders", 0)
HANG_S = 30


async def write(client: Client, count: int) -> None:
    async with client.producer() as producer:
        for number in range(count):
            await producer.send("orders", b"%d" % number, partition=0)


async def earliest(client: Client) -> int:
    found = (await client.admin.find_offsets({AT: OffsetSpec.EARLIEST}))[AT]
    return found.offset


async def test_what_was_deleted_stays_deleted(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes, connect(nodes.bootstrap_native) as client:
        await client.admin.create_topic("orders", partitions=1, replication_factor=3)
        await nodes.in_sync("orders", 0, 0, 1, 2)
        await write(client, 30)
        assert await client.admin.trim(AT, 12) == 12
        assert await client.admin.trim(AT, 5) == 12
        with pytest.raises(OffsetOutOfRange):
            await client.admin.trim(AT, 31)
        # Answered: so it is on every disk, and any of them may lead from a crash on.
        await nodes.crash(0, 1, 2)
        await nodes.start_all([0, 1, 2])
        for number in range(3):
            await nodes.in_sync("orders", 0, 0, 1, 2)
            if await nodes.leader("orders", 0) != number:
                with trio.fail_after(HANG_S):
                    await client.admin.elect_leader("orders", 0, NodeId(number))
            assert await earliest(client) == 12
        assert await client.admin.trim(AT) == 30
        assert await earliest(client) == 30


async def test_a_replica_that_is_away_learns_it_when_it_is_back(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes, connect(nodes.bootstrap_native) as client:
        await client.admin.create_topic(
            "orders", partitions=1, assignment=[[0, 1, 2]], replication_factor=3
        )
        await nodes.in_sync("orders", 0, 0, 1, 2)
        await write(client, 10)
        await nodes.crash(2)
        await nodes.in_sync("orders", 0, 0, 1)
        assert await client.admin.trim(AT, 7) == 7
        await nodes.start(2)
        await nodes.in_sync("orders", 0, 0, 1, 2)

        async def learned() -> bool | None:
            found = await client.admin.describe_replicas(NodeId(2), "orders")
            return found.partitions[0].log_start_offset == 7 or None

        await nodes.wait_for("node 2 has the log start", learned)


async def test_kafka_deletes_records(tmp_path: Path) -> None:
    async with (
        lone_node(tmp_path, ONE) as node,
        connect([node.native]) as native,
        KafkaClient(node.addresses["kafka"]) as client,
    ):
        await native.admin.create_topic("orders", partitions=1)
        await native.admin.create_topic("last", configs={"cleanup.policy": "compact"})
        await write(native, 10)

        async def delete(topic: str, offset: int, version: int = 2) -> tuple[int, int]:
            asked = records.DeleteRecordsRequestTopicPartition(partition_index=0, offset=offset)
            named = records.DeleteRecordsRequestTopic(name=topic, partitions=(asked,))
            request = records.DeleteRecordsRequest(topics=(named,), timeout_ms=10_000)
            [answered] = (await client.ask(request, version)).topics
            [part] = answered.partitions
            return part.error_code, part.low_watermark

        for version in range(3):
            assert await delete("orders", 2 + version, version) == (0, 2 + version)
        assert await delete("orders", 11) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete("nowhere", 1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        for topic in ("last", "__groups"):
            assert await delete(topic, 0) == (ErrorCode.POLICY_VIOLATION, -1)
        assert fetched(await client.ask(fetch(3), 12)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        part = fetched(await client.ask(fetch(4), 12))
        assert (part.error_code, part.log_start_offset) == (0, 4)
        assert await delete("orders", -1) == (0, 10)
        with pytest.raises(PolicyViolation):
            await native.admin.trim(TopicPartition("last", 0), 0)
