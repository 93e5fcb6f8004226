"""A node that has not heard that a topic was made anew tells who led the old one, in a higher epoch
than the new one has: nobody was found to lead that ever after."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio

from paceline.client import Client, Position
from paceline.types import LeaderEpoch, NodeId, TopicPartition
from tests.unit.client.harness import cluster_and_client
from tests.unit.client.test_consumer import fill
from tests.unit.client.test_sequenced import batch

AT = TopicPartition("orders", 0)
LEADER, OTHER = NodeId(0), NodeId(1)


async def read(client: Client) -> None:
    async with client.consumer(AT, start=Position.at(3)) as consumer:
        await anext(consumer)


async def look_up(client: Client) -> None:
    assert await client.admin.find_offsets({AT: -1})


async def produce(client: Client) -> None:
    async with client.producer() as producer:
        await producer.send("orders", b"a")


async def write(client: Client) -> None:
    await client.sequenced_writer().write([batch(AT, 0, b"a")])


def mislead(client: Client, node: NodeId = LEADER) -> None:
    assert client._metadata.view.learn(AT, node, LeaderEpoch(7))


@pytest.mark.parametrize("node", [LEADER, OTHER])
@pytest.mark.parametrize("work", [read, look_up, produce, write])
async def test_the_leader_is_found_all_the_same(
    autojump_clock: object, work: Callable[[Client], Awaitable[None]], node: NodeId
) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        fill(log, 10)
        await client.admin.topic("orders")
        mislead(client, node)
        with trio.fail_after(60):
            await work(client)
