"""What listeners take in of who has yet to log in: little. Kafka: ``test_kafka_login.py``,
segments: ``test_pravega_login.py``."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import trio
import trio_websocket

from paceline.wire.frame import Kind, encode_head
from paceline.wire.native import users
from paceline.wire.native.api import NativeApi
from tests.integration.node.cursus_client import CursusClient
from tests.integration.node.native import HELLO, NativeConnection, request
from tests.integration.node.nodes import lone_node
from tests.integration.node.secured import ONE
from tests.integration.node.test_websocket import websocket

HANG_S = 60.0
REQUIRED = "login=required"
MIB = 1024 * 1024


async def test_cursus(tmp_path: Path) -> None:
    async with lone_node(tmp_path, ONE, options={"cursus": REQUIRED}) as node:
        at = node.addresses["cursus"]
        async with CursusClient(at) as client:
            await client.stream.send_all(MIB.to_bytes(4, "big") + bytes(4096))
            assert await client.receive() == b"EOF", "closed at its length"
        async with CursusClient(at) as client:
            bomb = gzip.compress(bytes(60 * MIB))
            assert len(bomb) < MIB // 4
            for batch in bomb, b"\xba\x7c" + bytes(100):
                await client.send(batch)
                answer = await client.receive()
                assert answer.startswith(b"ERROR: authentication_required command=BATCH"), answer
            assert (await client.say("HELP")).startswith("OK"), "which did not cost it anything"


async def test_cursus_afterwards(tmp_path: Path) -> None:
    async with (
        lone_node(tmp_path, ONE) as node,
        CursusClient(node.addresses["cursus"]) as client,
    ):
        await client.create("topic=t partitions=1")
        large = "x" * MIB
        assert (await client.say(f"PUBLISH topic=t partition=0 message={large}")).count("OK") == 1


async def test_native(tmp_path: Path) -> None:
    async with (
        lone_node(tmp_path, ONE, options={"native": REQUIRED}) as node,
        NativeConnection(node.addresses["native"]) as client,
    ):
        head = encode_head(Kind.REQUEST, NativeApi.AUTHENTICATE, 2, b"", MIB)
        await client.send(head)
        assert await client.receive() is None


async def test_websocket(tmp_path: Path) -> None:
    """The library puts messages together before anybody sees a frame."""
    async with (
        lone_node(tmp_path, ONE, options={"http": REQUIRED}) as node,
        websocket(node) as socket,
    ):
        await socket.send_message(request(NativeApi.HELLO, HELLO))
        with trio.fail_after(HANG_S):
            await socket.get_message()
            large = request(NativeApi.AUTHENTICATE, users.Authenticate("PLAIN", bytes(8 * MIB)))
            with pytest.raises(trio_websocket.ConnectionClosed):
                await say(socket, large)


async def say(socket: trio_websocket.WebSocketConnection, message: bytes) -> None:
    await socket.send_message(message)
    await socket.get_message()


async def test_websocket_where_nobody_has_to_log_in(tmp_path: Path) -> None:
    async with lone_node(tmp_path, ONE) as node, websocket(node) as socket:
        await socket.send_message(request(NativeApi.HELLO, HELLO))
        with trio.fail_after(HANG_S):
            await socket.get_message()
            large = request(NativeApi.AUTHENTICATE, users.Authenticate("PLAIN", bytes(MIB)))
            await socket.send_message(large)
            assert await socket.get_message(), "an answer"
