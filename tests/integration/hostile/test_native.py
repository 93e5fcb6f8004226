"""What strangers may send to the native listener, and the others go on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from paceline.errors import ErrorCode
from paceline.wire.frame import Frame, Kind
from paceline.wire.native import data
from paceline.wire.native.api import NativeApi
from tests.hostile import native as attacks
from tests.hostile.slices import nobody_holds_the_loop
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import HANG_S, RunningNode, V1Client, lone_node

ONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}


async def make_topic(node: RunningNode, name: str = "orders") -> None:
    async with V1Client(node.v1) as client:
        await client.ok("PRODUCE", f"{name} k:0")


async def answer_to(node: RunningNode, request: bytes) -> Frame:
    """The answer to one request, on a connection of its own."""
    async with (
        NativeConnection(node.addresses["native"]) as connection,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(connection.send, request)
        frame = await connection.receive()
    assert frame is not None
    return frame


@pytest.mark.parametrize("times", [4_000, 10_000])
async def test_a_long_poll_that_names_a_partition_again_and_again(
    tmp_path: Path, times: int
) -> None:
    """128 KB of it kept the loop for 2.4 s when it ended, 512 KB for 45 s."""
    async with lone_node(tmp_path, ONE) as node:
        await make_topic(node)
        with nobody_holds_the_loop():
            frame = await answer_to(node, attacks.repeated_fetch("orders", 1, times=times))
        assert frame.kind == Kind.RESPONSE
        assert len(frame.body[0]) == times


@pytest.mark.parametrize("times", [1, 60])
async def test_an_append_that_wakes_a_crowd_of_long_polls(tmp_path: Path, times: int) -> None:
    """Each that waited again at once woke the next: 150 were a RecursionError in an append."""
    async with (
        lone_node(tmp_path, ONE) as node,
        NativeConnection(node.addresses["native"]) as polling,
        V1Client(node.v1) as writer,
    ):
        await make_topic(node)
        with nobody_holds_the_loop():
            await polling.send(attacks.crowd_of_polls("orders", 1, polls=900, times=times))
            for _ in range(5):
                await writer.ok("PRODUCE", "orders k:x")


async def test_more_items_than_a_request_may_have(tmp_path: Path) -> None:
    """A megabyte of names in one METADATA was more than the controller's session lasted."""
    async with lone_node(tmp_path, ONE) as node:
        await make_topic(node)
        with nobody_holds_the_loop():
            for request in (
                attacks.metadata_of_many_names(names=200_000),
                attacks.repeated_fetch("orders", 1, times=50_000),
                attacks.repeated_queries("orders", times=50_000),
                attacks.long_correlations(numbers=900_000),
            ):
                frame = await answer_to(node, request)
                assert frame.kind == Kind.ERROR
                assert "items" in frame.body[1], frame.body


async def test_as_many_items_as_a_request_may_have(tmp_path: Path) -> None:
    async with lone_node(tmp_path, ONE) as node:
        await make_topic(node)
        with nobody_holds_the_loop():
            for request in (
                attacks.metadata_of_many_names(names=9_000),
                attacks.repeated_queries("orders", times=8_000),
                attacks.many_partitions_produced("orders", parts=900),
            ):
                assert (await answer_to(node, request)).kind == Kind.RESPONSE


async def test_metadata_of_one_name_again_and_again(tmp_path: Path) -> None:
    """24 KB of the name of a topic of 1,000 partitions took 1.4 GB, and the loop for 1.4 s."""
    async with lone_node(tmp_path, {**ONE, "groups.partitions": "16"}) as node:
        await make_topic(node)
        with nobody_holds_the_loop(0.1):
            frame = await answer_to(node, attacks.metadata_of_one_name("__groups", times=30_000))
        topics = data.MetadataReply.unpack(frame.body).topics
        assert [(each.name, len(each.partitions)) for each in topics] == [("__groups", 16)]


