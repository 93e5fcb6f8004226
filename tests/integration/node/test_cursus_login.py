"""Who Cursus clients say they are, once the cluster knows its users; before: ``test_cursus.py``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from paceline.client import Client, ClientLogin, ClientSettings, connect
from paceline.wire.native.acls import AclOperation
from tests.integration.node.cursus_client import CursusClient
from tests.integration.node.nodes import RunningNode, lone_node
from tests.integration.node.secured import ONE, acl

PASSWORD = "wonderland"
FAILED = "ERROR: authentication_failed mechanism=PLAIN"
NO_READING = "ERROR: NOT_AUTHORIZED_FOR_TOPIC operation=read topic=t"
ALICE = f"principal=alice auth_token={PASSWORD}"


class Site:
    def __init__(self, node: RunningNode, directory: Path) -> None:
        self._node = node
        self._file = directory / "password"
        self._file.write_text(PASSWORD)

    def cursus(self) -> CursusClient:
        return CursusClient(self._node.addresses["cursus"])

    @asynccontextmanager
    async def root(self) -> AsyncIterator[Client]:
        login = ClientLogin(username="root", password_file=str(self._file))
        async with connect(self._node.native, ClientSettings(login=login)) as client:
            yield client

    async def make_users(self) -> None:
        """The super user, and two who may read."""
        async with connect(self._node.native) as anybody:
            await anybody.admin.users.create("root", PASSWORD, iterations=4096)
        async with self.root() as root:
            for name in ("alice", "bob"):
                await root.admin.users.create(name, PASSWORD, iterations=4096)
                await root.admin.acls.create([acl(name, AclOperation.READ, "t")])


@asynccontextmanager
async def site(directory: Path, options: str = "") -> AsyncIterator[Site]:
    """With a topic that only ``alice`` may read."""
    flags = {**ONE, "security.super_users": "root"}
    given = {"cursus": options} if options else None
    async with lone_node(directory, flags, options=given) as node:
        it = Site(node, directory)
        async with connect(node.native) as anybody:
            configs = {"access.policy": "acl", "access.readers": "alice"}
            await anybody.admin.create_topic(
                "t", partitions=1, replication_factor=1, configs=configs
            )
        yield it


async def test_credentials_are_verified_once_there_are_users(tmp_path: Path) -> None:
    async with site(tmp_path) as it, it.cursus() as early, it.cursus() as client:
        anything = "principal=alice token=anything"
        assert await early.say(f"AUTH {anything}") == "OK principal=alice authenticated=true"
        assert await early.read("CONSUME t 0 0") == []
        await it.make_users()
        assert await early.say("CONSUME t 0 0") == NO_READING, "she proved nothing"
        assert await client.say(f"AUTH {anything}") == FAILED
        assert await client.say("AUTH principal=nobody token=anything") == FAILED
        assert await client.say("CONSUME t 0 0") == NO_READING
        inline = "LIST_OFFSETS topic=t principal=alice auth_token="
        assert await client.say(inline + "anything") == FAILED
        assert (await client.say(inline + PASSWORD)).startswith("OK topic=t")
        assert await client.read("CONSUME t 0 0") == [], "from then on she is alice"
        assert await client.say(f"AUTH {anything}") == FAILED
        assert await client.read("CONSUME t 0 0") == [], "as she was"
        await client.ok(f"AUTH principal=bob token={PASSWORD}")
        assert await client.say("CONSUME t 0 0") == NO_READING, "the topic's own list"


async def test_a_token_serves_as_well_and_its_end_ends_the_connection(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        await it.make_users()
        async with it.root() as root, it.cursus() as client, it.cursus() as by_password:
            token = await root.admin.users.make_token("alice")
            assert await client.say(f"AUTH principal=bob token={token}") == FAILED
            await client.ok(f"AUTH principal=alice token={token}")
            assert await client.read("CONSUME t 0 0") == []
            await by_password.ok(f"AUTH {ALICE}")
            await root.admin.users.revoke("alice", [token.split(".")[1]])
            assert await client.receive() == b"EOF"
            await by_password.send(b"STREAM topic=t partition=0 offset=0 group=g")
            await root.admin.users.delete("alice")
            while await by_password.receive() != b"EOF":
                pass  # what a stream says to be alive


async def test_the_rules_of_a_topic_are_the_administrators(tmp_path: Path) -> None:
    async with site(tmp_path) as it:
        await it.make_users()
        async with it.root() as root:
            rights = (AclOperation.ALTER_CONFIGS, AclOperation.CREATE, AclOperation.ALTER)
            await root.admin.acls.create([acl("alice", each, "t") for each in rights])
        async with it.cursus() as client:
            opened = "CREATE topic=t partitions=1 auth_policy=open"
            await client.ok(f"AUTH {ALICE}")
            answer = await client.say(opened)
            assert answer.startswith("ERROR: NOT_AUTHORIZED"), answer
            await client.ok(f"AUTH principal=bob token={PASSWORD}")
            assert await client.say("CONSUME t 0 0") == NO_READING
            await client.ok(f"AUTH principal=root token={PASSWORD}")
            await client.ok(opened)
            await client.ok(f"AUTH principal=bob token={PASSWORD}")
            assert await client.read("CONSUME t 0 0") == []


async def test_a_listener_that_wants_a_log_in(tmp_path: Path) -> None:
    async with site(tmp_path, "login=required") as it, it.cursus() as client:
        required = "ERROR: authentication_required command="
        await client.ok("PROTOCOL_INFO")
        await client.ok("HELP")
        assert await client.say("LIST") == f"{required}LIST"
        assert await client.say("PUBLISH topic=t partition=0 message=m") == f"{required}PUBLISH"
        assert await client.say("AUTH principal=alice token=anything") == FAILED
        await it.make_users()
        await client.ok(f"AUTH {ALICE}")
        assert await client.say("LIST") == "OK count=1 topics=t"


async def test_create_tells_nobody_what_is_set(tmp_path: Path) -> None:
    """Who may make a topic, but not see its configs, would guess them: of the same there was no
    refusal."""
    async with site(tmp_path) as it:
        await it.make_users()
        async with it.root() as root:
            await root.admin.acls.create([acl("anonymous", AclOperation.CREATE, "t")])
        async with it.cursus() as client:
            create = "CREATE topic=t partitions=1"
            guesses = {
                await client.say(f"{create} read_acl=alice"),
                await client.say(f"{create} read_acl=bob"),
            }
            assert len(guesses) == 1
            assert "NOT_AUTHORIZED" in guesses.pop()
            assert (await client.say(create)).startswith("OK topic=t")
