"""Connections that only take places do not shut others out."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from paceline.wire.kafka.cluster import ApiVersionsRequest
from paceline.wire.pravega.controller import Exists, ScopeInfo
from paceline.wire.segment.messages import KeepAlive
from paceline_node.net.accepting import OpenConnections, serve
from paceline_node.net.network import RealNetwork
from paceline_node.net.transport import transport_for
from tests.integration.node.cursus_client import CursusClient
from tests.integration.node.kafka_client import KafkaClient
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import HANG_S, RunningNode, V1Client, lone_node
from tests.integration.node.test_metrics import scrape
from tests.integration.peers.test_sockets import LOOPBACK, hold, is_served
from tests.integration.segment import client as segments
from tests.integration.segment.controller_client import ControllerClient

PLACES = 20
FEW = {
    "topics.replication_factor": "1",
    "topics.min_insync_replicas": "1",
    "limits.connections": str(PLACES),
    "limits.idle_ms": "500",
}


async def is_answered(node: RunningNode, protocol: str) -> bool:
    """Whether a client that comes now is served."""
    address = node.addresses[protocol]
    match protocol:
        case "v1":
            async with V1Client(address) as client:
                await client.ok("PRODUCE", "orders k:1")
        case "native":
            async with NativeConnection(address) as native:
                await native.status()
        case "cursus":
            async with CursusClient(address) as cursus:
                return bool(await cursus.say("LIST"))
        case "kafka":
            async with KafkaClient(address) as kafka:
                await kafka.send(ApiVersionsRequest(), 0)
                return await kafka.read_frame() is not None
        case "segment":
            async with segments.connect(address) as raw:
                await raw.send(KeepAlive())
                return await raw.reply() == KeepAlive()
        case "pravega":
            async with ControllerClient(address) as controller:
                asked = ScopeInfo("none")
                return await controller.call("checkScopeExists", asked, Exists) == Exists()
        case "http":
            return bool((await scrape(address)).text)
    return True


@pytest.mark.parametrize(
    "protocol", ["v1", "native", "cursus", "kafka", "segment", "pravega", "http"]
)
async def test_idle_connections_make_room_for_new_ones(tmp_path: Path, protocol: str) -> None:
    """4,200 of them shut everybody out for as long as they stayed."""
    # What is used must not look silent on a machine where one request takes long.
    flags = FEW | ({"limits.idle_ms": "3000"} if protocol == "v1" else {})
    async with (
        lone_node(tmp_path, flags) as node,
        AsyncExitStack() as stack,
        trio.open_nursery() as nursery,
        V1Client(node.v1) as busy,
    ):
        if protocol == "v1":
            nursery.start_soon(stay_busy, busy)
        for _ in range(3 * PLACES):
            stream = await trio.open_tcp_stream(*node.addresses[protocol])
            stack.push_async_callback(trio.aclose_forcefully, stream)
        for _ in range(5):
            with trio.fail_after(HANG_S):
                assert await is_answered(node, protocol)
        nursery.cancel_scope.cancel("judged")


async def stay_busy(client: V1Client) -> None:
    """A connection that is used stays, or this fails."""
    while True:
        await client.ok("PRODUCE", "orders k:x")
        await trio.sleep(0.05)


async def test_nobody_who_is_used_is_ended_for_one_of_the_same_address() -> None:
    network = RealNetwork()
    (listener,) = await network.listen(LOOPBACK, 0)
    port = network.bound_port(listener)
    opened = OpenConnections()
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        await nursery.start(
            partial(serve, [listener], hold, max_connections=3, idle_s=3600, opened=opened)
        )
        clients = [
            await stack.enter_async_context(await network.connect(LOOPBACK, port)) for _ in range(3)
        ]
        for client in clients:
            assert await is_served(client, within_s=HANG_S)
        waiting = await stack.enter_async_context(await network.connect(LOOPBACK, port))
        assert not await is_served(waiting, within_s=0.5)
        for client in clients:
            assert await is_served(client, within_s=HANG_S)
        with suppress(trio.BrokenResourceError):
            await clients[0].aclose()
        assert (await waiting.receive_some()).startswith(b"served")
        assert opened.count <= 3
        nursery.cancel_scope.cancel("judged")


async def test_an_address_that_has_most_gives_a_place_up_to_one_that_has_none() -> None:
    network = RealNetwork()
    (listener,) = await network.listen("0.0.0.0", 0)
    port = network.bound_port(listener)
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        await nursery.start(partial(serve, [listener], hold, max_connections=8, idle_s=3600))
        crowd = [
            await stack.enter_async_context(await network.connect(LOOPBACK, port)) for _ in range(8)
        ]
        for client in crowd:
            assert await is_served(client, within_s=HANG_S)
        other = await trio.open_tcp_stream("127.0.0.1", port, local_address="127.0.0.2")
        await stack.enter_async_context(other)
        assert await is_served(other, within_s=HANG_S)
        still = [await is_served(client, within_s=1) for client in crowd]
        assert still.count(True) == 7
        nursery.cancel_scope.cancel("judged")


@pytest.mark.parametrize("way", ["stream", "transport"])
async def test_a_crowd_that_ends_at_once_leaves_in_turns(way: str) -> None:
    """A thousand connections of a program that died kept the loop while all of them ended."""
    count = 200
    rounds = 0
    left: Counter[int] = Counter()

    async def serve_one(stream: trio.abc.Stream) -> None:
        received: object = b""
        with suppress(trio.BrokenResourceError, ConnectionResetError):
            if way == "stream":
                received = await stream.receive_some(10)
            else:
                received = await transport_for(stream).receive_into([memoryview(bytearray(10))])
        assert not received
        left[rounds] += 1

    async def count_rounds() -> None:
        nonlocal rounds
        while True:
            await trio.lowlevel.checkpoint()
            rounds += 1

    network = RealNetwork()
    (listener,) = await network.listen(LOOPBACK, 0)
    port = network.bound_port(listener)
    opened = OpenConnections()
    async with trio.open_nursery() as nursery:
        await nursery.start(
            partial(serve, [listener], serve_one, max_connections=count, opened=opened)
        )
        clients = [await trio.open_tcp_stream(LOOPBACK, port) for _ in range(count)]
        with trio.fail_after(HANG_S):
            while opened.count < count:  # noqa: ASYNC110  of another task
                await trio.sleep(0.01)
        nursery.start_soon(count_rounds)
        for client in clients:
            client.socket.close()  # no round of the loop between them
        with trio.fail_after(HANG_S):
            while opened.count:  # noqa: ASYNC110
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel("judged")
    assert left.total() == count
    assert max(left.values()) <= 8  # four of a round, which trio runs in any order
