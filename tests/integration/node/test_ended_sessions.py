"""Connections of a user who is deleted end, whatever they wait for; others go on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from paceline.client import Client, ClientLogin, ClientSettings, ClientTls, connect
from paceline.errors import AuthenticationFailed
from paceline.wire.kafka import sasl
from tests.integration.node.certificates import Certificates
from tests.integration.node.kafka_client import KafkaClient
from tests.integration.node.nodes import HANG_S, RunningNode, lone_node
from tests.integration.node.secured import ONE
from tests.integration.node.test_kafka_login import METADATA, PASSWORD, log_in
from tests.integration.node.test_native_login import ask_for_ever

NAMES = ("root", "alice", "bob")


class Site:
    def __init__(self, node: RunningNode, directory: Path) -> None:
        self.kafka = node.addresses["kafka"]
        host, port = node.addresses["http"]
        self.websocket = f"ws://{host}:{port}"
        self.native = node.native
        self._file = directory / "password"
        self._file.write_text(PASSWORD)

    @asynccontextmanager
    async def client(self, name: str, address: str = "") -> AsyncIterator[Client]:
        login = ClientLogin(username=name, password_file=str(self._file))
        async with connect(address or self.native, ClientSettings(login=login)) as client:
            yield client

    @asynccontextmanager
    async def kafka_client(self, name: str) -> AsyncIterator[KafkaClient]:
        async with KafkaClient(self.kafka) as client:
            assert (await log_in(client, name)).error_code == 0
            yield client


@asynccontextmanager
async def site(directory: Path) -> AsyncIterator[Site]:
    """All of its users may do everything."""
    flags = {**ONE, "security.super_users": ",".join(NAMES)}
    async with lone_node(directory, flags) as node:
        it = Site(node, directory)
        async with connect(node.native) as anybody:
            await anybody.admin.create_topic("t", partitions=1, replication_factor=1)
            await anybody.admin.users.create("root", PASSWORD, iterations=4096)
        async with it.client("root") as root:
            for name in NAMES[1:]:
                await root.admin.users.create(name, PASSWORD, iterations=4096)
        yield it


async def test_a_silent_kafka_connection_ends_with_its_user(tmp_path: Path) -> None:
    async with (
        site(tmp_path) as it,
        it.client("root") as root,
        it.kafka_client("alice") as alice,
        it.kafka_client("bob") as bob,
    ):
        await root.admin.users.set_password("alice", "another one", iterations=4096)
        assert (await alice.ask(METADATA, 5)).brokers, "it stays, as with Kafka"
        await root.admin.users.delete("alice")
        with trio.fail_after(HANG_S):
            assert await alice.read_frame() is None
        assert (await bob.ask(METADATA, 5)).brokers
        gone = tuple(  # Kafka's way of deleting a user
            sasl.AlterUserScramCredentialsRequestDeletion(name="bob", mechanism=mechanism)
            for mechanism in (1, 2)
        )
        async with it.kafka_client("root") as by_kafka:
            request = sasl.AlterUserScramCredentialsRequest(deletions=gone)
            [answer] = (await by_kafka.ask(request, 0)).results
            assert answer.error_code == 0, answer.error_message
            with trio.fail_after(HANG_S):
                assert await bob.read_frame() is None
            assert (await by_kafka.ask(METADATA, 5)).brokers


@pytest.mark.parametrize("over_websocket", [False, True])
async def test_a_native_consumer_that_waits_ends_with_its_user(
    tmp_path: Path, over_websocket: bool
) -> None:
    async with site(tmp_path) as it, it.client("root") as root, it.client("bob") as bob:
        address = it.websocket if over_websocket else ""
        async with it.client("alice", address) as alice, alice.consumer("t") as consumer:
            waits = aiter(consumer)
            async with bob.producer() as producer:
                await producer.send("t", b"v")
            assert (await anext(waits)).value == b"v"
            await root.admin.users.delete("alice")
            with trio.fail_after(HANG_S), pytest.raises(AuthenticationFailed):
                await anext(waits)
        async with bob.producer() as producer:
            await producer.send("t", b"v")


async def test_who_revokes_his_own_token_is_told_so(tmp_path: Path) -> None:
    """And is let in no more."""
    certificates = Certificates(tmp_path)
    flags = {**ONE, **certificates.settings, "security.super_users": "root"}
    async with lone_node(tmp_path, flags, tls=("native",)) as node:
        settings = ClientSettings(tls=ClientTls(authority=certificates.authority))
        async with connect(node.native, settings) as anybody:
            await anybody.admin.users.create("root", PASSWORD, iterations=4096)
        file = tmp_path / "secret"
        file.write_text(PASSWORD)
        login = ClientLogin(username="root", password_file=str(file), mechanism="PLAIN")
        settings = replace(settings, login=login)
        async with connect(node.native, settings) as root:
            token = await root.admin.users.make_token("root")
        file.write_text(token)
        async with connect(node.native, settings) as root:
            await root.admin.users.revoke("root", [token.split(".")[1]])
            with trio.fail_after(HANG_S), pytest.raises(AuthenticationFailed):
                await ask_for_ever(root)
