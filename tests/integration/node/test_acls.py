"""ACLs from outside: clients that certificates name, the native protocol, the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from paceline.client import OutOfRange, Position, connect
from paceline.errors import (
    AuthorizationFailed,
    InvalidRequest,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from paceline.wire.native.acls import AclEffect, AclFilter, AclOperation, AclPattern, AclResource
from paceline_cluster.cli import main as cli
from paceline_cluster.errors import Exit
from tests.integration.node.nodes import cluster
from tests.integration.node.secured import CLUSTER, GROUP, ONE, ROOT, Secured, acl, secured

READ, WRITE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL


async def write(site: Secured, name: str | None, topic: str) -> None:
    async with site.client(name) as client, client.producer() as producer:
        await producer.send(topic, b"v")


async def read(site: Secured, name: str | None, topic: str) -> list[bytes | None]:
    async with (
        site.client(name) as client,
        client.consumer(topic, stop=Position.LATEST) as consumer,
    ):
        return [record.value async for record in consumer]


async def topics(site: Secured, name: str | None) -> set[str]:
    async with site.client(name) as client:
        found = await client.admin.list_topics()
        return {each.name for each in found if not each.name.startswith("__")}


async def test_who_may_do_what(tmp_path) -> None:
    async with secured(tmp_path) as site:
        async with site.client(None) as anybody:
            for name in ("orders", "payments"):
                await anybody.admin.create_topic(name, partitions=1, replication_factor=1)
        await write(site, None, "orders")
        assert await topics(site, "ann") == {"orders", "payments"}
        async with site.client(ROOT) as root:
            assert not (await root.admin.acls.list()).is_guarded
            await root.admin.acls.create(
                [
                    acl("ann", WRITE, "orders"),
                    acl("bob", READ, "ord", pattern=AclPattern.PREFIXED),
                    acl("eve", ALL, "*"),
                    acl("eve", READ, "orders", effect=AclEffect.DENY),
                    acl("dan", READ, "orders", host="10.0.0.1"),
                ]
            )
            assert (await root.admin.acls.list()).is_guarded
        await write(site, "ann", "orders")
        assert await read(site, "bob", "orders") == [b"v", b"v"]
        await write(site, "eve", "orders")
        for name in ("ann", "eve", "dan", None):
            with pytest.raises((AuthorizationFailed, UnknownTopicOrPartition)):
                await read(site, name, "orders")
        for name in ("bob", "dan", None):
            with pytest.raises(AuthorizationFailed):
                await write(site, name, "orders")
        assert await topics(site, "ann") == {"orders"}
        assert await topics(site, "eve") == {"orders", "payments"}
        assert await topics(site, "dan") == await topics(site, None) == set()
        assert await topics(site, ROOT) == {"orders", "payments"}
        async with site.client("ann") as ann:
            with pytest.raises(AuthorizationFailed):
                await ann.admin.acls.create([acl("ann", ALL, "*")])
            with pytest.raises(AuthorizationFailed):
                await ann.admin.acls.delete(AclFilter())
            with pytest.raises(AuthorizationFailed):
                await ann.admin.acls.list()
        async with site.client(ROOT) as root:
            gone = await root.admin.acls.delete(AclFilter(effect=AclEffect.DENY))
            assert gone == [acl("eve", READ, "orders", effect=AclEffect.DENY)]
        assert len(await read(site, "eve", "orders")) == 3


async def test_a_refusal_says_who_may_not_do_what(tmp_path) -> None:
    """Also where the client learns only that it may not know of the topic."""
    async with secured(tmp_path) as site:
        async with site.client(ROOT) as root:
            await root.admin.create_topic("orders", partitions=1, replication_factor=1)
            await root.admin.create_topic("payments", partitions=1, replication_factor=1)
            await root.admin.acls.create([acl("ann", READ, "orders")])
        with pytest.raises(AuthorizationFailed, match=r"^anonymous may not describe topic orders$"):
            await read(site, None, "orders")
        with pytest.raises(
            AuthorizationFailed, match=r"^the owner of \S+ may not describe topic payments$"
        ):
            await read(site, "ann", "payments")
        with pytest.raises(
            AuthorizationFailed,
            match=r"^ann may not get a producer id: it takes the right to write a topic$",
        ):
            await write(site, "ann", "orders")


async def test_nobody_shuts_himself_out(tmp_path) -> None:
    alter = acl("ops", AclOperation.ALTER, resource=CLUSTER)
    async with secured(tmp_path) as site, site.client("ops") as ops:
        with pytest.raises(PolicyViolation, match="ops could not change ACLs any more"):
            await ops.admin.acls.create([acl("ann", READ, "orders")])
        await ops.admin.acls.create([acl("ann", READ, "orders"), alter])
        with pytest.raises(PolicyViolation, match="ops could not change ACLs any more"):
            await ops.admin.acls.delete(AclFilter(resource=CLUSTER))
        with pytest.raises(InvalidRequest, match="host 'laptop'"):
            await ops.admin.acls.create([acl("ann", READ, "orders", host="laptop")])
        assert len((await ops.admin.acls.list()).acls) == 2
        await ops.admin.acls.delete(AclFilter())
        assert not (await ops.admin.acls.list()).is_guarded


async def test_they_outlive_the_node(tmp_path) -> None:
    """Who showed no certificate made the first ones; another process of the node goes by them."""
    async with cluster(tmp_path, 1, ONE) as nodes:
        async with connect(nodes.bootstrap_native) as client:
            everybody = acl("anonymous", ALL, resource=CLUSTER)
            await client.admin.acls.create([everybody, acl("ann", READ, "orders")])
        await nodes.crash(0)
        await nodes.start(0)
        async with connect(nodes.bootstrap_native) as client:
            assert len((await client.admin.acls.list()).acls) == 2
            await client.admin.create_topic("orders", partitions=1, replication_factor=1)
            with pytest.raises(AuthorizationFailed):
                async with client.producer() as producer:
                    await producer.send("orders", b"v")


async def run(*words: str, code: Exit = Exit.OK) -> None:
    """``paceline acl``, in a thread."""
    assert await trio.to_thread.run_sync(cli.main, ["acl", *words]) == code


async def test_the_command_line(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    def shown() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["acls"]
        return found

    async with secured(tmp_path) as site:
        root = ("--bootstrap", site.address(ROOT))
        as_json = (*root, "--output", "json")
        await run("list", *root)
        assert "everything is allowed to everybody" in capsys.readouterr().err
        made = ("create", "--principal", "User:ann", "--operation", "read", "--operation", "write")
        await run(*made, "--topic", "ord", "--prefix", *as_json)
        out, err = capsys.readouterr()
        assert "refused from now on" in err
        first, second = json.loads(out)["acls"]
        assert first == {
            "effect": "allow",
            "principal": "ann",
            "host": "*",
            "operation": "read",
            "resource": "topic",
            "pattern": "prefixed",
            "name": "ord",
        }
        assert second["operation"] == "write"
        deny = ("--deny", "--host", "10.0.0.1", "--group", "g")
        await run("create", "--principal", "*", "--operation", "all", *deny, *root)
        await run("create", "--principal", "ann", "--operation", "describe", "--cluster", *root)
        await run("create", "--principal", "ann", "--operation", "write", "--group", "g", *root,
                  code=Exit.DATA)  # fmt: skip
        assert "write of a group: expected" in capsys.readouterr().err
        await run("create", "--principal", "ann", *root, code=Exit.USAGE)
        capsys.readouterr()
        await run("list", *as_json)
        assert [each["resource"] for each in shown()] == ["topic", "topic", "group", "cluster"]
        await run("list", "--topic", "orders", *as_json)
        assert shown() == []
        await run("list", "--topic", "orders", "--matching", *as_json)
        assert [each["operation"] for each in shown()] == ["read", "write"]
        await run("list", "--principal", "ann", "--operation", "write", *as_json)
        assert [each["name"] for each in shown()] == ["ord"]
        await run("delete", "--principal", "ann", *root, code=Exit.USAGE)
        await run("delete", "--yes", *root, code=Exit.USAGE)
        await run("list", "--bootstrap", site.address("eve"), code=Exit.NO_PERMISSION)
        assert "eve may not describe cluster" in capsys.readouterr().err
        mine = ("create", "--principal", "eve", "--operation", "read", "--topic", "orders")
        eve = ("--bootstrap", site.address("eve"))
        await run(*mine, *eve, code=Exit.NO_PERMISSION)
        assert "--principal eve --operation alter --cluster" in capsys.readouterr().err
        await run("create", "--principal", "eve", "--operation", "alter", "--cluster", *root)
        await run(*mine, *eve)
        await run("delete", "--principal", "eve", "--yes", *root)
        capsys.readouterr()
        await run("delete", "--principal", "ann", "--cluster", "--yes", *as_json)
        assert [each["resource"] for each in shown()] == ["cluster"]
        await run("delete", "--all", "--yes", *as_json)
        out, err = capsys.readouterr()
        assert len(json.loads(out)["acls"]) == 3
        assert "everything is allowed to everybody" in err


async def consume_as_a_group(site: Secured, name: str) -> bytes | None:
    async with (
        site.client(name) as client,
        client.consumer("orders", group="g", out_of_range=OutOfRange.EARLIEST) as consumer,
    ):
        found = await anext(aiter(consumer))
        await consumer.commit()
        return found.value


async def write_in_a_transaction(site: Secured, name: str) -> None:
    async with (
        site.client(name) as client,
        client.transactional_producer("pay") as producer,
        producer.transaction(),
    ):
        await producer.send("orders", b"w")


async def test_groups_and_transactions(tmp_path) -> None:
    """What of a topic is allowed alone is not enough."""
    async with secured(tmp_path) as site:
        async with site.client(ROOT) as root:
            await root.admin.create_topic("orders", partitions=1, replication_factor=1)
            await root.admin.acls.create([acl("ann", ALL, "orders")])
        await write(site, "ann", "orders")
        with pytest.raises(AuthorizationFailed, match=r"ann may not [a-z-]+ group g"):
            await consume_as_a_group(site, "ann")
        with pytest.raises(AuthorizationFailed, match=r"ann may not [a-z-]+ transaction pay"):
            await write_in_a_transaction(site, "ann")
        async with site.client(ROOT) as root:
            of_pay = acl("ann", WRITE, "pay", AclResource.TRANSACTIONAL_ID)
            await root.admin.acls.create([acl("ann", READ, "g", GROUP), of_pay])
        assert await consume_as_a_group(site, "ann") == b"v"
        await write_in_a_transaction(site, "ann")
