"""Credentials on the upgrade to WebSocket, for clients that can show them there (listeners/DESIGN
9.1)."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio_websocket

import paceline.client
from paceline.client import Client, ClientLogin, ClientSettings
from paceline.wire.frame import Frame, FrameReader, Kind
from paceline.wire.message import Message
from paceline.wire.native import admin
from paceline.wire.native.api import NativeApi
from tests.integration.node.native import HELLO, request
from tests.integration.node.nodes import RunningNode, lone_node
from tests.integration.node.secured import ONE
from tests.integration.node.test_websocket import rejection, websocket

HANG_S = 60.0
PASSWORD = "wonder:land"


def basic(name: str, password: str = PASSWORD) -> tuple[str, str]:
    return "Authorization", "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def bearer(token: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {token}"


@asynccontextmanager
async def guarded(directory: Path, **flags: str) -> AsyncIterator[tuple[RunningNode, Client]]:
    """A node whose WebSocket wants a log-in, its super user ``alice``, and a client as her."""
    file = directory / "password"
    file.write_text(PASSWORD)
    async with lone_node(
        directory,
        {**ONE, "security.super_users": "alice", **flags},
        options={"http": "login=required"},
    ) as node:
        async with paceline.client.connect(node.native) as client:
            await client.admin.users.create("alice", PASSWORD, iterations=4096)
        login = ClientLogin(username="alice", password_file=str(file))
        async with paceline.client.connect(node.native, ClientSettings(login=login)) as client:
            yield node, client


async def ask(socket: trio_websocket.WebSocketConnection, api: NativeApi, body: Message) -> Frame:
    await socket.send_message(request(api, body))
    reader = FrameReader()
    with trio.fail_after(HANG_S):
        reader.feed(await socket.get_message())
    frame = reader.next_frame()
    assert frame is not None
    return frame


async def test_who_shows_credentials_need_not_log_in_again(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (node, client):
        token = await client.admin.users.make_token("alice")
        for number, header in enumerate((basic("alice"), bearer(token))):
            async with websocket(node, "/native", header) as socket:
                assert (await ask(socket, NativeApi.HELLO, HELLO)).kind == Kind.RESPONSE
                wish = admin.CreateTopic(f"t{number}", 1, 1)
                assert (await ask(socket, NativeApi.CREATE_TOPIC, wish)).kind == Kind.RESPONSE
        async with websocket(node) as socket:  # without, as before
            await ask(socket, NativeApi.HELLO, HELLO)
            wish = admin.CreateTopic("t2", 1, 1)
            assert (await ask(socket, NativeApi.CREATE_TOPIC, wish)).kind == Kind.ERROR


async def test_wrong_credentials_are_refused_with_the_upgrade(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (node, client):
        token = await client.admin.users.make_token("alice")
        for header in (
            basic("alice", "guess"),
            basic("nobody"),
            bearer(token + "x"),
            ("Authorization", "Basic !"),
            ("Authorization", "Digest x"),
            ("Authorization", ""),
        ):
            assert await rejection(node, "/native", header) == 401, header
        origin = "Origin", "https://evil.example"
        assert await rejection(node, "/native", basic("alice"), origin) == 403


async def test_credentials_that_are_taken_away_end_the_connection(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (node, client):
        await client.admin.users.create("bob", PASSWORD, iterations=4096)
        token = await client.admin.users.make_token("alice")
        for header, take in (
            (basic("bob"), lambda: client.admin.users.delete("bob")),
            (bearer(token), lambda: client.admin.users.revoke("alice", [token.split(".")[1]])),
        ):
            async with websocket(node, "/native", header) as socket:
                await ask(socket, NativeApi.HELLO, HELLO)
                await take()
                await ended(socket)


async def test_the_log_in_expires(tmp_path: Path) -> None:
    async with (
        guarded(tmp_path, **{"login.session_ms": "1000"}) as (node, _),
        websocket(node, "/native", basic("alice")) as socket,
    ):
        await ask(socket, NativeApi.HELLO, HELLO)
        await ended(socket)


async def ended(socket: trio_websocket.WebSocketConnection) -> None:
    with trio.fail_after(HANG_S), pytest.raises(trio_websocket.ConnectionClosed):
        await socket.get_message()
