"""Quotas from outside: who is over one waits, by every protocol, and the others do not."""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

import paceline.client
from paceline.client import Client, ClientLogin, ClientSettings, Position, connect
from paceline.errors import AuthorizationFailed, InvalidRequest
from paceline.wire.batch import build_batch
from paceline.wire.kafka import cluster as cluster_wire
from paceline.wire.kafka import quotas as wire
from paceline.wire.kafka import records
from paceline.wire.native.acls import AclOperation
from paceline.wire.native.quotas import Quota, QuotaChange, QuotaLimit, QuotaOf
from paceline.wire.records import Record
from tests.integration.node.cursus_client import CursusClient
from tests.integration.node.kafka_client import KafkaClient
from tests.integration.node.nodes import RunningNode, lone_node
from tests.integration.node.secured import ONE, acl
from tests.integration.node.test_producer_ids import closed, kafka
from tests.integration.node.v1_client import V1Client

USER, ADDRESS = QuotaOf.USER, QuotaOf.ADDRESS
PRODUCE, FETCH, REQUESTS = QuotaLimit.PRODUCE, QuotaLimit.FETCH, QuotaLimit.REQUESTS
SLACK_S = 0.05
"""By which two clocks may differ."""


def native(node: RunningNode, name: str, directory: Path) -> AbstractAsyncContextManager[Client]:
    login = ClientLogin(username=name, password_file=str(directory / "password"))
    return paceline.client.connect(node.native, ClientSettings(login=login))


def produce_of(size: int) -> records.ProduceRequest:
    batch = bytes(build_batch([Record(-1, 1, None, b"v" * size)]))
    part = records.ProduceRequestTopicPartition(index=0, records=batch)
    topic = records.ProduceRequestTopic(name="t", partition_data=(part,))
    return records.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(topic,))


def fetch_all() -> records.FetchRequest:
    part = records.FetchRequestTopicPartition(
        partition=0, fetch_offset=0, partition_max_bytes=1 << 20
    )
    topic = records.FetchRequestTopic(topic="t", partitions=(part,))
    return records.FetchRequest(max_wait_ms=0, min_bytes=0, topics=(topic,))


async def set_(client: Client, *quotas: tuple[QuotaOf, str | None, QuotaLimit, float]) -> None:
    await client.admin.quotas.alter([QuotaChange(*each) for each in quotas])


async def test_a_kafka_client_is_told_and_then_not_read(tmp_path) -> None:
    async with closed(tmp_path) as (node, root):
        await root.admin.acls.create([acl("alice", AclOperation.READ, "t")])
        await set_(root, (USER, "alice", PRODUCE, 2000), (USER, "alice", FETCH, 4000))
        async with kafka(node, "alice") as alice, kafka(node, "bob") as bob:
            begun = time.monotonic()
            made = await alice.ask(produce_of(5000), 9)
            assert made.responses[0].partition_responses[0].error_code == 0, "delayed, not refused"
            assert 1000 < made.throttle_time_ms <= 2000
            waiting = await alice.send(cluster_wire.MetadataRequest(topics=()), 9)
            other = await bob.ask(produce_of(5000), 9)
            assert other.throttle_time_ms == 0, "it is alice's quota"
            await alice.read(*waiting)
            assert time.monotonic() - begun >= made.throttle_time_ms / 1000 - SLACK_S

            read = await alice.ask(fetch_all(), 12)
            assert len(read.responses[0].partitions[0].records) > 9000
            assert 1000 < read.throttle_time_ms <= 2000
            async with kafka(node, "alice") as again:
                assert (await again.ask(fetch_all(), 12)).throttle_time_ms > 1000, "it is alice's"


async def test_native_clients_hold_their_data_back_and_nothing_else(tmp_path) -> None:
    async with closed(tmp_path) as (node, root):
        await root.admin.acls.create([acl("alice", AclOperation.READ, "t")])
        await set_(root, (USER, "alice", PRODUCE, 3000), (USER, "alice", FETCH, 3000))
        async with native(node, "alice", tmp_path) as alice:
            begun = time.monotonic()
            async with alice.producer() as producer:
                for _ in range(3):
                    await producer.send("t", b"v" * 3000)
                    await producer.flush()
                    asked = time.monotonic()
                    assert await alice.admin.list_topics(), "is not data"
                    assert time.monotonic() - asked < 30
            assert time.monotonic() - begun >= 1.0 - SLACK_S
            begun = time.monotonic()
            async with alice.consumer("t", stop=Position.LATEST) as consumer:
                assert len([record async for record in consumer]) == 3


