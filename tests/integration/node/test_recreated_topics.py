"""Transactions that are open while their topic is deleted and made anew under its name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from paceline.client import Client
from paceline.errors import TopicAlreadyExists
from paceline_node.replication.partition import Partition
from tests.integration.node.cursus_client import CursusClient, payloads
from tests.integration.node.machines import connect
from tests.integration.node.nodes import RunningNode, lone_node
from tests.integration.node.test_cursus_transactions import COMMITTED, ONE, begin
from tests.integration.node.test_kafka import TOPIC, make_topic
from tests.integration.node.test_kafka_transactions import TransactionalClient

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RunningNode]:
    async with lone_node(tmp_path, ONE) as up:
        yield up


async def make(client: Client, topic: str) -> None:
    await client.admin.create_topic(topic, partitions=1)


async def make_anew(node: RunningNode, client: Client, topic: str) -> Partition:
    """Once the new one is led here."""
    table = node.node.broker.replicas.table
    with trio.fail_after(60):
        while (before := table.get(topic, 0)) is None:  # noqa: ASYNC110
            await trio.sleep(0.02)
        await client.admin.delete_topic(topic)
        while True:
            try:
                await make(client, topic)
                break
            except TopicAlreadyExists:
                await trio.sleep(0.02)
        while True:
            found = table.get(topic, 0)
            if found is not None and found.topic_id != before.topic_id and found.is_leader:
                return found
            await trio.sleep(0.02)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("writes_on", [False, True])
async def test_its_producer_goes_on_in_the_new_topic(
    node: RunningNode, commits: bool, writes_on: bool
) -> None:
    """The marker made the producer known in the new topic, as one that has written nothing; its
    next batch, which goes on counting, was refused for ever."""
    async with (
        connect(node.native) as admin,
        TransactionalClient(node.addresses["kafka"]) as client,
    ):
        await make_topic(client)
        with trio.fail_after(60):
            while (made := await client.init())[0] != 0:  # noqa: ASYNC110  it has yet to lead
                await trio.sleep(0.02)
        who = made[1]
        assert await client.add(who) == 0
        assert await client.write(who, b"gone") == 0
        assert await client.end(who, commits=commits) == 0
        assert await client.add(who) == 0
        assert await client.write(who, b"gone too") == 0
        partition = await make_anew(node, admin, TOPIC)
        if writes_on:
            assert await client.write(who, b"spans") == 0
        assert await client.end(who, commits=commits) == 0
        with trio.fail_after(60):
            while await client.add(who) != 0:  # noqa: ASYNC110  the end is under way
                await trio.sleep(0.02)
        assert partition.log_end_offset == (2 if writes_on else 0)
        assert await client.write(who, b"after") == 0
        assert await client.end(who, commits=True) == 0
        with trio.fail_after(60):
            while partition.last_stable_offset != partition.log_end_offset:  # noqa: ASYNC110
                await trio.sleep(0.02)
        values, part = await client.seen(committed=True)
        assert values == ([b"spans"] if writes_on else []) + [b"after"]
        aborted = part.aborted_transactions
        assert len(aborted) == (writes_on and not commits)


async def test_what_is_staged_goes_with_its_topic(node: RunningNode) -> None:
    """It went into the new topic, whatever that is for."""
    async with (
        connect(node.native) as admin,
        CursusClient(node.addresses["cursus"]) as client,
    ):
        await make(admin, "t")
        await make(admin, "other")
        with trio.fail_after(60):  # it has yet to lead
            while not (await client.say("INIT_PRODUCER_ID transactional_id=x")).startswith("OK"):  # noqa: ASYNC110
                await trio.sleep(0.02)
        who = await begin(client)
        publish = f"TXN_PUBLISH {who} topic=%s partition=0 seqNum=%d message=%s"
        await client.ok(publish % ("t", 1, "gone"))
        await client.ok(publish % ("other", 2, "stays"))
        partition = await make_anew(node, admin, "t")
        refused = await client.say(publish % ("t", 3, "refused"))
        assert refused == "ERROR: transaction_aborted transactional_id=x"
        told = "OK transactional_id=x state=committed messages=1 offsets=0 dropped=1"
        for _ in range(2):
            assert await client.say(f"END_TXN {who} result=commit") == told
        assert await client.say("TXN_STATUS transactional_id=x") == told
        assert payloads(await client.read(COMMITTED.replace("topic=t", "topic=other"))) == [
            b"stays"
        ]
        assert partition.log_end_offset == 0
        await begin(client)
        await client.ok(publish % ("t", 4, "after"))
        told = "OK transactional_id=x state=committed messages=1 offsets=0"
        assert await client.say(f"END_TXN {who} result=commit") == told
        assert payloads(await client.read(COMMITTED)) == [b"after"]
        assert await client.say("TXN_STATUS transactional_id=x") == told


async def test_what_is_staged_for_a_topic_that_is_gone_is_told(node: RunningNode) -> None:
    """The client was told that all of it was stored."""
    async with (
        connect(node.native) as admin,
        CursusClient(node.addresses["cursus"]) as client,
    ):
        await make(admin, "t")
        await make(admin, "other")
        with trio.fail_after(60):  # it has yet to lead
            while not (await client.say("INIT_PRODUCER_ID transactional_id=x")).startswith("OK"):  # noqa: ASYNC110
                await trio.sleep(0.02)
        who = await begin(client)
        for number, topic in enumerate(("t", "t", "other", "t")):
            publish = f"TXN_PUBLISH {who} topic={topic} partition=0 seqNum={number + 1} message=m"
            await client.ok(publish)
        status = "TXN_STATUS transactional_id=x"
        await admin.admin.delete_topic("t")
        # Nobody asks where its topics are before it ends.
        assert await client.say(status) == "OK transactional_id=x state=open messages=4 offsets=0"
        told = "OK transactional_id=x state=committed messages=1 offsets=0 dropped=3"
        assert await client.say(f"END_TXN {who} result=commit") == told
        assert await client.say(status) == told
        assert (await admin.admin.transactions.describe("x", family="cursus")).staged == 1
        # An epoch of its own, and nothing of the one before.
        await client.ok("INIT_PRODUCER_ID transactional_id=x")
        who = await begin(client, 1)
        assert await client.say(status) == "OK transactional_id=x state=open messages=0 offsets=0"
        await client.ok(f"END_TXN {who} result=abort")
