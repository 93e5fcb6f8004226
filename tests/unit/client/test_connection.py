"""Connections, WebSocket, endpoints, administration: what users and the other side may do wrong."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing

from paceline.client import ClientSettings, Endpoint, Position, connect
from paceline.client.endpoint import parse_bootstrap
from paceline.client.retry import Backoff, retrying
from paceline.errors import (
    ConfigurationError,
    ConnectionLost,
    ControllerUnavailable,
    ErrorCode,
    NotController,
    PacelineError,
    RequestTimedOut,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from paceline.types import NodeId
from paceline.wire.frame import Kind, encode_head
from paceline.wire.native.admin import CreateTopic, DeleteTopic
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import HelloReply, MetadataRequest
from tests.unit.client.answers import CLUSTER_ID
from tests.unit.client.broker import Cluster
from tests.unit.client.harness import CancelAtStep, cluster_and_client

# --- endpoints -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host", "port", "path"),
    [
        ("broker", "broker", 7400, None),
        ("127.0.0.1:9", "127.0.0.1", 9, None),
        ("[::1]:7401", "::1", 7401, None),
        ("ws://broker:7480/native", "broker", 7480, "/native"),
        ("ws://broker:7480", "broker", 7480, "/native"),
        ("ws://broker/x", "broker", 80, "/x"),
    ],
)
def test_endpoints_are_read_and_written(text: str, host: str, port: int, path: str | None) -> None:
    endpoint = Endpoint.parse(text)
    assert endpoint == Endpoint(host, port, path)
    assert Endpoint.parse(str(endpoint)) == endpoint


@pytest.mark.parametrize("text", ["", ":7400", "host:port", "host:99999", "http://x", "host/path"])
def test_bad_addresses_are_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match="bootstrap"):
        parse_bootstrap(text)


def test_bootstrap_lists() -> None:
    assert parse_bootstrap("a:1, b:2") == (Endpoint("a", 1), Endpoint("b", 2))
    assert parse_bootstrap([Endpoint("a", 1), "b:2"]) == (Endpoint("a", 1), Endpoint("b", 2))
    for wrong in ([], ["a:1", "ws://b:2"]):
        with pytest.raises(ConfigurationError):
            parse_bootstrap(wrong)


# --- retry ---------------------------------------------------------------------------------------


def test_pauses_grow_to_their_cap_with_jitter() -> None:
    backoff = Backoff(0.01, 0.25, random.Random(3))
    for attempt in range(40):
        full = min(0.25, 0.01 * 2**attempt)
        assert full / 2 <= backoff.pause_s(attempt) <= full


async def test_retrying_ends_with_the_last_error(autojump_clock: object) -> None:
    attempts = []

    async def attempt() -> None:
        attempts.append(trio.current_time())
        raise NotController(f"attempt {len(attempts)}")

    backoff = Backoff(0.1, 1.0, random.Random(1))
    begin = trio.current_time()
    with pytest.raises(NotController, match=r"attempt \d+"):
        await retrying(attempt, timeout_s=5, backoff=backoff)
    assert 4 <= trio.current_time() - begin <= 5
    assert 5 < len(attempts) < 20


# --- the other side misbehaves -------------------------------------------------------------------


async def test_a_node_of_another_version_is_refused(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, 1)
        cluster.version = 9
        with pytest.raises(UnsupportedVersion, match="version 9"):
            async with connect(cluster.bootstrap(), dial=cluster.dial):
                pass
        nursery.cancel_scope.cancel()


NO_LISTENER = r"x:1: .*no native listener \(port 7400 by default\)"


@pytest.mark.parametrize(
    ("garbage", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", NO_LISTENER),
        (b"\x00\x00\x00\x04\xff\xff\xff\xff", NO_LISTENER),
        (b"", NO_LISTENER),
        (encode_head(Kind.RESPONSE, 1, 0, [1], 0), None),
        (encode_head(Kind.ONE_WAY, 1, 0, [], 0), None),
    ],
)
async def test_a_peer_that_speaks_something_else_is_no_broker(
    autojump_clock: object, garbage: bytes, said: str | None
) -> None:
    async def dial(endpoint: Endpoint) -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        await theirs.send_all(garbage)
        await theirs.send_eof()
        return ours

    settings = ClientSettings(operation_timeout_s=2)
    with pytest.raises(PacelineError, match=said):
        async with connect("x:1", settings, dial=dial):
            pass


async def test_an_answer_to_nothing_ends_the_connection_and_the_client_goes_on(
    autojump_clock: object,
) -> None:
    streams: list[trio.abc.Stream] = []

    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, 1)
        cluster.create("orders")

        async def dial(endpoint: Endpoint) -> trio.abc.Stream:
            stream = await cluster.dial(endpoint)
            streams.append(stream)
            return stream

        async with connect(cluster.bootstrap(), dial=dial) as client:
            reply = HelloReply(1, CLUSTER_ID, NodeId(0), 1, 1)
            stray = encode_head(Kind.RESPONSE, NativeApi.HELLO, 999, reply.pack(), 0)
            receiver = streams[0].receive_stream  # type: ignore[attr-defined]
            receiver.put_data(stray)
            await trio.sleep(0.01)
            assert (await client.admin.topic("orders")).name == "orders"
        assert len(streams) > 1
        nursery.cancel_scope.cancel()


async def test_connect_times_out_on_a_silent_address(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, 1)
        cluster.nodes[0].is_deaf = True
        settings = ClientSettings(connect_timeout_s=1.0, operation_timeout_s=3.0)
        begin = trio.current_time()
        with pytest.raises(ConnectionLost, match=r"no greeting in 1.0 s: .*7400") as caught:
            async with connect(cluster.bootstrap(), settings, dial=cluster.dial):
                pass
        assert not caught.value.was_sent
        assert trio.current_time() - begin == pytest.approx(3, abs=1.1)
        nursery.cancel_scope.cancel()


async def test_more_requests_than_a_node_takes_wait(autojump_clock: object) -> None:
    def configure(cluster: Cluster) -> None:
        cluster.max_in_flight = 2

    async with cluster_and_client(1, configure=configure) as (cluster, client):
        logs = cluster.create("orders", 6)
        async with client.producer() as producer:
            await producer.partition_count("orders")
            fault = cluster.fault(NativeApi.PRODUCE, count=100, delay_s=1.0)
            deliveries = []
            for partition in range(6):
                deliveries.append(await producer.submit("orders", b"v", partition=partition))
                await trio.sleep(0.01)
            await trio.sleep(0.5)
            assert fault.hits <= 2
            for delivery in deliveries:
                await delivery.wait()
        assert [log.log_end for log in logs] == [1] * 6


@pytest.mark.parametrize("step", range(8))
async def test_a_call_may_be_cancelled_at_every_step(autojump_clock: object, step: int) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.create("orders")
        dials = len(cluster.dials)
        with trio.CancelScope() as scope, CancelAtStep(scope, step):
            await client.admin.describe_cluster()
            await client.admin.topic("orders")
        assert (await client.admin.topic("orders")).name == "orders"
        assert len(cluster.dials) - dials <= 2, "cancelling must not cost the connection"


async def test_who_still_asks_a_cancelled_client_is_told_so(autojump_clock: object) -> None:
    """Its connections cannot be opened any more: each attempt ends at once, and so must the asking
    (which used to try again for ever, without a pause)."""
    settings = ClientSettings(operation_timeout_s=2)
    async with cluster_and_client() as (cluster, _):
        with trio.CancelScope() as scope:
            async with connect(cluster.bootstrap(), settings, dial=cluster.dial) as client:
                scope.cancel()
                with trio.CancelScope(shield=True), pytest.raises(ConnectionLost):
                    await client.admin.describe_cluster()


async def test_concurrent_lookups_share_requests(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.create("orders")
        before = len(cluster.requests(MetadataRequest))
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(client.admin.topic, "orders")
        assert len(cluster.requests(MetadataRequest)) - before <= 3


# --- WebSocket -----------------------------------------------------------------------------------


async def test_everything_works_over_websocket(autojump_clock: object) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery)
        logs = cluster.create("orders", 3)
        async with connect("ws://node-0:7400/native", dial=cluster.dial) as client:
            async with client.producer() as producer:
                await producer.send_many("orders", [b"%d" % n * 100 for n in range(500)])
                cluster.kill(1)
                cluster.move("orders", 1, 2)
                await producer.send("orders", b"after", partition=1)
            async with client.consumer("orders", stop=Position.LATEST) as consumer:
                values = [record.value async for record in consumer]
        assert sorted(values) == sorted(value for log in logs for value in log.values())
        assert len(values) == 501
        nursery.cancel_scope.cancel()


# --- administration ------------------------------------------------------------------------------


async def test_topics_are_created_listed_described_deleted(autojump_clock: object) -> None:
    async with cluster_and_client() as (_, client):
        admin = client.admin
        created = await admin.create_topic("orders", partitions=4)
        assert created.partitions == 4
        with pytest.raises(TopicAlreadyExists):
            await admin.create_topic("orders")
        assert (await admin.create_topic("orders", if_not_exists=True)).existed
        assert [topic.name for topic in await admin.list_topics()] == ["orders"]
        await admin.elect_leader("orders", 0, NodeId(2))
        description = await admin.describe_topic("orders")
        assert [each.leader for each in description.partitions] == [2, 1, 2, 0]
        assert all(each.log_end_offset == 0 for each in description.partitions)
        assert await admin.list_offsets("orders", Position.LATEST) == dict.fromkeys(range(4), 0)
        await admin.delete_topic("orders")
        assert await admin.list_topics() == []
        with pytest.raises(UnknownTopicOrPartition):
            await admin.topic("orders")


async def test_settings_that_differ_between_leaders_are_told_with_their_nodes(
    autojump_clock: object,
) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.create("orders", 3)
        assert (await client.admin.describe_topic("orders")).settings == ()
        told = (await client.admin.describe_topic("orders", settings=True)).settings
        assert [(each.name, each.value, each.source) for each in told] == [
            ("flush.mode", "group", "topic"),
            ("segment.ms", "7", "node 0"),
            ("segment.ms", "8", "default 1, 2"),
        ]


async def test_describe_waits_for_no_leader_and_says_so(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.create("orders", 2)
        cluster.move("orders", 1, -1)
        description = await client.admin.describe_topic("orders")
        assert [each.error for each in description.partitions] == [
            0,
            ErrorCode.LEADER_NOT_AVAILABLE,
        ]
        assert description.partitions[1].replicas == (0, 1, 2)


async def test_status_of_every_node_that_answers(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.kill(1)
        statuses = await client.admin.statuses()
        assert isinstance(statuses[NodeId(1)], ConnectionLost)
        assert [getattr(statuses[NodeId(n)], "role", None) for n in (0, 2)] == [
            "leader",
            "follower",
        ]
        stopped = await client.admin.stop_cluster()
        assert stopped[NodeId(0)] is None
        assert isinstance(stopped[NodeId(1)], ConnectionLost)


async def test_what_must_not_happen_twice_is_not_repeated_blindly(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        await client.admin.create_topic("orders")
        cluster.fault(NativeApi.DELETE_TOPIC, cut_after=True)
        with pytest.raises(ConnectionLost):
            await client.admin.delete_topic("orders")
        assert len(cluster.requests(DeleteTopic)) == 1
        await client.admin.create_topic("orders", if_not_exists=True)
        cluster.fault(NativeApi.DELETE_TOPIC, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, count=2)
        await client.admin.delete_topic("orders")
        assert len(cluster.requests(DeleteTopic)) == 4


async def test_a_creation_of_unknown_outcome_is_repeated_and_succeeds(
    autojump_clock: object,
) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.fault(NativeApi.CREATE_TOPIC, cut_after=True)
        created = await client.admin.create_topic("orders", partitions=4)
        assert (created.partitions, created.existed) == (4, False)
        first, second = cluster.requests(CreateTopic)
        assert first == second
        with pytest.raises(TopicAlreadyExists):
            await client.admin.create_topic("orders", partitions=4)


async def test_no_controller_is_an_error_in_the_end(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.fault(NativeApi.STATUS, count=10**6, error=ErrorCode.CONTROLLER_UNAVAILABLE)
        begin = trio.current_time()
        with pytest.raises(ControllerUnavailable):
            await client.admin.status()
        assert 4 <= trio.current_time() - begin <= 5


async def test_unknown_topic_is_no_endless_wait(autojump_clock: object) -> None:
    async with cluster_and_client() as (_, client):
        begin = trio.current_time()
        with pytest.raises((UnknownTopicOrPartition, RequestTimedOut)):
            await client.admin.describe_topic("nowhere")
        assert trio.current_time() - begin < 6
