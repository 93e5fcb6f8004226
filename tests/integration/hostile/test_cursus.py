"""What strangers may send to the Cursus listener, and the others go on."""

from __future__ import annotations

import socket
import struct
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from paceline.wire.cursus.batch import MAGIC
from paceline.wire.cursus.frames import framed
from tests.hostile import cursus as attacks
from tests.hostile.slices import nobody_holds_the_loop
from tests.integration.faults.writing import create
from tests.integration.node.cursus_client import ONE, CursusClient
from tests.integration.node.machines import open_stream
from tests.integration.node.nodes import cluster, lone_node

_RESET = struct.pack("ii", 1, 0)


async def test_wildcards_of_many_stars(tmp_path: Path) -> None:
    """Six stars kept the loop for 35 s, twenty for ever."""
    async with lone_node(tmp_path, ONE) as node, CursusClient(node.addresses["cursus"]) as client:
        await client.create(f"topic={attacks.LONG_NAME} partitions=1")
        with nobody_holds_the_loop():
            for line in attacks.wildcards(stars=6):
                await client.send(line.encode())
                answer = await client.receive()
                assert answer.startswith((b"ERROR: topic_not_found", MAGIC)), answer
        assert await client.say("LIST")


async def test_a_small_frame_that_unpacks_to_a_large_command(tmp_path: Path) -> None:
    """5.7 KB became 64 MiB of text, which took 3.5 s and 1.7 GiB to look at."""
    async with lone_node(tmp_path, ONE) as node, CursusClient(node.addresses["cursus"]) as client:
        with nobody_holds_the_loop():
            for frame in attacks.compressed_commands():
                await client.send(frame)
                assert (await client.receive()).startswith(b"ERROR"), frame[:20]
        assert await client.say("LIST")


@pytest.mark.slow
async def test_batches_of_as_many_records_as_may_be(tmp_path: Path) -> None:
    async with lone_node(tmp_path, ONE) as node, CursusClient(node.addresses["cursus"]) as client:
        await client.create("topic=many partitions=1")
        answers = []
        with nobody_holds_the_loop():
            for frame in attacks.crowded_batches("many"):
                await client.send(frame)
                answers.append(await client.receive())
        assert await client.say("LIST")
    *stored, of_each_another = answers
    late = b"ERROR: request_timed_out"  # a busy machine may take longer than an answer waits
    assert all(each.startswith((b'{"status":"OK"', late)) for each in stored), stored
    assert b"more than 1000 changes of producer" in of_each_another


async def test_a_reader_that_resets_its_stream_is_no_failure(tmp_path: Path) -> None:
    """It left a traceback in the log: the tasks of a stream wrap what ends them."""
    async with lone_node(tmp_path, ONE) as node, CursusClient(node.addresses["cursus"]) as client:
        await client.create("topic=orders partitions=1")
        with capture_logs() as logged:
            reader = await open_stream(node.addresses["cursus"])
            await reader.send_all(framed(b"STREAM orders 0 0"))
            assert await client.say("PUBLISH topic=orders acks=1 message=one")
            assert await reader.receive_some()
            reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            await reader.aclose()
            for _ in range(20):  # the node has seen it, for its loop is this one
                assert await client.say("LIST")
        assert [each for each in logged if "exc_info" in each] == []


@pytest.mark.slow
async def test_idle_streams_of_another_node_hold_up_no_forwarded_write(tmp_path: Path) -> None:
    """64 of them made each write that was forwarded beside them wait, 400 stopped all."""
    flags = {
        "topics.replication_factor": "3",
        "topics.min_insync_replicas": "2",
        "cursus.keepalive_ms": "3500",
    }
    async with cluster(tmp_path, 3, flags) as nodes:
        other = (await create(nodes, "orders") + 1) % 3
        async with nodes.v1(other) as writer:
            await writer.ok("PRODUCE", "orders k:0 acks=all")
        async with AsyncExitStack() as stack, nodes.v1(other) as writer:
            for _ in range(400):
                reader = CursusClient(nodes.up[other].addresses["cursus"])
                await stack.enter_async_context(reader)
                await reader.send(b"STREAM orders 0 1")
            # The last of them has been asked about at the leader once it is told that it is alive.
            assert await reader.receive() == b""
            for number in range(1, 11):
                stored = await writer.ok("PRODUCE", "orders k:x acks=all")
                assert stored["offset"] == str(number)
            assert b"orders" in await reader.receive()
