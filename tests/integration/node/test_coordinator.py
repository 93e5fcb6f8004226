"""Consumers driven by their coordinator, over real sockets: versions, layouts, rounds, refusals."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from paceline.errors import ErrorCode
from paceline.wire.batch import build_batch
from paceline.wire.coordinator.codec import Ask, request_frame
from paceline.wire.coordinator.messages import (
    ConsultResponse,
    PingRequest,
    RegisterResponse,
    StartRequest,
)
from paceline.wire.kafka import offsets, records, topics
from paceline.wire.records import Record
from paceline_node.listeners.kafka.errors import FORBIDDEN
from paceline_node.security.principals import (
    Operation,
    Policy,
    Principal,
    Resource,
    ResourceKind,
    refuse,
)
from tests.integration.node.consumer import ScriptedConsumer, registration
from tests.integration.node.kafka_client import HANG_S, KafkaClient
from tests.integration.node.nodes import RunningNode, cluster, lone_node

pytestmark = pytest.mark.virtual_time

ONE = {
    "topics.partitions": "1",
    "topics.replication_factor": "1",
    "topics.min_insync_replicas": "1",
}
NOW = 1_700_000_000_000
_NO_LEADER = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


@asynccontextmanager
async def node_with(
    directory: Path, policy: Policy | None = None, **counts: int
) -> AsyncIterator[RunningNode]:
    """A node with topics of so many partitions, which it leads."""
    async with lone_node(directory, ONE, policy=policy) as node:
        async with KafkaClient(node.addresses["kafka"]) as client:
            for name, count in counts.items():
                await make_topic(client, name, count)
        await coordinates(node)
        yield node


async def make_topic(client: KafkaClient, name: str, count: int) -> None:
    wanted = topics.CreateTopicsRequestTopic(name=name, num_partitions=count, replication_factor=1)
    [made] = (await client.ask(topics.CreateTopicsRequest(topics=(wanted,)), 5)).topics
    assert made.error_code == 0, made.error_message
    asked = [
        records.ListOffsetsRequestTopicPartition(partition_index=number, timestamp=-1)
        for number in range(count)
    ]
    topic = records.ListOffsetsRequestTopic(name=name, partitions=tuple(asked))
    with trio.fail_after(HANG_S):
        while True:  # as clients do: until it leads
            [told] = (await client.ask(records.ListOffsetsRequest(topics=(topic,)), 5)).topics
            if not any(each.error_code in _NO_LEADER for each in told.partitions):
                return  # or who asks may not know
            await trio.sleep(0.02)


async def coordinates(node: RunningNode) -> None:
    """Wait until a consumer of any group can register: all groups of their family have one
    coordinator, which says nothing of other families' groups."""
    with trio.fail_after(HANG_S):
        while True:
            async with ScriptedConsumer(node.addresses["kafka"]) as consumer:
                asked = registration("probe", "nothing", group="probe", auto_commit=0)
                told = await consumer.register(asked)
                if told is not None and told.error == 0:
                    return
            await trio.sleep(0.02)


async def produce(client: KafkaClient, topic: str, partition: int, count: int) -> None:
    values = [b"%d" % at for at in range(count)]
    await produce_values(client, topic, partition, values)


async def produce_values(
    client: KafkaClient, topic: str, partition: int, values: Sequence[bytes]
) -> None:
    """Once somebody leads."""
    batch = build_batch([Record(-1, NOW, None, value) for value in values])
    part = records.ProduceRequestTopicPartition(index=partition, records=bytes(batch))
    request = records.ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=(records.ProduceRequestTopic(name=topic, partition_data=(part,)),),
    )
    with trio.fail_after(HANG_S):
        while True:
            [entry] = (await client.ask(request, 9)).responses
            if entry.partition_responses[0].error_code == 0:
                return
            await trio.sleep(0.02)


async def test_consult_names_the_coordinator_in_every_layout(tmp_path) -> None:
    async with node_with(tmp_path) as node:
        address = node.addresses["kafka"]
        for version, is_layout_7 in ((0, True), (0, False), (1, False)):
            async with ScriptedConsumer(address, version, is_layout_7=is_layout_7) as consumer:
                for _ in range(2):  # and the connection stays as it was
                    told = await consumer.consult("g")
                    assert told.error == 0
                    body = told.body
                    assert isinstance(body, ConsultResponse)
                    assert body.coordinator_id == 0
                    [broker] = body.brokers
                    assert (broker.id, broker.host, broker.port) == (0, *address)
                    assert broker.creator_id.startswith("127.0.0.1-")
                    assert (body.coordinator_epoch >= 0) is (version == 1)


