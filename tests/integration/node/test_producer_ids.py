"""Idempotent producers of a closed cluster are not fenced by others (services/DESIGN 2.4)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import paceline.client
from paceline.client import Client, ClientLogin, ClientSettings
from paceline.wire.batch import build_batch
from paceline.wire.kafka import records, transactions
from paceline.wire.native.acls import AclOperation, AclResource
from paceline.wire.records import Record
from tests.integration.node.kafka_client import KafkaClient
from tests.integration.node.nodes import RunningNode, lone_node
from tests.integration.node.secured import ONE, acl
from tests.integration.node.test_kafka_login import log_in

NOT_YOURS = 31
"""CLUSTER_AUTHORIZATION_FAILED, as Kafka says for producer ids."""
PASSWORD = "wonder, land=1"


@asynccontextmanager
async def closed(directory: Path) -> AsyncIterator[tuple[RunningNode, Client]]:
    """With ``alice`` and ``bob``, who may both write to the topic ``t``."""
    file = directory / "password"
    file.write_text(PASSWORD)
    login = ClientLogin(username="root", password_file=str(file))
    async with lone_node(directory, {**ONE, "security.super_users": "root"}) as node:
        async with paceline.client.connect(node.native) as anybody:
            await anybody.admin.create_topic("t", partitions=1, replication_factor=1)
            await anybody.admin.users.create("root", PASSWORD, iterations=4096)
        async with paceline.client.connect(node.native, ClientSettings(login=login)) as root:
            for name in "alice", "bob":
                await root.admin.users.create(name, PASSWORD, iterations=4096)
                await root.admin.acls.create([acl(name, AclOperation.WRITE, "t")])
            right = acl("alice", AclOperation.WRITE, "tx", AclResource.TRANSACTIONAL_ID)
            await root.admin.acls.create([right])
            yield node, root


@asynccontextmanager
async def kafka(node: RunningNode, name: str) -> AsyncIterator[KafkaClient]:
    async with KafkaClient(node.addresses["kafka"]) as client:
        assert (await log_in(client, name, PASSWORD)).error_code == 0
        yield client


async def identity(client: KafkaClient, transactional_id: str | None = None) -> int:
    request = transactions.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000
    )
    while True:
        made = await client.ask(request, 3)
        if made.error_code == 0:
            return int(made.producer_id)
        assert made.error_code in (14, 15, 16), made


async def write(client: KafkaClient, producer: int, sequence: int, epoch: int = 0) -> int:
    """What a batch is answered."""
    batch = build_batch(
        [Record(-1, 1, None, b"v")],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    part = records.ProduceRequestTopicPartition(index=0, records=bytes(batch))
    topic = records.ProduceRequestTopic(name="t", partition_data=(part,))
    request = records.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=(topic,))
    answer = await client.ask(request, 7)
    return int(answer.responses[0].partition_responses[0].error_code)


async def test_nobody_writes_by_anothers_id(tmp_path: Path) -> None:
    async with closed(tmp_path) as (node, _), kafka(node, "alice") as alice:
        hers = await identity(alice)
        assert await write(alice, hers, 0) == 0
        async with kafka(node, "bob") as bob:
            for epoch in 0, 1, 32767:
                found = await write(bob, hers, 1, epoch)
                assert found == NOT_YOURS
            assert await write(bob, await identity(bob), 0) == 0
        assert await write(alice, hers, 1) == 0, "she was not fenced"
        async with kafka(node, "alice") as again:
            assert await write(again, hers, 2) == 0, "hers on any connection"


async def test_ids_cannot_be_guessed(tmp_path: Path) -> None:
    async with closed(tmp_path) as (node, _), kafka(node, "alice") as alice:
        ids = [await identity(alice) for _ in range(5)]
        assert all(abs(one - other) > 1000 for one in ids for other in ids if one != other), ids
        assert len(set(ids)) == 5


async def test_the_id_of_a_transactional_producer_is_nobodys_without_a_transaction(
    tmp_path: Path,
) -> None:
    async with closed(tmp_path) as (node, _), kafka(node, "alice") as alice:
        hers = await identity(alice, "tx")
        async with kafka(node, "bob") as bob:
            assert await write(bob, hers, 0, 1) == NOT_YOURS


async def test_our_own_producer(tmp_path: Path) -> None:
    file = tmp_path / "password"
    async with closed(tmp_path) as (node, _):
        login = ClientLogin(username="alice", password_file=str(file))
        async with (
            paceline.client.connect(node.native, ClientSettings(login=login)) as client,
            client.producer() as producer,
        ):
            for _ in range(3):
                await producer.send("t", b"v")


async def test_in_an_open_cluster_they_are_as_the_controller_gives_them_out(
    tmp_path: Path,
) -> None:
    async with (
        lone_node(tmp_path, ONE) as node,
        KafkaClient(node.addresses["kafka"]) as client,
    ):
        first = await identity(client)
        assert [await identity(client) for _ in range(3)] == [first + 1, first + 2, first + 3]