async def test_whoever_asks_too_often_is_asked_to_wait(tmp_path) -> None:
    async with lone_node(tmp_path, ONE) as node:
        async with connect(node.native) as client:
            await client.admin.create_topic("t", partitions=1, replication_factor=1)
            await set_(client, (ADDRESS, "127.0.0.1", REQUESTS, 10))
        async with KafkaClient(node.addresses["kafka"]) as asking:
            begun, throttled = time.monotonic(), 0
            for _ in range(18):
                told = await asking.ask(cluster_wire.MetadataRequest(topics=()), 9)
                throttled = max(throttled, told.throttle_time_ms)
            assert throttled > 0
            assert time.monotonic() - begun >= 0.5


async def test_v1_and_cursus_wait_too(tmp_path) -> None:
    async with lone_node(tmp_path, ONE) as node:
        async with connect(node.native) as client:
            await client.admin.create_topic("t", partitions=1, replication_factor=1)
            await set_(client, (USER, "anonymous", PRODUCE, 2000))
        begun = time.monotonic()
        async with V1Client(node.v1) as line:
            for _ in range(2):
                await line.ok("PRODUCE", f"t k:{'v' * 3000} acks=all")
        assert time.monotonic() - begun >= 0.5 - SLACK_S
        async with CursusClient(node.addresses["cursus"]) as frames:
            for _ in range(2):
                assert "OK" in await frames.say("PUBLISH topic=t acks=1 message=" + "v" * 3000)
        assert time.monotonic() - begun >= 3.0


async def test_kafka_sets_and_shows_the_same_quotas(tmp_path) -> None:
    def wish(kind: str, name: str | None, **values: float | None) -> wire.AlterClientQuotasRequest:
        ops = tuple(
            wire.AlterClientQuotasRequestEntryOp(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        )
        entity = wire.AlterClientQuotasRequestEntryEntity(entity_type=kind, entity_name=name)
        entry = wire.AlterClientQuotasRequestEntry(entity=(entity,), ops=ops)
        return wire.AlterClientQuotasRequest(entries=(entry,))

    def asked(kind: str, match: int, name: str | None = None) -> wire.DescribeClientQuotasRequest:
        component = wire.DescribeClientQuotasRequestComponent(
            entity_type=kind, match_type=match, match=name
        )
        return wire.DescribeClientQuotasRequest(components=(component,))

    async with lone_node(tmp_path, ONE) as node, KafkaClient(node.addresses["kafka"]) as client:
        for version in 0, 1:
            request = wish("user", "ann", producer_byte_rate=1e6, consumer_byte_rate=2e6)
            [done] = (await client.ask(request, version)).entries
            assert (done.error_code, done.entity[0].entity_name) == (0, "ann")
        [done] = (await client.ask(wish("user", None, request_rate=50.5), 1)).entries
        assert done.error_code == 0
        [done] = (await client.ask(wish("ip", "::ffff:10.0.0.1", request_rate=5), 1)).entries
        assert done.error_code == 0
        for wrong in (
            wish("client-id", "c", producer_byte_rate=1),
            wish("user", "ann", request_percentage=1),
            wish("user", "ann", producer_byte_rate=-1),
            wish("user", "node:1", producer_byte_rate=1),
            wish("ip", "nowhere", producer_byte_rate=1),
        ):
            [done] = (await client.ask(wrong, 1)).entries
            assert done.error_code == InvalidRequest.code, wrong

        [entry] = (await client.ask(asked("user", wire.EXACT, "ann"), 1)).entries
        assert {each.key: each.value for each in entry.values} == {
            "producer_byte_rate": 1e6,
            "consumer_byte_rate": 2e6,
        }
        [entry] = (await client.ask(asked("user", wire.DEFAULT), 0)).entries
        assert (entry.entity[0].entity_name, entry.values[0].value) == (None, 50.5)
        assert len((await client.ask(asked("user", wire.ANY), 1)).entries) == 2
        assert not (await client.ask(asked("client-id", wire.ANY), 1)).entries
        assert (await client.ask(asked("user", 9), 1)).error_code == InvalidRequest.code
        await client.ask(wish("user", "ann", producer_byte_rate=None), 1)
        async with connect(node.native) as root:
            assert await root.admin.quotas.list() == [
                Quota(USER, None, REQUESTS, 50.5),
                Quota(USER, "ann", FETCH, 2e6),
                Quota(ADDRESS, "10.0.0.1", REQUESTS, 5.0),
            ]


async def test_only_administrators_set_quotas(tmp_path) -> None:
    async with closed(tmp_path) as (node, _), native(node, "alice", tmp_path) as alice:
        with pytest.raises(AuthorizationFailed):
            await set_(alice, (USER, "bob", PRODUCE, 1))
        with pytest.raises(AuthorizationFailed):
            await alice.admin.quotas.list()