async def test_consult_beside_produce_and_what_it_refuses(tmp_path) -> None:
    async with (
        node_with(tmp_path, t=1) as node,
        ScriptedConsumer(node.addresses["kafka"]) as consumer,
    ):
        await produce(consumer, "t", 0, 1)
        header = consumer.header(Ask.CONSULT, 7)
        await consumer.put(header, registration("x"))
        frame = await consumer.read_frame()
        assert frame is not None
        assert frame[4:] == b"\0\1\0\x23"  # the highest version, and error 35
        assert len(frame) == 8
        too_long = request_frame(consumer.header(Ask.CONSULT, 0), registration("x"))
        await consumer.stream.send_all(too_long)
        frame = await consumer.read_frame()
        assert frame is not None
        assert int.from_bytes(frame[6:8], "big") == ErrorCode.INVALID_REQUEST
        assert (await consumer.consult()).error == 0
        await produce(consumer, "t", 0, 1)


@pytest.mark.parametrize(("version", "is_layout_7"), [(0, True), (0, False), (1, False)])
async def test_a_consumer_is_driven_and_its_positions_survive(
    tmp_path, version: int, is_layout_7: bool
) -> None:
    async with node_with(tmp_path, t=2) as node:
        address = node.addresses["kafka"]
        async with KafkaClient(address) as client:
            await produce(client, "t", 0, 10)
            await produce(client, "t", 1, 10)
        async with ScriptedConsumer(address, version, is_layout_7=is_layout_7) as one:
            told = await one.register(registration("a", "t"))
            if version:
                assert told is not None
                assert isinstance(told.body, RegisterResponse)
                assert told.body.heartbeat_interval_ms == 300
            else:
                header, body = await one.asked()  # at once, the only answer there is
                assert isinstance(body, PingRequest)
                await one.answer(header, body)
            start = await one.until(Ask.START)
            assert isinstance(start, StartRequest)
            assert sorted(one.positions) == [("t", 0), ("t", 1)]
            assert set(one.positions.values()) == {0}
            if version:
                assert (start.generation, start.partitions[0].leader_id) == (1, 0)
                assert start.partitions[0].leader_epoch >= 0
            one.positions["t", 0] = 4
            await one.until(Ask.PING)
            async with ScriptedConsumer(address, version, is_layout_7=is_layout_7) as two:
                await two.register(registration("b", "t"))
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(one.until, Ask.START)
                    await two.until(Ask.START)
                assert (one.positions, two.positions) == ({("t", 0): 4}, {("t", 1): 0})
                one.positions["t", 0] = 9
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(two.until, Ask.PING)
                    await one.until(Ask.PING)
                await one.stream.aclose()
                await two.until(Ask.START)
                assert two.positions == {("t", 0): 9, ("t", 1): 0}


async def test_where_a_consumer_begins(tmp_path) -> None:
    async with node_with(tmp_path, t=1) as node:
        address = node.addresses["kafka"]
        async with KafkaClient(address) as client:
            await produce(client, "t", 0, 10)
        async with ScriptedConsumer(address) as consumer:
            await consumer.register(registration("a", "t", auto_offset_rest="largest"))
            await consumer.until(Ask.START)
            assert consumer.positions == {("t", 0): 10}
        async with KafkaClient(address) as client:
            await produce(client, "t", 0, 10)
        async with ScriptedConsumer(address) as consumer:  # the end was committed
            await consumer.register(registration("b", "t", auto_offset_rest="largest"))
            await consumer.until(Ask.START)
            assert consumer.positions == {("t", 0): 10}


