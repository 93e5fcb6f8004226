"""What strangers may make a node hold: no more than their share, and the others go on."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
import trio

from paceline.wire.frame import encode_head
from paceline.wire.kafka.cluster import MetadataRequest, MetadataRequestTopic
from paceline.wire.native.api import NativeApi
from paceline.wire.segment import messages as m
from tests.integration.node.kafka_client import KafkaClient
from tests.integration.node.machines import open_stream
from tests.integration.node.native import HELLO, NativeConnection, request
from tests.integration.node.nodes import HANG_S, Address, V1Client, lone_node
from tests.integration.node.test_metrics import scrape

ONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}
MIB = 1024 * 1024
SMALL = {**ONE, "limits.frame_bytes": str(8 * MIB), "limits.client_memory_bytes": str(32 * MIB)}
"""A node whose clients may hold 32 MiB."""


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def connect(stack: AsyncExitStack, address: Address) -> trio.SocketStream:
    stream = await open_stream(address)
    stack.push_async_callback(trio.aclose_forcefully, stream)
    return stream


async def held_bytes(address: Address) -> float:
    """What the node says that it holds for clients."""
    return (await scrape(address)).total("client_memory_bytes")


async def test_lengths_alone_take_no_memory(tmp_path: Path) -> None:
    """40 connections that sent 2.9 KB took 2.7 GiB."""
    async with lone_node(tmp_path, ONE) as node, AsyncExitStack() as stack:
        before = resident_bytes()
        for _ in range(10):
            stream = await connect(stack, node.addresses["native"])
            await stream.send_all(request(NativeApi.HELLO, HELLO))
            await stream.receive_some(4096)
            await stream.send_all((64 * MIB).to_bytes(4, "big") + b"begin")
        async with NativeConnection(node.addresses["native"]) as other:
            await other.status()
        assert resident_bytes() - before < 100 * MIB


def large_metadata(size: int) -> MetadataRequest:
    """A request of about so many bytes, which is answered without doing anything."""
    names = tuple(
        MetadataRequestTopic(name="x" * 200 + str(number)) for number in range(size // 210)
    )
    return MetadataRequest(topics=names, allow_auto_topic_creation=False)


@pytest.mark.parametrize("sent", [0, 1000 * 1024])
async def test_silent_kafka_clients_hold_nobody_up(tmp_path: Path, sent: int) -> None:
    """Four that announced 64 MiB kept everybody's frames above 64 KiB out."""
    async with lone_node(tmp_path, ONE) as node, AsyncExitStack() as stack:
        for _ in range(4):
            stream = await connect(stack, node.addresses["kafka"])
            await stream.send_all((64 * MIB).to_bytes(4, "big") + bytes(sent))
        with trio.fail_after(HANG_S / 2):
            async with KafkaClient(node.addresses["kafka"]) as client:
                answer = await client.ask(large_metadata(128 * 1024), 4)
        assert len(answer.topics) > 500


def begun_frames(protocol: str) -> bytes:
    """All but the last byte of some 7 MiB, as the protocol's frame."""
    body = bytes(7 * MIB)
    match protocol:
        case "native":
            hello = request(NativeApi.HELLO, HELLO)
            return hello + encode_head(0, NativeApi.STATUS, 1, [], len(body)) + body[:-1]
        case "segment":
            return m.HEADER.pack(m.PartialMessage.TYPE, len(body)) + body[:-1]
        case _:
            return len(body).to_bytes(4, "big") + body[:-1]


async def flood(streams: Sequence[trio.SocketStream], data: bytes) -> None:
    """Send to all of them what they take; who is closed is closed."""

    async def one(stream: trio.abc.HalfCloseableStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await stream.send_all(data)

    async with trio.open_nursery() as nursery:
        for stream in streams:
            nursery.start_soon(one, stream)


@pytest.mark.slow
@pytest.mark.parametrize(
    "protocol",
    [
        "native",
        "kafka",
        "cursus",
        "segment",
    ],
)
async def test_frames_that_are_never_whole_share_one_account(tmp_path: Path, protocol: str) -> None:
    """Incomplete Cursus frames took 1.9 GiB, segment frames 960 MiB."""
    async with lone_node(tmp_path, SMALL) as node, AsyncExitStack() as stack:
        async with V1Client(node.v1) as client:
            await client.ok("PRODUCE", "orders k:0")
        before = resident_bytes()
        async with trio.open_nursery() as nursery:
            streams = [await connect(stack, node.addresses[protocol]) for _ in range(20)]
            nursery.start_soon(flood, streams, begun_frames(protocol))
            with trio.fail_after(HANG_S):
                while await held_bytes(node.addresses["http"]) < 14 * MIB:  # noqa: ASYNC110  of another task, by HTTP
                    await trio.sleep(0.02)
            async with KafkaClient(node.addresses["kafka"]) as other:
                for _ in range(20):
                    answer = await other.ask(large_metadata(128 * 1024), 4)
                    assert len(answer.topics) > 500
                    assert await held_bytes(node.addresses["http"]) <= (32 + 8) * MIB
            async with V1Client(node.v1) as client:
                await client.ok("PRODUCE", "orders k:1")
            assert resident_bytes() - before < 130 * MIB
            nursery.cancel_scope.cancel("judged")
            # What was held is given back.
        with trio.fail_after(HANG_S):
            for stream in streams:
                await trio.aclose_forcefully(stream)
            while await held_bytes(node.addresses["http"]):  # noqa: ASYNC110
                await trio.sleep(0.02)
