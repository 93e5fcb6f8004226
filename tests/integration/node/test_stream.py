"""The console's WebSocket on a real node: documents of the API as they change, for who may see
them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio
import trio_websocket

from tests.integration.node.nodes import HANG_S, RunningNode, V1Client, lone_node
from tests.integration.node.secured import ONE
from tests.integration.node.test_metrics import get
from tests.integration.node.test_websocket import rejection, websocket
from tests.integration.node.test_websocket_login import guarded
from tests.unit.http.changed_documents import changed

STREAM = "/api/stream"


class Watcher:
    """What a browser has learnt."""

    def __init__(self, socket: trio_websocket.WebSocketConnection) -> None:
        self._socket = socket
        self.documents: dict[str, Any] = {}
        self.errors: dict[str, dict[str, Any]] = {}

    async def say(self, **message: Any) -> None:
        await self._socket.send_message(json.dumps(message))

    async def hear(self) -> dict[str, Any]:
        with trio.fail_after(HANG_S):
            message: dict[str, Any] = json.loads(await self._socket.get_message())
        path = message.get("path", "")
        if "document" in message:
            self.documents[path] = message["document"]
        elif "change" in message:
            self.documents[path] = changed(self.documents[path], message["change"])
        elif "path" in message:
            self.errors[path] = message["error"]
        return message

    async def until_closed(self) -> None:
        """The node ends it."""
        with suppress(trio_websocket.ConnectionClosed):
            while True:
                await self.hear()

    async def watch(self, *paths: str) -> None:
        """Until there is something of each."""
        await self.say(watch=paths)
        while not all(path in self.documents or path in self.errors for path in paths):
            await self.hear()


@asynccontextmanager
async def watching(node: RunningNode, *, token: str = "") -> AsyncIterator[Watcher]:
    async with websocket(node, STREAM) as socket:
        watcher = Watcher(socket)
        if token:
            await watcher.say(token=token)
        yield watcher


async def asked(node: RunningNode, path: str) -> Any:
    _, _, body = await get(node.addresses["http"], path)
    return json.loads(body)


async def made(node: RunningNode, topic: str, partitions: int) -> None:
    async with V1Client(node.v1) as client:
        await client.ok("ADMIN_CREATE_TOPIC", f"{topic} {partitions} 1")


async def test_documents_are_those_of_the_api_and_follow(tmp_path: Path) -> None:
    async with lone_node(tmp_path, ONE) as node:
        await made(node, "orders", 2)
        async with watching(node) as browser:
            paths = ("/api/topics", "/api/topics/orders?limit=1", "/api/quorum", "/api/health")
            await browser.watch(*paths)
            for path in ("/api/topics", "/api/topics/orders?limit=1", "/api/health"):
                while browser.documents[path] != await asked(node, path):
                    await browser.hear()  # a leader learns late that it is one
            await made(node, "payments", 1)
            while len(browser.documents["/api/topics"]["topics"]) < 2:
                await browser.hear()
            assert [each["name"] for each in browser.documents["/api/topics"]["topics"]] == [
                "orders",
                "payments",
            ]
            await browser.watch("/api/topics/nothing", "/api/nothing")
            assert browser.errors["/api/topics/nothing"]["code"] == "UNKNOWN_TOPIC_OR_PARTITION"
            assert browser.errors["/api/nothing"]["code"] == "INVALID_REQUEST"
        status, _, _ = await get(node.addresses["http"], STREAM)
        assert status == 426
        assert await rejection(node, STREAM, ("Origin", "https://elsewhere.example")) == 403


async def test_a_browser_sees_what_its_user_may(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (node, client):
        await client.admin.create_topic("orders", partitions=1)
        token = await client.admin.users.make_token("alice")
        async with watching(node) as stranger:
            await stranger.watch("/api/topics")
            assert stranger.errors["/api/topics"]["code"] == "AUTHENTICATION_FAILED"
        async with watching(node, token=token) as alice:
            assert (await alice.hear())["hello"]["principal"] == "alice"
            await alice.watch("/api/topics")
            assert len(alice.documents["/api/topics"]["topics"]) == 1
            [user] = await client.admin.users.list(["alice"])
            await client.admin.users.revoke("alice", [each.token_id for each in user.tokens])
            await alice.until_closed()
        async with watching(node, token=token) as late:
            assert (await late.hear())["refused"]["code"] == "AUTHENTICATION_FAILED"
            await late.until_closed()
