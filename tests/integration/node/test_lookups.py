"""What planners and auditors ask a node: ends of epochs, bytes ahead, a follower's own copy."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from paceline.client import Client
from paceline.client.offsets import Sought
from paceline.errors import NotLeader
from paceline.types import LeaderEpoch, NodeId, OffsetSpec, TopicPartition
from paceline.wire.batch_header import iter_batches, verify
from tests.integration.node.machines import connect
from tests.integration.node.nodes import cluster

pytestmark = pytest.mark.virtual_time

AT = TopicPartition("orders", 0)
BATCHES, RECORDS, VALUE = 12, 10, bytes(5000)


async def write(client: Client) -> None:
    async with client.producer() as producer:
        for _ in range(BATCHES):
            await producer.send_many("orders", [VALUE] * RECORDS, partition=0)


async def sought(client: Client, what: Sought) -> tuple[int, int]:
    found = (await client.admin.find_offsets({AT: what}))[AT]
    return found.offset, found.leader_epoch


async def ahead(client: Client, after: int, size: int) -> int:
    return (await sought(client, Sought(OffsetSpec.AHEAD, after_offset=after, ahead_bytes=size)))[0]


async def test_epochs_bytes_ahead_and_replicas(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes, connect(nodes.bootstrap_native) as client:
        await client.admin.create_topic(
            "orders", partitions=1, replication_factor=2, assignment=[[0, 1]]
        )
        await write(client)
        first_epoch = (await client.admin.topic("orders")).partitions[0].leader_epoch
        await nodes.in_sync("orders", 0, 0, 1)
        await client.admin.elect_leader("orders", 0, NodeId(1))
        await write(client)
        end = 2 * BATCHES * RECORDS
        middle = end // 2

        asked = Sought(OffsetSpec.EPOCH_END, epoch=first_epoch)
        assert await sought(client, asked) == (middle, first_epoch)
        [info] = (await client.admin.topic("orders")).partitions
        asked = Sought(OffsetSpec.EPOCH_END, epoch=info.leader_epoch)
        assert await sought(client, asked) == (end, info.leader_epoch)
        asked = Sought(OffsetSpec.EPOCH_END, epoch=LeaderEpoch(first_epoch - 1))
        assert (await sought(client, asked))[0] == 0

        # One batch is about 50 KB; the index answers in whole batches.
        assert await ahead(client, 0, 1) == RECORDS, "the first batch even if it is larger"
        assert await ahead(client, 0, 120_000) == 2 * RECORDS
        assert await ahead(client, RECORDS + 3, 120_000) == 3 * RECORDS
        assert await ahead(client, 0, 10**9) == end
        assert await ahead(client, end, 10**9) == end

        await _reads_the_followers_copy(client, middle)


async def _reads_the_followers_copy(client: Client, end: int) -> None:
    follower = NodeId(0)
    with trio.fail_after(30):
        while True:
            told = await client.admin.describe_replicas(follower, "orders")
            if told.partitions[0].high_watermark >= end:
                break
            await trio.sleep(0.02)
    assert told.partitions[0].leader == 1
    offset = 0
    while offset < end:
        result, data = await client.admin.read_replica(follower, AT, offset, 200_000)
        for position, header in iter_batches(data):
            assert verify(data, position) == header
            assert header.base_offset == offset
            offset = header.next_offset
        assert result.high_watermark >= end
    with pytest.raises(NotLeader):
        await client.admin.read_replica(NodeId(2), AT, 0, 1000)