async def test_consumers_that_commit_by_themselves(tmp_path) -> None:
    async with node_with(tmp_path, t=1) as node:
        address = node.addresses["kafka"]
        async with KafkaClient(address) as client, ScriptedConsumer(address) as consumer:
            await produce(client, "t", 0, 10)
            await consumer.register(registration("a", "t", auto_commit=0))
            await consumer.until(Ask.START)
            for generation, who, error in (
                (1, "a", ErrorCode.NONE),
                (0, "a", ErrorCode.ILLEGAL_GENERATION),
                (1, "b", ErrorCode.UNKNOWN_MEMBER_ID),
            ):
                part = offsets.OffsetCommitRequestTopicPartition(
                    partition_index=0, committed_offset=7, committed_metadata="m"
                )
                request = offsets.OffsetCommitRequest(
                    group_id="g",
                    generation_id=generation,
                    member_id=who,
                    topics=(offsets.OffsetCommitRequestTopic(name="t", partitions=(part,)),),
                )
                [topic] = (await client.ask(request, 1)).topics
                assert topic.partitions[0].error_code == error
            asked = offsets.OffsetFetchRequest(
                group_id="g",
                topics=(offsets.OffsetFetchRequestTopic(name="t", partition_indexes=(0,)),),
            )
            for version in (0, 1):
                [topic] = (await client.ask(asked, version)).topics
                assert topic.partitions[0].committed_offset == 7
                assert topic.partitions[0].metadata == "m"
        async with ScriptedConsumer(address) as consumer:
            await consumer.register(registration("b", "t", auto_commit=0))
            await consumer.until(Ask.START)
            assert consumer.positions == {("t", 0): 7}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"auto_commit": 2}, ErrorCode.INVALID_REQUEST),
        ({"auto_offset_rest": "Smallest"}, ErrorCode.INVALID_REQUEST),
        ({"pattern_kind": 1}, ErrorCode.INVALID_REQUEST),
        ({"heartbeat_interval_ms": 99}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"max_heartbeat_retries": 101}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"name": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_refused_registrations_are_told_and_closed(
    tmp_path, change: dict[str, object], code: ErrorCode
) -> None:
    async with lone_node(tmp_path, ONE) as node:
        await coordinates(node)
        name = str(change.pop("name", "a"))
        request = registration(name, "t", "u", **change)  # type: ignore[arg-type]
        async with ScriptedConsumer(node.addresses["kafka"]) as consumer:
            told = await consumer.register(request)
            assert told is not None
            assert (told.error, told.body) == (code, None)
            await consumer.closed()
        async with ScriptedConsumer(node.addresses["kafka"], 0) as consumer:
            if "pattern_kind" not in change:  # which version 0 does not have
                await consumer.register(request)
                assert await consumer.read_frame() is None


class _Denies(Policy):
    """Nobody commits; topic ``secret`` is read by nobody."""

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> None:
        is_secret = resource.name == "secret" and operation is not Operation.CREATE
        if is_secret or operation is Operation.COMMIT_OFFSETS:
            refuse(principal, operation, resource)


async def test_consumers_do_what_they_may(tmp_path) -> None:
    async with node_with(tmp_path, _Denies(), t=1, secret=1) as node:
        address = node.addresses["kafka"]
        async with ScriptedConsumer(address) as consumer:
            told = await consumer.register(registration("a", "t"))
            assert told is not None
            assert told.error == FORBIDDEN[ResourceKind.GROUP]
        async with ScriptedConsumer(address, 0) as consumer:
            await consumer.register(registration("a", auto_commit=0))
            start = await consumer.until(Ask.START)
            assert [each.topic for each in start.partitions] == ["t"]


@pytest.mark.parametrize(
    "answer",
    [
        b"\0\0\0\x08\0\0\0\x63\0\1\0\0",  # another correlation id
        b"\0\0\0\x04\0\0\0\1",  # no header
        b"\0\0\0\x09\0\0\0\1\0\1\0\0\0",  # a body that is cut short
        b"\x7f\xff\xff\xff",  # too large
        b"\0\0\0\x01",  # too small
    ],
)
async def test_a_malformed_answer_fails_the_consumer_at_once(tmp_path, answer: bytes) -> None:
    async with (
        node_with(tmp_path, t=1) as node,
        ScriptedConsumer(node.addresses["kafka"]) as bad,
        ScriptedConsumer(node.addresses["kafka"]) as good,
    ):
        slow = {"heartbeat_interval_ms": 20_000}
        await bad.register(registration("a", "t", **slow))
        await bad.asked()
        await bad.stream.send_all(answer)
        await bad.closed()
        await good.register(registration("b", "t", **slow))
        await good.until(Ask.START)
        assert good.positions == {("t", 0): 0}


async def test_only_the_coordinator_asks_on_a_channel(tmp_path) -> None:
    async with node_with(tmp_path, t=1) as node:
        address = node.addresses["kafka"]
        async with ScriptedConsumer(address) as consumer:
            await consumer.register(registration("a", "t"))
            await consumer.until(Ask.START)
            await consumer.put(consumer.header(Ask.REGISTER), registration("a", "t"))
            await consumer.closed()
        async with ScriptedConsumer(address) as consumer:  # in one breath
            one = request_frame(consumer.header(Ask.REGISTER), registration("a", "t"))
            two = request_frame(consumer.header(Ask.PING), PingRequest())
            await consumer.stream.send_all(one + two)
            await consumer.closed()
        async with ScriptedConsumer(address) as consumer:
            await consumer.put(consumer.header(Ask.PING), PingRequest())
            await consumer.closed()


async def test_the_same_consumer_twice(tmp_path) -> None:
    async with (
        node_with(tmp_path, t=1) as node,
        ScriptedConsumer(node.addresses["kafka"]) as first,
        ScriptedConsumer(node.addresses["kafka"]) as second,
    ):
        slow = {"heartbeat_interval_ms": 20_000}
        await first.register(registration("a", "t", **slow))
        await first.until(Ask.START)
        await second.register(registration("a", "t", **slow, generation=1))
        header, stop = await first.asked()
        assert (header.ask, stop.reason) == (Ask.STOP, 2)
        await first.answer(header, stop)
        await first.closed()
        start = await second.until(Ask.START)
        assert start.generation == 1