async def test_pipelined_requests_of_some_take_turns_with_others(tmp_path: Path) -> None:
    """35 KB of METADATA on eight connections were answered before anybody else was, in 10 s."""
    answered = 0

    async def attack(node: RunningNode) -> None:
        nonlocal answered
        async with NativeConnection(node.addresses["native"]) as connection:
            await connection.send(attacks.metadata_of_everything(requests=900))
            while await connection.receive() is not None:
                answered += 1

    async with lone_node(tmp_path, ONE) as node, V1Client(node.v1) as client:
        await make_topic(node)
        with trio.fail_after(HANG_S):
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(attack, node)
                while answered < 20:
                    await trio.lowlevel.checkpoint()
                before = answered
                for _ in range(10):
                    await client.ok("CONSUME", "orders 0 0")
                # Each of its requests waited for a few of theirs, not for all that were there.
                assert answered - before < 1800
                nursery.cancel_scope.cancel()


async def test_a_negative_wait_for_metadata_is_none(tmp_path: Path) -> None:
    """It ended in a traceback, and its connection with it."""
    body = data.MetadataRequest((), min_metadata_offset=2**40, timeout_ms=-1)
    async with lone_node(tmp_path, ONE) as node:
        with capture_logs() as logged:
            frame = await answer_to(node, attacks.frame(NativeApi.METADATA, body))
        assert (frame.kind, frame.body[0]) == (Kind.ERROR, ErrorCode.REQUEST_TIMED_OUT)
        assert [each for each in logged if "exc_info" in each] == []


async def test_records_from_the_far_future_are_refused(tmp_path: Path) -> None:
    """One of 2^63-1 kept its topic's log for ever."""
    async with lone_node(tmp_path, ONE) as node:
        await make_topic(node)
        for time_ms in (2**63 - 1, time.time_ns() // 1_000_000 + 3 * 3_600_000):
            frame = await answer_to(node, attacks.produced("orders", timestamp_ms=time_ms))
            assert frame.body[0][0][2] == ErrorCode.INVALID_TIMESTAMP, frame.body
        soon = time.time_ns() // 1_000_000 + 60_000
        frame = await answer_to(node, attacks.produced("orders", timestamp_ms=soon))
        assert frame.body[0][0][2] == 0, frame.body


async def test_what_unpacks_to_millions_is_a_named_error_to_readers(tmp_path: Path) -> None:
    """One record of 2.8 KB with 16.5 million headers cost each V1 reader 14.6 s and 1.2 GiB."""
    async with lone_node(tmp_path, ONE) as node, V1Client(node.v1) as client:
        await make_topic(node)
        frame = await answer_to(node, attacks.record_of_headers("orders", headers=16_000_000))
        assert frame.body[0][0][2] == 0, frame.body
        frame = await answer_to(node, attacks.claimed_records("orders", records=4_000_000))
        assert frame.body[0][0][2] == ErrorCode.INVALID_RECORD, frame.body
        with nobody_holds_the_loop():
            refused = await client.call("CONSUME", "orders 0 1")
        assert "headers" in refused, refused


async def test_first_frames_that_are_none_fill_no_log(tmp_path: Path) -> None:
    """A line for each made 16 GB a day."""
    async with lone_node(tmp_path, ONE) as node:
        with capture_logs() as logged:
            for _ in range(100):
                async with NativeConnection(node.addresses["native"], hello=None) as connection:
                    await connection.send(b"GET / HTTP/1.1\r\n\r\n")
                    assert await connection.receive() is None
        assert len([each for each in logged if "refused" in each["event"]]) == 10


async def test_a_produce_of_nothing_but_batches(tmp_path: Path) -> None:
    """950,000 of the smallest batches in one PRODUCE took 3.9 s."""
    async with lone_node(tmp_path, ONE) as node:
        await make_topic(node)
        with nobody_holds_the_loop(0.1):
            frame = await answer_to(node, attacks.crowd_of_batches("orders", batches=900_000))
            assert frame.body[0][0][2] != 0, "900,000 batches in one request"
            frame = await answer_to(node, attacks.crowd_of_batches("orders", batches=1_000))
            assert frame.body[0][0][2] == 0, frame.body
            frame = await answer_to(node, attacks.one_great_produce("orders", megabytes=60))
            assert frame.body[0][0][2] == ErrorCode.MESSAGE_TOO_LARGE
            frame = await answer_to(node, attacks.one_great_produce("orders", megabytes=8))
            assert frame.body[0][0][2] == 0, frame.body
            frame = await answer_to(node, attacks.one_great_record("orders", megabytes=15))
            assert frame.body[0][0][2] == 0, frame.body
