"""The first user closes the cluster, as the first ACL does, and nobody shuts himself out by it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import confluent_kafka
import pytest
import trio
from confluent_kafka import admin as confluent_admin

from paceline.client import Client, ClientLogin, ClientSettings, connect
from paceline.errors import AuthenticationFailed, AuthorizationFailed, PolicyViolation
from paceline.wire.native.acls import AclFilter, AclOperation
from paceline_cluster.cli import main as cli
from paceline_cluster.errors import Exit
from tests.integration.node.nodes import HANG_S, RunningNode, lone_node
from tests.integration.node.secured import CLUSTER, ONE, acl

PASSWORD = "wonder, land"
WRITE, ALTER = AclOperation.WRITE, AclOperation.ALTER


class Site:
    """A node that names ``root`` its super user, who does not exist yet."""

    def __init__(self, node: RunningNode, directory: Path) -> None:
        self.node = node
        self.password_file = directory / "password"
        self.password_file.write_text(PASSWORD + "\n")

    @asynccontextmanager
    async def client(self, name: str | None) -> AsyncIterator[Client]:
        login = None
        if name is not None:
            login = ClientLogin(username=name, password_file=str(self.password_file))
        async with connect(self.node.native, ClientSettings(login=login)) as client:
            yield client

    async def writes(self, name: str | None) -> None:
        async with self.client(name) as client, client.producer() as producer:
            await producer.send("orders", b"v")

    async def make_root(self) -> None:
        async with self.client(None) as anybody:
            await anybody.admin.users.create("root", PASSWORD, iterations=4096)


@asynccontextmanager
async def site(directory: Path, super_users: str = "root") -> AsyncIterator[Site]:
    flags = {**ONE, "security.super_users": super_users}
    async with lone_node(directory, flags) as node:
        found = Site(node, directory)
        async with found.client(None) as anybody:
            await anybody.admin.create_topic("orders", partitions=1, replication_factor=1)
        yield found


async def test_the_first_user_closes_the_cluster_and_the_last_opens_it(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        await it.writes(None)
        await it.make_root()
        with pytest.raises(AuthorizationFailed):
            await it.writes(None)
        async with it.client(None) as anybody:
            assert await anybody.admin.list_topics() == []
            with pytest.raises(AuthorizationFailed):
                await anybody.admin.users.create("eve", PASSWORD, iterations=4096)
            with pytest.raises(AuthorizationFailed):
                await anybody.admin.users.delete("root")
        await it.writes("root")
        async with it.client("root") as root:
            assert (await root.admin.acls.list()).is_guarded
            await root.admin.users.create("alice", PASSWORD, iterations=4096)
            with pytest.raises(AuthorizationFailed):
                await it.writes("alice")
            await root.admin.acls.create([acl("alice", WRITE, "orders")])
            await it.writes("alice")
            await root.admin.acls.delete(AclFilter())
            with pytest.raises(AuthorizationFailed):  # there are users still
                await it.writes(None)
            await root.admin.users.delete("alice")
            await root.admin.users.delete("root")
        await it.writes(None)


async def test_what_is_closed_by_log_in_is_not_opened_by_a_deletion(tmp_path: Path) -> None:
    """Whoever had any certificate might do everything then."""
    flags = {**ONE, "security.super_users": "root"}
    only = {"http": "login=required"}
    async with lone_node(tmp_path, flags, options=only) as node:
        it = Site(node, tmp_path)
        await it.make_root()
        async with it.client("root") as root:
            with pytest.raises(PolicyViolation, match="make another user or an ACL"):
                await root.admin.users.delete("root")
            assert [each.name for each in await root.admin.users.list()] == ["root"]
            with pytest.raises(AuthorizationFailed):
                await it.writes(None)
            # As long as there are ACLs users may go, and the other way round; not both.
            way_back = acl("anonymous", ALTER, resource=CLUSTER)
            await root.admin.acls.create([way_back, acl("bob", WRITE, "orders")])
        async with it.client(None) as anybody:
            await anybody.admin.users.delete("root")
            await anybody.admin.acls.delete(AclFilter(principal="bob"))
            with pytest.raises(PolicyViolation, match="make another user or an ACL"):
                await anybody.admin.acls.delete(AclFilter())
            assert (await anybody.admin.acls.list()).is_guarded


async def test_kafka_clients_who_do_not_log_in_are_refused(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        await it.make_root()
        host, port = it.node.addresses["kafka"]
        settings = {"bootstrap.servers": f"{host}:{port}"}
        assert await trio.to_thread.run_sync(rdkafka_writes, settings) in (
            confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED,
            confluent_kafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        )
        login = {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "root",
            "sasl.password": PASSWORD,
        }
        assert await trio.to_thread.run_sync(rdkafka_writes, {**settings, **login}) is None


def rdkafka_writes(settings: dict[str, object]) -> int | None:
    """The code of what it was refused by."""
    heard: list[int | None] = []
    producer = confluent_kafka.Producer({**settings, "enable.idempotence": False})
    producer.produce(
        "orders", b"v", on_delivery=lambda error, _: heard.append(error and error.code())
    )
    producer.flush(HANG_S)
    (found,) = heard
    return found


@pytest.mark.parametrize("super_users", ["root", ""])
async def test_a_first_user_who_could_not_administer_is_refused(
    tmp_path: Path, super_users: str
) -> None:
    async with site(tmp_path, super_users) as it:
        async with it.client(None) as anybody:
            with pytest.raises(PolicyViolation, match=r"alice.*security\.super_users"):
                await anybody.admin.users.create("alice", PASSWORD, iterations=4096)
            if super_users:  # nor one who cannot log in
                with pytest.raises(PolicyViolation, match="root"):
                    await anybody.admin.users.create("root", None)
            assert await anybody.admin.users.list() == []
        await it.writes(None)
        host, port = it.node.addresses["kafka"]
        settings = {"bootstrap.servers": f"{host}:{port}"}
        said = await trio.to_thread.run_sync(rdkafka_makes_alice, settings)
        assert "security.super_users" in said
        await it.writes(None)


def rdkafka_makes_alice(settings: dict[str, str]) -> str:
    mechanism = confluent_admin.ScramMechanism.SCRAM_SHA_256
    info = confluent_admin.ScramCredentialInfo(mechanism, 5000)
    wish = confluent_admin.UserScramCredentialUpsertion("alice", info, PASSWORD.encode())
    client = confluent_admin.AdminClient(settings)
    (future,) = client.alter_user_scram_credentials([wish]).values()
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        future.result(HANG_S)
    return str(refused.value)


async def test_an_administrator_does_not_delete_himself(tmp_path: Path) -> None:
    """Neither who may by the nodes' settings, nor who may by an ACL; another one may do it."""
    async with site(tmp_path) as it:
        await it.make_root()
        async with it.client("root") as root:
            await root.admin.users.create("ops", PASSWORD, iterations=4096)
            await root.admin.acls.create([acl("ops", ALTER, resource=CLUSTER)])
            with pytest.raises(PolicyViolation, match="root could not log in"):
                await root.admin.users.delete("root")
        async with it.client("ops") as ops:
            with pytest.raises(PolicyViolation, match="ops could not log in"):
                await ops.admin.users.delete("ops")
            await ops.admin.users.set_password("ops", PASSWORD, iterations=4096)
            await ops.admin.users.delete("root")
        with pytest.raises(AuthenticationFailed):
            await it.writes("root")


async def run(*words: str, code: Exit = Exit.OK) -> None:
    assert await trio.to_thread.run_sync(cli.main, ["user", *words]) == code


async def test_the_command_line_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with site(tmp_path) as it:
        file = str(it.password_file)
        at = f"tcp://{it.node.native}"
        password = ("--password-file", file, "--iterations", "4096")
        await run("create", "alice", "--bootstrap", at, *password, code=Exit.DATA)
        assert "security.super_users" in capsys.readouterr().err
        await run("create", "root", "--bootstrap", at, *password)
        assert "what nothing allows is refused" in capsys.readouterr().err
        at += f"?username=root&password_file={file}"
        await run("create", "alice", "--bootstrap", at, *password)
        assert capsys.readouterr().err == ""
        await run("list", "--bootstrap", at, "--output", "json")
        found = json.loads(capsys.readouterr().out)["users"]
        assert [each["name"] for each in found] == ["alice", "root"]
        await run("delete", "alice", "--bootstrap", at, "--yes")
        assert capsys.readouterr().err == ""
        await run("delete", "root", "--bootstrap", at, "--yes")
        assert "everything is allowed to everybody" in capsys.readouterr().err
