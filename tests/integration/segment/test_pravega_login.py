"""Logging in at the pravega listener, and what its clients show to the segment listener then
(listeners/DESIGN 8.6)."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
import trio

import paceline.client
from paceline.client import Client, ClientLogin, ClientSettings
from paceline.wire.native.acls import AclOperation
from paceline.wire.pravega import controller as c
from paceline.wire.pravega.grpc import GrpcStatus
from paceline.wire.segment import messages as seed
from paceline.wire.segment import pravega_messages as w
from paceline.wire.segment.framing import HEADER, MAX_PAYLOAD_BYTES, encode
from tests.integration.node.certificates import Certificates
from tests.integration.node.machines import open_stream
from tests.integration.node.nodes import RunningNode, lone_node
from tests.integration.node.secured import acl
from tests.integration.segment.client import Raw as SeedRaw
from tests.integration.segment.controller_client import CallRefused, ControllerClient
from tests.integration.segment.test_pravega import FLAGS, HANG_S, NAME, Raw

PASSWORD = "wonder, land=1"
REQUIRED = {"pravega": "login=required", "segment": "login=required"}
INSIDE_TLS = [f"{kind}?{option}&advertised=localhost" for kind, option in REQUIRED.items()]
"""By name: the published client knows no addresses in certificates."""
STREAM = c.StreamInfo("sc", "st")
WISH = c.StreamConfig(STREAM, c.ScalingPolicy(0, 0, 0, 1))


def basic(name: str, password: str = PASSWORD) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@asynccontextmanager
async def guarded(
    directory: Path, *, is_required: bool = True, is_encrypted: bool = False
) -> AsyncIterator[tuple[RunningNode, Client]]:
    """A node with a super user ``alice``, and bob, who may do nothing; and a client as alice."""
    certificates = Certificates(directory)
    async with lone_node(
        directory,
        {**FLAGS, **certificates.settings, "security.super_users": "alice"},
        tls=INSIDE_TLS if is_encrypted else (),
        options=REQUIRED if is_required else None,
    ) as node:
        file = directory / "alice.password"
        file.write_text(PASSWORD)
        async with paceline.client.connect(node.native) as client:
            await client.admin.users.create("alice", PASSWORD, iterations=4096)
        login = ClientLogin(username="alice", password_file=str(file))
        async with paceline.client.connect(node.native, ClientSettings(login=login)) as client:
            await client.admin.users.create("bob", PASSWORD, iterations=4096)
            yield node, client


async def status(node: RunningNode, authorization: str, name: str = "createScope") -> int:
    """How a call ends."""
    async with ControllerClient(node.addresses["pravega"], None, authorization) as client:
        try:
            await client.call(name, c.ScopeInfo("sc"), c.Status)
        except CallRefused as refused:
            return refused.status
        return GrpcStatus.OK


async def delegation(node: RunningNode, authorization: str) -> str:
    async with ControllerClient(node.addresses["pravega"], None, authorization) as client:
        await client.call("createScope", c.ScopeInfo("sc"), c.Status)
        await client.call("createStream", WISH, c.Status)
        return (await client.call("getDelegationToken", STREAM, c.Token)).token


async def test_who_has_not_logged_in_may_do_nothing(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (node, client):
        token = await client.admin.users.make_token("alice")
        for authorization in (
            "",
            "Basic",
            "Basic !",
            "Basic " + base64.b64encode(b"alice").decode(),
            "Digest x",
            "Bearer x",
            f"Bearer {token}x",
            basic("alice", "guess"),
            basic("nobody"),
        ):
            found = await status(node, authorization)
            assert found == GrpcStatus.UNAUTHENTICATED, authorization
        assert await status(node, "", "noSuchCall") == GrpcStatus.UNAUTHENTICATED
        assert await status(node, basic("alice")) == GrpcStatus.OK
        assert await status(node, f"Bearer {token}") == GrpcStatus.OK
        assert await status(node, basic("bob")) == GrpcStatus.PERMISSION_DENIED


async def test_where_no_log_in_is_wanted_acls_decide(tmp_path: Path) -> None:
    async with guarded(tmp_path, is_required=False) as (node, _):
        assert await status(node, "") == GrpcStatus.PERMISSION_DENIED
        assert await status(node, basic("alice", "guess")) == GrpcStatus.UNAUTHENTICATED
        assert await status(node, basic("alice")) == GrpcStatus.OK


async def test_in_an_open_cluster_nobody_is_asked(tmp_path: Path) -> None:
    async with lone_node(tmp_path, FLAGS) as node:
        assert await status(node, basic("admin", "1111_aaaa")) == GrpcStatus.OK
        assert await delegation(node, basic("admin", "1111_aaaa")) == ""


@asynccontextmanager
async def at_segments(node: RunningNode) -> AsyncIterator[Raw]:
    stream = await open_stream(node.addresses["segment"])
    async with stream:
        raw = Raw(stream)
        await raw.send(w.Hello(w.NEWEST_VERSION, w.OLDEST_VERSION))
        assert isinstance(await raw.reply(), w.Hello)
        yield raw


async def test_a_delegation_token_lets_write_and_read(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (node, _):
        token = await delegation(node, basic("alice"))
        head, body, seal = token.split(".")
        assert "=" not in token, "one published client takes no padding, another one wants it"
        assert len(body) % 4 == 0
        assert re.search(r'"exp":\s?(\d+)', base64.b64decode(body).decode())
        async with at_segments(node) as raw:
            writer = uuid4()
            set_up = w.SetupAppend(1, writer, NAME, token)
            assert (await raw.ask(set_up, w.AppendSetup)).last_event == w.NO_EVENT
            read = w.ReadSegment(NAME, 0, 1000, token, 2)
            assert (await raw.ask(read, w.SegmentRead)).data == b""
        claims = json.loads(base64.b64decode(body))
        forged = base64.b64encode(json.dumps({**claims, "sub": b"bob".hex()}).encode()).decode()
        for wrong in "", "x", "..", f"{head}.{forged}.{seal}", f"{token}x", f"{head}.{body}.":
            async with at_segments(node) as raw:
                set_up = w.SetupAppend(1, uuid4(), NAME, wrong)
                assert (await raw.ask(set_up, w.AuthTokenCheckFailed)).error_code == 0
                read = w.ReadSegment(NAME, 0, 1000, wrong, 2)
                await raw.ask(read, w.AuthTokenCheckFailed)
                made = w.CreateTransientSegment(3, uuid4(), NAME, wrong)
                await raw.ask(made, w.AuthTokenCheckFailed)


async def test_a_token_gives_the_rights_of_who_got_it(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (node, client):
        for_alice = await delegation(node, basic("alice"))
        async with ControllerClient(node.addresses["pravega"], None, basic("bob")) as caller:
            with pytest.raises(CallRefused):
                await caller.call("getDelegationToken", STREAM, c.Token)
            await client.admin.acls.create([acl("bob", AclOperation.DESCRIBE, "sc_st")])
            for_bob = (await caller.call("getDelegationToken", STREAM, c.Token)).token
        async with at_segments(node) as raw:
            refused = await raw.ask(w.ReadSegment(NAME, 0, 1000, for_bob, 1), w.ErrorMessage)
            assert "bob may not consume" in refused.message
            await raw.ask(w.ReadSegment(NAME, 0, 1000, for_alice, 2), w.AuthTokenCheckFailed)


async def test_a_deleted_user_is_heard_no_more(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (node, client):
        await client.admin.acls.create([acl("bob", AclOperation.ALL, "*")])
        token = await delegation(node, basic("bob"))
        async with (
            ControllerClient(node.addresses["pravega"], None, basic("bob")) as caller,
            at_segments(node) as raw,
        ):
            await caller.call("checkStreamExists", STREAM, c.Exists)
            await raw.ask(w.SetupAppend(1, uuid4(), NAME, token), w.AppendSetup)
            await client.admin.users.delete("bob")
            assert await raw.reply() is None
            with pytest.raises((AssertionError, trio.BrokenResourceError)):
                await ask_for_ever(caller)
        async with at_segments(node) as raw:
            await raw.ask(w.SetupAppend(1, uuid4(), NAME, token), w.AuthTokenCheckFailed)


async def test_the_other_dialect_has_no_log_in(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (node, _), await open_stream(node.addresses["segment"]) as at:
        raw = SeedRaw(at)
        refused = await raw.ask(seed.CreateSegment("a/b/0"), seed.ErrorMessage)
        assert "wants a certificate" in refused.message
        assert await raw.reply() is None


async def test_no_large_message_before_the_log_in(tmp_path: Path) -> None:
    async with guarded(tmp_path) as (node, _):
        for first in b"", encode(w.Hello(w.NEWEST_VERSION, w.OLDEST_VERSION)):
            async with await open_stream(node.addresses["segment"]) as stream:
                head = HEADER.pack(4 if first else 1, MAX_PAYLOAD_BYTES)
                with pytest.raises(trio.BrokenResourceError), trio.fail_after(HANG_S):
                    await say(stream, first + head)


async def ask_for_ever(caller: ControllerClient) -> None:
    while True:
        await caller.call("checkStreamExists", STREAM, c.Exists)


async def say(stream: trio.abc.Stream, head: bytes) -> None:
    """A message that is as long as it may be, and never whole."""
    await stream.send_all(head)
    for _ in range(MAX_PAYLOAD_BYTES // (64 * 1024)):
        await stream.send_all(bytes(64 * 1024))
        await trio.sleep(0.05)
    raise AssertionError("all of it was taken")


APP = """
import pravega_client, sys
is_encrypted = sys.argv[1].startswith("tls://")
manager = pravega_client.StreamManager(sys.argv[1], True, is_encrypted, False)
print(manager.create_scope("shop"), manager.create_stream("shop", "orders", 1))
writer = manager.create_writer("shop", "orders")
writer.write_event("hello")
writer.flush()
film = manager.create_stream("shop", "film", 1)
film = manager.create_byte_stream("shop", "film")
film.write(b"hello")
film.flush()
print(film.current_tail_offset())
"""


@pytest.mark.skipif(
    importlib.util.find_spec("pravega_client") is None,
    reason="the pravega client has no wheel for this machine (CPython 3.10 or 3.11, glibc 2.35)",
)
@pytest.mark.parametrize("is_encrypted", [False, True])
async def test_the_published_client(tmp_path: Path, is_encrypted: bool) -> None:
    async with guarded(tmp_path, is_encrypted=is_encrypted) as (node, _):
        host, port = node.addresses["pravega"]
        environ = {
            **os.environ,
            "pravega_client_auth_method": "Basic",
            "pravega_client_auth_username": "alice",
            "pravega_client_auth_password": PASSWORD,
            "pravega_client_tls_cert_path": str(tmp_path / "authority.pem"),
        }
        url = f"tls://localhost:{port}" if is_encrypted else f"tcp://{host}:{port}"
        command = [sys.executable, "-c", APP, url]
        run = partial(subprocess.run, command, capture_output=True, env=environ, timeout=60)
        done = await trio.to_thread.run_sync(run)
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        assert done.stdout.split() == [b"True", b"True", b"5"]
