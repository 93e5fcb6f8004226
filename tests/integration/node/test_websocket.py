"""The native protocol over WebSocket at ``/native``: the real client, and browsers kept out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio_websocket

from paceline.client import Position, ProducerSettings
from paceline.wire.frame import FrameReader, Kind
from paceline.wire.native import data
from paceline.wire.native.api import NativeApi
from tests.integration.node.machines import connect
from tests.integration.node.native import HELLO, request
from tests.integration.node.nodes import RunningNode, V1Client, cluster, lone_node
from tests.integration.node.test_v1_cluster import create

ONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}


def url(node: RunningNode) -> str:
    host, port = node.addresses["http"]
    return f"ws://{host}:{port}/native"


async def test_the_client_writes_and_reads_over_websocket_through_a_failover(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        await create(nodes, "orders", 3)
        values = [b"%d" % number for number in range(200)] + [bytes(300_000)]
        bootstrap = [url(nodes.up[number]) for number in range(3)]
        async with (
            connect(bootstrap) as client,
            client.producer(ProducerSettings(delivery_timeout_s=60)) as producer,
        ):
            for number, value in enumerate(values):
                await producer.submit("orders", value, partition=number % 3)
                if number == 100:
                    await producer.flush()
                    await nodes.crash(await nodes.leader("orders", 0))
            await producer.flush()
            found: list[bytes | None] = []
            async with client.consumer("orders", stop=Position.LATEST) as consumer:
                async for record in consumer:
                    found.append(record.value)
        assert sorted(found, key=repr) == sorted(values, key=repr)


@asynccontextmanager
async def websocket(
    node: RunningNode, path: str = "/native", *headers: tuple[str, str]
) -> AsyncIterator[trio_websocket.WebSocketConnection]:
    """A WebSocket on a TCP connection that is closed in any case."""
    host, port = node.addresses["http"]
    stream = await trio.open_tcp_stream(host, port)
    async with stream, trio.open_nursery() as nursery:
        yield await trio_websocket.wrap_client_stream(
            nursery, stream, f"{host}:{port}", path, extra_headers=list(headers)
        )
        nursery.cancel_scope.cancel()


async def rejection(node: RunningNode, path: str, *headers: tuple[str, str]) -> int:
    """The HTTP status with which a WebSocket is refused."""
    try:
        async with websocket(node, path, *headers):
            return 101
    except* trio_websocket.ConnectionRejected as group:
        [rejected] = group.exceptions
        assert isinstance(rejected, trio_websocket.ConnectionRejected)
        status = rejected.status_code
    return status


@pytest.mark.parametrize("allowed", ["", "https://console.example"])
async def test_pages_of_other_sites_are_refused(tmp_path, allowed: str) -> None:
    flags = {**ONE, "http.allowed_origins": allowed} if allowed else ONE
    async with lone_node(tmp_path, flags) as node:
        host, port = node.addresses["http"]
        cases = {
            "https://evil.example": False,
            "null": False,
            f"http://{host}:{port}.evil.example": False,
            "http://localhost:1": False,
            "https://console.example": bool(allowed),
            f"http://{host}:{port}": True,
        }
        for origin, welcome in cases.items():
            status = await rejection(node, "/native", ("Origin", origin))
            assert status == (101 if welcome else 403), origin
        async with websocket(node, "/native", ("Origin", f"http://{host}:{port}")) as socket:
            await _greet(socket)
        assert await rejection(node, "/elsewhere") == 404
        await _other_hosts_are_refused(node)


async def _other_hosts_are_refused(node: RunningNode) -> None:
    """DNS rebinding: the page's own name leads to this port."""
    stream = await trio.open_tcp_stream(*node.addresses["http"])
    async with stream:
        await stream.send_all(
            b"GET /native HTTP/1.1\r\nHost: evil.example\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            b"Sec-WebSocket-Version: 13\r\n\r\n"
        )
        answer = await stream.receive_some()
    assert answer.startswith(b"HTTP/1.1 421 "), answer


async def _greet(socket: trio_websocket.WebSocketConnection) -> None:
    await socket.send_message(request(NativeApi.HELLO, HELLO))
    reader = FrameReader()
    reader.feed(await socket.get_message())
    frame = reader.next_frame()
    assert frame is not None
    assert frame.kind == Kind.RESPONSE


async def test_messages_that_are_not_one_frame_end_the_connection(tmp_path) -> None:
    async with lone_node(tmp_path, ONE) as node:
        frame = request(NativeApi.STATUS, data.Status())
        for message in ("text", b"", b"\x00", frame[:-1], frame + frame, frame + b"\x00"):
            async with websocket(node) as socket:
                await _greet(socket)
                await socket.send_message(message)
                with trio.fail_after(30), pytest.raises(trio_websocket.ConnectionClosed):
                    await socket.get_message()
        told = await V1Client.ask_once(node.v1, b"V1|1|PRODUCE|orders k:v\n")
        assert told == "V1|1|OK|partition=0 offset=0 hw=0"