async def test_a_silent_consumer_is_failed(tmp_path) -> None:
    async with (
        node_with(tmp_path, t=2) as node,
        ScriptedConsumer(node.addresses["kafka"]) as silent,
        ScriptedConsumer(node.addresses["kafka"]) as other,
    ):
        await silent.register(registration("a", "t", max_heartbeat_retries=0))
        await silent.until(Ask.START)
        await other.register(registration("b", "t"))
        header, _ = await silent.asked()
        while header.ask is Ask.PING:
            await silent.answer(header, PingRequest())
            header, _ = await silent.asked()
        assert header.ask is Ask.STOP
        while len(other.positions) < 2:
            await other.until(Ask.START)
        await silent.closed()


async def test_new_partitions_and_topics_begin_a_round(tmp_path) -> None:
    async with (
        node_with(tmp_path, t=1) as node,
        KafkaClient(node.addresses["kafka"]) as client,
        ScriptedConsumer(node.addresses["kafka"]) as consumer,
    ):
        await consumer.register(registration("a", "[tu]", pattern_kind=1))
        await consumer.until(Ask.START)
        more = topics.CreatePartitionsRequestTopic(name="t", count=3)
        await client.ask(topics.CreatePartitionsRequest(topics=(more,), timeout_ms=5000), 2)
        while len(consumer.positions) < 3:
            await consumer.until(Ask.START)
        await make_topic(client, "u", 1)
        while ("u", 0) not in consumer.positions:
            await consumer.until(Ask.START)
        await client.ask(topics.DeleteTopicsRequest(topic_names=("t",), timeout_ms=5000), 3)
        while ("t", 0) in consumer.positions or not consumer.positions:
            await consumer.until(Ask.START)
        assert set(consumer.positions) == {("u", 0)}


async def test_another_node_coordinates_after_a_crash_and_waits_for_all(tmp_path) -> None:
    async with cluster(tmp_path, 3) as nodes:
        async with KafkaClient(nodes.up[0].addresses["kafka"]) as client:
            wanted = topics.CreateTopicsRequestTopic(
                name="t", num_partitions=2, replication_factor=3
            )
            await client.ask(topics.CreateTopicsRequest(topics=(wanted,)), 5)
        first = await _coordinator(nodes.up)
        async with (
            ScriptedConsumer(nodes.up[first].addresses["kafka"]) as a,
            ScriptedConsumer(nodes.up[first].addresses["kafka"]) as b,
        ):
            await a.register(registration("a", "t"))
            await b.register(registration("b", "t"))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(a.until, Ask.START)
                nursery.start_soon(b.until, Ask.START)
            wrong = next(number for number in nodes.up if number != first)
            async with ScriptedConsumer(nodes.up[wrong].addresses["kafka"]) as lost:
                told = await lost.register(registration("c", "t"))
                assert told is not None
                assert told.error == ErrorCode.NOT_COORDINATOR
                await lost.closed()
            epoch = a.generation
            await nodes.crash(first)
            await a.closed()
        second = await _coordinator(nodes.up)
        assert second != first
        async with ScriptedConsumer(nodes.up[second].addresses["kafka"]) as a:
            told = await _registered(a, registration("a", "t", generation=epoch))
            assert told.generation == epoch
            start = await a.until(Ask.START)  # once b must have fenced itself
            assert start.generation == epoch + 1
            assert start.coordinator_epoch == told.coordinator_epoch
            assert len(a.positions) == 2


async def _coordinator(up: object) -> int:
    assert isinstance(up, dict)
    with trio.fail_after(HANG_S):
        while True:
            for node in list(up.values()):
                async with ScriptedConsumer(node.addresses["kafka"]) as asking:
                    told = await asking.consult()
                    body = told.body
                    assert isinstance(body, ConsultResponse)
                    if body.coordinator_id in up and await _takes(up[body.coordinator_id]):
                        return body.coordinator_id
            await trio.sleep(0.05)


async def _takes(node: RunningNode) -> bool:
    async with ScriptedConsumer(node.addresses["kafka"]) as probe:
        told = await probe.register(registration("probe", "nothing", group="probe"))
        return told is not None and told.error == 0


async def _registered(consumer: ScriptedConsumer, request: object) -> RegisterResponse:
    told = await consumer.register(request)  # type: ignore[arg-type]
    assert told is not None
    assert told.error == 0
    assert isinstance(told.body, RegisterResponse)
    return told.body
