"""What nobody should send to the native listener: refused by name, and nobody else notices."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import uuid4

import pytest
import trio

from paceline.errors import (
    ErrorCode,
    InconsistentClusterId,
    NotLeader,
    PacelineError,
    PolicyViolation,
    UnsupportedVersion,
)
from paceline.types import Acks, Compression, Isolation
from paceline.wire.batch import (
    build_batch,
)
from paceline.wire.frame import Kind, encode_head
from paceline.wire.message import Message
from paceline.wire.native import admin, data
from paceline.wire.native.api import NativeApi
from paceline.wire.records import Record
from tests.integration.node.native import HELLO, NativeConnection, request
from tests.integration.node.nodes import HANG_S, RunningNode, V1Client, lone_node

pytestmark = pytest.mark.virtual_time

ONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}
PARTITIONS = 3
"""Of a topic that nobody has made otherwise."""
BATCH = build_batch([Record(value=b"v", timestamp_ms=1)])


@asynccontextmanager
async def bystanders(node: RunningNode) -> AsyncIterator[None]:
    """A native and a V1 client that write all the while, on connections of their own; both must
    have got on at the end."""
    async with NativeConnection(node.addresses["native"]) as native, V1Client(node.v1) as v1:
        await v1.ok("PRODUCE", "bystander k:0")
        done = trio.Event()
        rounds = 0

        async def work() -> None:
            nonlocal rounds
            while not done.is_set():
                result = await native.produce("bystander", 1, BATCH)
                if result.error == ErrorCode.NOT_LEADER_OR_FOLLOWER and not rounds:
                    await trio.sleep(0.05)  # this partition of the new topic is made a little later
                    continue
                assert (result.error, result.base_offset) == (0, rounds), result
                stored = await v1.ok("PRODUCE", "bystander k:x")
                assert stored["offset"] == str(rounds + 1)
                rounds += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            yield
            before = rounds
            while rounds < before + 2:  # noqa: ASYNC110  no event tells
                await trio.sleep(0.001)
            done.set()


def connect(node: RunningNode, hello: data.Hello | None = HELLO) -> NativeConnection:
    return NativeConnection(node.addresses["native"], hello=hello)


async def end_of(node: RunningNode, topic: str = "orders", partition: int = 0) -> int:
    """The log end of a partition, once this node leads it."""
    with trio.fail_after(HANG_S):
        async with connect(node) as connection:
            while True:
                try:
                    return (await connection.describe(topic, partition)).log_end_offset
                except NotLeader:
                    await trio.sleep(0.02)


async def make_topic(node: RunningNode, topic: str = "orders") -> None:
    """A topic whose partitions take records; the first holds one."""
    async with V1Client(node.v1) as client:
        await client.ok("PRODUCE", f"{topic} k:0")
    for partition in range(1, PARTITIONS):
        await end_of(node, topic, partition)


# --- greeting -------------------------------------------------------------------------------------


async def test_nothing_is_answered_before_a_proper_hello(tmp_path) -> None:
    async with lone_node(tmp_path, ONE) as node, bystanders(node):
        for first in (
            request(NativeApi.STATUS, data.Status()),
            request(NativeApi.STOP_CLUSTER, data.StopCluster()),
            encode_head(Kind.ONE_WAY, NativeApi.HELLO, 1, HELLO.pack(), 0),
            encode_head(Kind.RESPONSE, NativeApi.HELLO, 1, HELLO.pack(), 0),
            encode_head(Kind.REQUEST, NativeApi.HELLO, 1, [], 0),
            encode_head(Kind.REQUEST, NativeApi.HELLO, 1, ["1", 1, "c"], 0),
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"V1|1|PRODUCE|orders k:v\n",
            struct.pack(">I", 65 * 1024),  # more than a Hello may have
            struct.pack(">I", 0),
            struct.pack(">II", 4, 2**32 - 1),
        ):
            async with connect(node, hello=None) as connection:
                await connection.send(first)
                assert await connection.receive() is None, first
        assert not node.node.stopping


async def test_wrong_versions_and_clusters_are_named(tmp_path) -> None:
    async with lone_node(tmp_path, ONE) as node:
        refusals: tuple[tuple[data.Hello, type[PacelineError]], ...] = (
            (data.Hello(2, 9, "test"), UnsupportedVersion),
            (data.Hello(0, 0, "test"), UnsupportedVersion),
            (replace(HELLO, cluster_id=uuid4()), InconsistentClusterId),
        )
        for hello, kind in refusals:
            async with connect(node, hello=None) as connection:
                with pytest.raises(kind):
                    await connection.call(NativeApi.HELLO, hello, data.HelloReply)
                assert await connection.receive() is None
        async with connect(node, replace(HELLO, cluster_id=node.cluster_id)) as connection:
            assert (await connection.status()).state == "running"


# --- frames ---------------------------------------------------------------------------------------


def conversation() -> bytes:
    part = data.ProducePartition("orders", 0, len(BATCH))
    return b"".join(
        [
            request(NativeApi.HELLO, HELLO, correlation=1),
            request(
                NativeApi.PRODUCE,
                data.Produce(1000, Acks.ALL, (part,)),
                bytes(BATCH),
                correlation=2,
            ),
            request(NativeApi.METADATA, data.MetadataRequest(("orders",)), correlation=3),
        ]
    )


async def test_a_conversation_may_break_off_anywhere(tmp_path) -> None:
    async with lone_node(tmp_path, ONE) as node, bystanders(node):
        await make_topic(node)
        whole = conversation()
        for cut in range(len(whole)):
            async with connect(node, hello=None) as connection:
                await connection.send(whole[:cut])
                await connection.stream.send_eof()
                while await connection.receive() is not None:
                    pass
        # Only those that had all of the produce request in them were appended.
        produce_end = len(whole) - len(
            request(NativeApi.METADATA, data.MetadataRequest(("orders",)), correlation=3)
        )
        assert await end_of(node) == 1 + len(whole) - produce_end


async def test_frames_that_are_none_end_their_connection(tmp_path) -> None:
    flags = {**ONE, "limits.frame_bytes": str(2**20)}
    async with lone_node(tmp_path, flags) as node, bystanders(node):
        for bad in (
            struct.pack(">I", 2**20 + 1),
            struct.pack(">I", 2**32 - 1),
            struct.pack(">I", 3) + b"abc",
            struct.pack(">II", 8, 9) + b"\x94\x00\x28\x01",
            struct.pack(">II", 5, 1) + b"\xc1",
            struct.pack(">II", 5, 1) + b"\x90",
            encode_head(Kind.RESPONSE, NativeApi.STATUS, 1, [], 0),
            encode_head(Kind.ONE_WAY, NativeApi.STATUS, 1, [], 0),
            encode_head(7, NativeApi.STATUS, 1, [], 0),
        ):
            async with connect(node) as connection:
                await connection.send(bad)
                assert await connection.receive() is None, bad


async def test_wrong_requests_are_answered_and_the_connection_goes_on(tmp_path) -> None:
    async with lone_node(tmp_path, ONE) as node, connect(node) as connection:
        await make_topic(node)
        for api, body in (
            (NativeApi.HELLO, HELLO.pack()),
            (999, []),
            (-1, []),
            (NativeApi.STATUS + 2**40, []),
            (NativeApi.METADATA, []),
            (NativeApi.METADATA, [5]),
            (NativeApi.METADATA, [[5]]),
            (NativeApi.PRODUCE, [1000, 5, []]),
            (NativeApi.PRODUCE, [1000, -1, [["orders", "0", 1]]]),
            (NativeApi.PRODUCE, [1000, -1, [], 5]),
            (NativeApi.FETCH, [0, 0, 0, 7, []]),
            (NativeApi.FETCH, ["x"]),
            (NativeApi.LIST_OFFSETS, [0]),
            (NativeApi.DESCRIBE_TOPIC, ["nosuch"]),
            (NativeApi.INIT_PRODUCER, ["transactional"]),
            (NativeApi.CREATE_TOPIC, [""]),
            (NativeApi.CREATE_TOPIC, ["a/b"]),
            (NativeApi.CREATE_TOPIC, ["t", 0]),
            (NativeApi.CREATE_TOPIC, ["t", 2**40]),
            (NativeApi.CREATE_TOPIC, ["t", 1, 2**40]),
            (NativeApi.CREATE_TOPIC, ["t", 1, 1, {"nosuch.key": "1"}]),
            (NativeApi.CREATE_TOPIC, ["t", 1, 1, {}, "nosuchkind"]),
            (NativeApi.CREATE_TOPIC, ["t", 1, 1, {}, "log", [[7]]]),
            (NativeApi.CREATE_TOPIC, ["t", 1, 1, {}, "log", [[0, 0]]]),
            (NativeApi.DELETE_TOPIC, ["nosuch"]),
            (NativeApi.ALTER_TOPIC, ["orders", {"segment.bytes": "-5"}]),
            (NativeApi.ADD_PARTITIONS, ["orders", 1]),
            (NativeApi.ADD_PARTITIONS, ["orders", 2**40]),
            (NativeApi.ELECT_LEADER, ["orders", 0, 9]),
            (NativeApi.ELECT_LEADER, ["orders", -1, 0]),
            (NativeApi.SET_ROLE, ["orders", 0, 0, "king"]),
            (NativeApi.SET_ROLE, ["orders", 0, -5, "leader"]),
            (NativeApi.REASSIGN_PARTITION, ["orders", 0, [9]]),
            (NativeApi.REASSIGN_PARTITION, ["orders", 0, [0, 0]]),
            (NativeApi.FENCE_BROKER, [-1, True]),
            (NativeApi.UNREGISTER_BROKER, [0]),
            (NativeApi.REGISTER_EXTERNAL, [-2, "h", 1, 0]),
            (NativeApi.RECONCILE_EXTERNAL, [0]),
        ):
            correlation = 77
            await connection.send(encode_head(Kind.REQUEST, api, correlation, body, 0))
            frame = await connection.receive()
            assert frame is not None, (api, body)
            assert (frame.kind, frame.correlation) == (Kind.ERROR, correlation), (api, body, frame)
            code, text = frame.body
            assert code not in (0, ErrorCode.UNKNOWN_SERVER_ERROR), (api, body, frame.body)
            assert text, (api, body)
        assert (await connection.status()).state == "running"
        assert await end_of(node) == 1


async def test_numbers_at_their_limits(tmp_path) -> None:
    """Numbers that make no sense are answered with an error or sensibly, never with a failure."""
    async with lone_node(tmp_path, ONE) as node, connect(node) as connection:
        await make_topic(node)
        for number in (-(2**63), -3, -1, 0, 1, 2**31, 2**63 - 1):
            for api, body, reply, payload in _requests_with(number):
                code = await _answer_code(connection.call(api, body, reply, payload))
                assert code is not ErrorCode.UNKNOWN_SERVER_ERROR, (number, body)
        assert (await connection.status()).state == "running"


async def _answer_code(call: Awaitable[Message]) -> int:
    try:
        await call
    except PacelineError as error:
        return error.code
    return ErrorCode.NONE


def _requests_with(number: int) -> list[tuple[int, Message, type[Message], bytes]]:
    requests: list[tuple[int, Message, type[Message], bytes]] = []
    for at in range(4):
        numbers = [0, 0, 0, 2**20]
        numbers[at] = number
        wait, partition, offset, size = numbers
        part = data.FetchPartition("orders", partition, offset, size)
        wait_ms = min(wait, 1)  # a sensible wait may be long
        fetch = data.Fetch(wait_ms, number, size, Isolation.READ_COMMITTED, (part,))
        requests.append((NativeApi.FETCH, fetch, data.FetchReply, b""))
    query = data.OffsetQuery("orders", 0, number)
    offsets = data.ListOffsets(Isolation.READ_COMMITTED, (query,))
    requests.append((NativeApi.LIST_OFFSETS, offsets, data.ListOffsetsReply, b""))
    produced = data.ProducePartition("orders", 0, len(BATCH), number)  # type: ignore[arg-type]
    produce = data.Produce(number, Acks.ALL, (produced,))
    requests.append((NativeApi.PRODUCE, produce, data.ProduceReply, bytes(BATCH)))
    lying = data.Produce(1, Acks.ALL, (data.ProducePartition("orders", 0, number),))
    requests.append((NativeApi.PRODUCE, lying, data.ProduceReply, b"x"))
    metadata = data.MetadataRequest((), min_metadata_offset=number, timeout_ms=min(number, 1))
    requests.append((NativeApi.METADATA, metadata, data.MetadataReply, b""))
    describe = data.DescribeTopic("orders", (number,))
    requests.append((NativeApi.DESCRIBE_TOPIC, describe, data.TopicDescription, b""))
    return requests


# --- batches --------------------------------------------------------------------------------------


async def test_internal_topics_are_the_brokers_own(tmp_path) -> None:
    async with lone_node(tmp_path, ONE) as node, connect(node) as connection:
        result = await connection.produce("__groups", 0, BATCH)
        assert result.error == ErrorCode.POLICY_VIOLATION
        wishes: tuple[tuple[int, Message, type[Message]], ...] = (
            (NativeApi.CREATE_TOPIC, admin.CreateTopic("__mine", 1, 1), admin.TopicCreated),
            (
                NativeApi.CREATE_TOPIC,
                admin.CreateTopic("__mine", 1, 1, internal=True),
                admin.TopicCreated,
            ),
            (
                NativeApi.CREATE_TOPIC,
                admin.CreateTopic("mine", 1, 1, internal=True),
                admin.TopicCreated,
            ),
            (NativeApi.DELETE_TOPIC, admin.DeleteTopic("__groups"), admin.Done),
            (
                NativeApi.ALTER_TOPIC,
                admin.AlterTopic("__groups", {"retention.ms": "1"}),
                admin.Done,
            ),
            (NativeApi.ADD_PARTITIONS, admin.AddPartitions("__groups", 20), admin.Done),
        )
        for api, wish, reply in wishes:
            with pytest.raises(PolicyViolation):
                await connection.call(api, wish, reply)
        made = await connection.call(
            NativeApi.METADATA,
            data.MetadataRequest(("__mine",), allow_auto_create=True),
            data.MetadataReply,
        )
        assert made.topics[0].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        names = {topic.name for topic in (await connection.metadata(None)).topics}
        assert not names & {"__mine", "mine"}
        assert await end_of(node, "__groups") <= 1  # the first record is the group engine's
        for line in ("PRODUCE|__groups k:v", "CONSUME|__mine 0 0", "ADMIN_CREATE_TOPIC|__mine 1 1"):
            told = await V1Client.ask_once(node.v1, f"V1|1|{line}\n".encode())
            assert told.startswith("V1|1|ERR|BAD_REQUEST|"), told


# --- greed ----------------------------------------------------------------------------------------


async def test_too_many_requests_wait_unread(tmp_path) -> None:
    flags = {**ONE, "limits.requests_per_connection": "4"}
    async with lone_node(tmp_path, flags) as node, bystanders(node), connect(node) as greedy:
        await make_topic(node)
        part = data.FetchPartition("orders", 0, 1, 1000)
        poll = data.Fetch(30_000, 1, 1000, Isolation.READ_COMMITTED, (part,))
        for number in range(40):
            await greedy.send(request(NativeApi.FETCH, poll, correlation=number))
        await greedy.send(request(NativeApi.STATUS, data.Status(), correlation=40))
        with trio.move_on_after(0.3) as early:
            await greedy.receive()
        assert early.cancelled_caught, "the fifth request was answered before the first four"
        async with V1Client(node.v1) as client:
            await client.ok("PRODUCE", "orders k:1")
        answers = [await greedy.receive() for _ in range(41)]
        assert sorted(frame.correlation for frame in answers if frame) == list(range(41))
        assert all(frame is not None and frame.kind == Kind.RESPONSE for frame in answers)


@pytest.mark.virtual_time(False)
async def test_a_client_that_does_not_read_holds_up_nobody(tmp_path) -> None:
    flags = {**ONE, "limits.requests_per_connection": "64"}
    async with lone_node(tmp_path, flags) as node, bystanders(node):
        await make_topic(node)
        big = build_batch([Record(value=bytes(900_000))])
        async with connect(node) as connection:
            for _ in range(4):
                assert (await connection.produce("orders", 0, big)).error == 0
        part = data.FetchPartition("orders", 0, 1, 2**26)
        fetch = data.Fetch(0, 1, 2**26, Isolation.READ_COMMITTED, (part,))
        async with connect(node) as deaf:
            deaf.stream.setsockopt(6, 10, 1)
            with trio.move_on_after(2):
                for number in range(2000):
                    await deaf.send(request(NativeApi.FETCH, fetch, correlation=number))
            async with connect(node) as connection:
                assert (await connection.status()).state == "running"
                assert (await connection.produce("orders", 0, BATCH)).error == 0


@pytest.mark.virtual_time(False)
async def test_a_half_closed_client_is_served_to_its_last_request(tmp_path) -> None:
    async with lone_node(tmp_path, ONE) as node, connect(node) as connection:
        await make_topic(node)
        part = data.ProducePartition("orders", 0, len(BATCH))
        produce = data.Produce(1000, Acks.ALL, (part,))
        for number in range(20):
            await connection.send(
                request(NativeApi.PRODUCE, produce, bytes(BATCH), correlation=number)
            )
        await connection.stream.send_eof()
        seen = 0
        while (frame := await connection.receive()) is not None:
            assert frame.kind == Kind.RESPONSE
            seen += 1
        assert await end_of(node) == 21
        assert seen <= 20, "an answer was sent twice"


async def test_compressed_batches_are_kept_as_they_are(tmp_path) -> None:
    async with lone_node(tmp_path, ONE) as node, connect(node) as connection:
        await make_topic(node)
        for number, codec in enumerate(Compression):
            batch = build_batch([Record(value=b"x" * 500)], compression=codec)
            result = await connection.produce("orders", 0, batch)
            assert (result.error, result.base_offset) == (0, number + 1)
        async with V1Client(node.v1) as client:
            shown = await client.ok("CONSUME", "orders 0 1")
        assert shown["messages"].count("x" * 500) == len(Compression)
