"""The producer against scripted brokers: what is acknowledged, stored, retried, given up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from paceline.client import Client, ClientSettings, connect
from tests.unit.client.broker import Cluster


@asynccontextmanager
async def cluster_and_client(nodes: int = 3) -> AsyncIterator[tuple[Cluster, Client]]:
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, nodes)
        async with connect(
            cluster.bootstrap(), ClientSettings(operation_timeout_s=5), dial=cluster.dial
        ) as client:
            yield cluster, client
        nursery.cancel_scope.cancel()


async def test_send_is_acknowledged_with_its_place(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        log = cluster.create("orders")[0]
        async with client.producer() as producer:
            first = await producer.send("orders", b"a", key=b"k", headers=[("h", b"1")])
            second = await producer.send("orders", None, timestamp_ms=5)
        assert (first.topic, first.partition, first.offset) == ("orders", 0, 0)
        assert (second.offset, second.timestamp_ms) == (1, 5)
        assert log.values() == [b"a", None]
