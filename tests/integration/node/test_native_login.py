"""Logging in on the native listener and over WebSocket (listeners/DESIGN 9.1)."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

import paceline.client
from paceline.client import Client, ClientLogin, ClientSettings, ClientTls
from paceline.errors import AuthenticationFailed, ConfigurationError
from paceline.scram import SASL_MECHANISMS
from paceline.wire.native import data, users
from paceline.wire.native.api import NativeApi
from paceline_node.security.principals import AllowAll, Operation, Principal, Resource
from tests.integration.node.certificates import Certificates
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import HANG_S, RunningNode, lone_node
from tests.integration.node.test_kafka import ONE

PASSWORD = "wonder, land"
LOGIN = "login=required"


class Watching(AllowAll):
    """Who has produced."""

    def __init__(self) -> None:
        self.producers: set[str] = set()

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> None:
        super().authorize(principal, operation, resource)
        if operation is Operation.PRODUCE:
            self.producers.add(str(principal))


class Guarded:
    """A node whose native listener wants a log-in; its users are made over another one."""

    def __init__(self, node: RunningNode, directory: Path, certificates: Certificates) -> None:
        self.node = node
        self._directory = directory
        self.tls = ClientTls(authority=certificates.authority)

    def login(self, mechanism: str, secret: str = PASSWORD, name: str = "alice") -> ClientLogin:
        file = self._directory / f"{name}.{abs(hash(secret))}"
        file.write_text(secret + "\n")
        return ClientLogin(username=name, password_file=str(file), mechanism=mechanism)

    def address(self, kind: str = "native", scheme: str = "") -> str:
        host, port = self.node.addresses[kind]
        return f"{scheme}{host}:{port}"


@asynccontextmanager
async def guarded(
    directory: Path, *, is_encrypted: bool = False, policy: Watching | None = None, **flags: str
) -> AsyncIterator[Guarded]:
    """With a user ``alice``, who may do everything."""
    certificates = Certificates(directory)
    async with lone_node(
        directory,
        {**ONE, **certificates.settings, "security.super_users": "alice", **flags},
        tls=(f"native?{LOGIN}",) if is_encrypted else (),
        options={"native": LOGIN},
        policy=policy,
    ) as node:
        it = Guarded(node, directory, certificates)
        async with paceline.client.connect(it.address("http", "ws://")) as client:
            await client.admin.create_topic("t", partitions=1, replication_factor=1)
            await client.admin.users.create("alice", PASSWORD, iterations=4096)
            yield it


async def writes(client: Client) -> None:
    async with client.producer() as producer:
        await producer.send("t", b"v")


@asynccontextmanager
async def connected(it: Guarded, login: ClientLogin | None) -> AsyncIterator[Client]:
    settings = ClientSettings(login=login)
    async with paceline.client.connect(it.address(), settings) as client:
        yield client


async def test_by_each_mechanism_and_by_token_inside_tls(tmp_path: Path) -> None:
    policy = Watching()
    async with guarded(tmp_path, is_encrypted=True, policy=policy) as it:
        async with paceline.client.connect(it.address("http", "ws://")) as admin:
            token = await admin.admin.users.make_token("alice")
        for secret, mechanisms in ((PASSWORD, SASL_MECHANISMS), (token, ("PLAIN",))):
            for mechanism in mechanisms:
                policy.producers.clear()
                settings = ClientSettings(tls=it.tls, login=it.login(mechanism, secret))
                async with paceline.client.connect(it.address(), settings) as client:
                    await writes(client)
                assert policy.producers == {"alice"}


async def test_operators_see_who_logged_in_over_websocket(tmp_path: Path) -> None:
    async with guarded(tmp_path, policy=Watching()) as it:
        settings = ClientSettings(login=it.login("SCRAM-SHA-256"))
        async with paceline.client.connect(it.address("http", "ws://"), settings) as client:
            await writes(client)
            page = await trio.to_thread.run_sync(
                lambda: urllib.request.urlopen(it.address("http", "http://") + "/api/connections")
            )
            with page:
                found = json.load(page)["connections"]
        assert "alice" in [each["principal"] for each in found if each["protocol"] == "http"]
        assert not any(each["encrypted"] for each in found)


async def test_in_clear_text_only_by_scram(tmp_path: Path) -> None:
    async with guarded(tmp_path) as it:
        async with connected(it, it.login("SCRAM-SHA-256")) as client:
            await writes(client)
        with pytest.raises(AuthenticationFailed, match="needs TLS"):
            async with connected(it, it.login("PLAIN")):
                pass
        async with NativeConnection(it.node.addresses["native"]) as raw:
            with pytest.raises(AuthenticationFailed, match="not offered without TLS"):
                await raw.call(
                    NativeApi.AUTHENTICATE,
                    users.Authenticate("PLAIN", b"\0alice\0" + PASSWORD.encode()),
                    users.Authenticated,
                )


async def test_who_cannot_log_in_hears_so_at_once(tmp_path: Path) -> None:
    async with guarded(tmp_path) as it:
        for login, words in (
            (None, "wants a log-in"),
            (it.login("SCRAM-SHA-512", "guess"), "wrong user or password"),
            (it.login("SCRAM-SHA-512", name="nobody"), "wrong user or password"),
        ):
            with pytest.raises(AuthenticationFailed, match=words):
                async with connected(it, login):
                    pass
        missing = ClientLogin(username="alice", password_file=str(tmp_path / "none"))
        with pytest.raises(AuthenticationFailed, match="none"):
            async with connected(it, missing):
                pass


async def test_nothing_else_is_answered_before(tmp_path: Path) -> None:
    async with guarded(tmp_path) as it, NativeConnection(it.node.addresses["native"]) as raw:
        with pytest.raises(AuthenticationFailed, match="before anything else"):
            await raw.call(NativeApi.METADATA, data.MetadataRequest(None), data.MetadataReply)


async def test_a_log_in_is_repeated_and_work_goes_on(tmp_path: Path) -> None:
    async with guarded(tmp_path, policy=Watching(), **{"login.session_ms": "1000"}) as it:
        async with (
            connected(it, it.login("SCRAM-SHA-256")) as client,
            client.producer() as producer,
        ):
            until = trio.current_time() + 3
            while trio.current_time() < until:
                await producer.send("t", b"v")
                await trio.sleep(0.05)
        async with (  # a user that is gone cannot repeat it
            paceline.client.connect(it.address("http", "ws://")) as admin,
            connected(it, it.login("SCRAM-SHA-256")) as client,
        ):
            await admin.admin.users.delete("alice")
            with trio.fail_after(HANG_S), pytest.raises(AuthenticationFailed):
                await ask_for_ever(client)


async def ask_for_ever(client: Client) -> None:
    while True:
        await client.admin.describe_cluster()
        await trio.sleep(0.05)


async def test_over_websocket(tmp_path: Path) -> None:
    policy = Watching()
    async with lone_node(tmp_path, ONE, options={"http": LOGIN}, policy=policy) as node:
        async with paceline.client.connect(node.native) as client:
            await client.admin.create_topic("t", partitions=1, replication_factor=1)
            await client.admin.users.create("alice", PASSWORD, iterations=4096)
        file = tmp_path / "password"
        file.write_text(PASSWORD)
        host, port = node.addresses["http"]
        address = f"ws://{host}:{port}/native"
        with pytest.raises(AuthenticationFailed, match="wants a log-in"):
            async with paceline.client.connect(address):
                pass
        async with paceline.client.connect(
            f"{address}?username=alice&password_file={file}"
        ) as client:
            await writes(client)
        assert policy.producers == {"alice"}


async def test_what_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Watching()
    async with guarded(tmp_path, policy=policy) as it:
        login = it.login("SCRAM-SHA-256")
        monkeypatch.setenv("PACELINE_CLIENT_USERNAME", "alice")
        with pytest.raises(ConfigurationError):
            async with paceline.client.connect(it.address()):
                pass
        monkeypatch.setenv("PACELINE_CLIENT_PASSWORD_FILE", login.password_file)
        async with paceline.client.connect(it.address()) as client:
            await writes(client)
        assert policy.producers == {"alice"}
