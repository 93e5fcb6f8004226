"""What connections make a node keep in memory is charged to them, whatever it is kept as."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from paceline.types import Isolation
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import Fetch, FetchPartition
from paceline.wire.segment import messages as m
from paceline.wire.segment import pravega_messages as w
from paceline.wire.segment.framing import encode
from paceline_node.client_memory import ClientMemory, Holding
from tests.hostile import cursus as cursus_attacks
from tests.hostile import kafka as kafka_attacks
from tests.hostile import speech_native
from tests.integration.hostile.test_memory import MIB, ONE, SMALL, connect, held_bytes
from tests.integration.node.cursus_client import CursusClient
from tests.integration.node.kafka_client import KafkaClient
from tests.integration.node.native import request
from tests.integration.node.nodes import HANG_S, Address, RunningNode, V1Client, cluster, lone_node
from tests.integration.segment import client as segments

CROWD = 6


async def charged(address: Address, at_least: int) -> None:
    """Return once so much is charged to clients."""
    with trio.fail_after(HANG_S):
        while await held_bytes(address) < at_least:  # noqa: ASYNC110  of another task, by HTTP
            await trio.sleep(0.02)


async def given_back(address: Address) -> None:
    with trio.fail_after(HANG_S):
        while await held_bytes(address):  # noqa: ASYNC110
            await trio.sleep(0.02)


async def fill_segment(node: RunningNode, name: str, megabytes: int) -> None:
    async with segments.connect(node.addresses["segment"]) as raw:
        await raw.create(name)
        writer = segments.uuid4()
        at = await raw.set_up(writer, name)
        for _ in range(megabytes):
            at = await raw.append(writer, at, bytes(MIB - 8))


@pytest.mark.parametrize("dialect", ["seed", "pravega"])
async def test_segment_replies_that_nobody_takes(tmp_path: Path, dialect: str) -> None:
    """60 connections that asked for 16 MiB each took 840 MiB of which nothing was charged."""
    said = encode(m.ReadSegment("a/b/0", 0, 4 * MIB)) * 10
    if dialect == "pravega":
        said = encode(w.Hello(15, 5)) + encode(w.ReadSegment("a/b/0", 0, 4 * MIB, "", 1)) * 10
    async with lone_node(tmp_path, SMALL) as node, AsyncExitStack() as stack:
        await fill_segment(node, "a/b/0", 4)
        streams = [await connect(stack, node.addresses["segment"]) for _ in range(CROWD)]
        for stream in streams:
            await stream.send_all(said)
        await charged(node.addresses["http"], 14 * MIB)
        for _ in range(20):
            assert await held_bytes(node.addresses["http"]) <= (32 + 8) * MIB
        async with V1Client(node.v1) as client:
            await client.ok("PRODUCE", "orders k:1")
        for stream in streams:
            await trio.aclose_forcefully(stream)
        await given_back(node.addresses["http"])


async def test_websocket_messages_in_pieces(tmp_path: Path) -> None:
    """The library put them together where nobody counted, and kept four more."""
    piece = speech_native.message(bytes(MIB), opcode=0, final=False)
    first = speech_native.message((7 * MIB).to_bytes(4, "big"), final=False)
    async with lone_node(tmp_path, SMALL) as node, AsyncExitStack() as stack:
        stream = await connect(stack, node.addresses["http"])
        await stream.send_all(speech_native.UPGRADE)
        assert b" 101 " in await stream.receive_some()
        hello = speech_native.message(speech_native.HELLO_BYTES)
        await stream.send_all(hello + first + piece * 5)
        await charged(node.addresses["http"], 4 * MIB)
        await trio.aclose_forcefully(stream)
        await given_back(node.addresses["http"])


async def test_websocket_answers_that_nobody_takes(tmp_path: Path) -> None:
    """Each was put together in memory, thrice, and charged to nobody: 1.3 GiB."""
    part = FetchPartition("orders", 0, 0, 4 * MIB)
    asked = Fetch(0, 1, 4 * MIB, Isolation.READ_COMMITTED, (part,))
    said = speech_native.message(request(NativeApi.FETCH, asked))
    async with lone_node(tmp_path, SMALL) as node, AsyncExitStack() as stack:
        async with V1Client(node.v1) as client:
            for _ in range(16):
                await client.ok("PRODUCE", "orders k:" + "x" * (MIB // 2))
        streams = [await connect(stack, node.addresses["http"]) for _ in range(CROWD)]
        for stream in streams:
            await stream.send_all(speech_native.UPGRADE)
            assert b" 101 " in await stream.receive_some()
            await stream.send_all(speech_native.message(speech_native.HELLO_BYTES) + said)
        await charged(node.addresses["http"], 14 * MIB)
        for _ in range(20):
            assert await held_bytes(node.addresses["http"]) <= (32 + 13) * MIB
        for stream in streams:
            await trio.aclose_forcefully(stream)
        await given_back(node.addresses["http"])


async def test_v1_replies_that_nobody_takes(tmp_path: Path) -> None:
    flags = {**SMALL, "v1.consume_max_bytes": str(8 * MIB), "v1.max_line_bytes": str(8 * MIB)}
    async with lone_node(tmp_path, flags) as node, AsyncExitStack() as stack:
        async with V1Client(node.v1) as client:
            for _ in range(16):
                await client.ok("PRODUCE", "orders k:" + "x" * (MIB // 2))
        stream = await connect(stack, node.v1)
        await stream.send_all(b"V1|1|CONSUME|orders 0 0\n" * 20)
        await charged(node.addresses["http"], 7 * MIB)
        await trio.aclose_forcefully(stream)
        await given_back(node.addresses["http"])


async def test_long_polls_that_wait_are_charged_until_they_end(tmp_path: Path) -> None:
    """What a parked FETCH of Kafka's kept was charged while it arrived, and to nobody later."""
    asked = kafka_attacks.repeated_fetch("orders", 1, times=10_000, wait_ms=600_000)
    async with lone_node(tmp_path, SMALL) as node, V1Client(node.v1) as writer:
        await writer.ok("PRODUCE", "orders k:0")
        async with AsyncExitStack() as stack:
            for _ in range(CROWD):
                poller = KafkaClient(node.addresses["kafka"])
                await (await stack.enter_async_context(poller)).send(asked, 9)
            await charged(node.addresses["http"], CROWD * 160_000)
            for _ in range(20):
                assert await held_bytes(node.addresses["http"]) >= CROWD * 160_000
            await writer.ok("PRODUCE", "orders k:1")
        await given_back(node.addresses["http"])


@pytest.fixture
def most_charged(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The most that clients of each listener were charged with."""
    most: dict[str, int] = {}
    changed = ClientMemory.changed

    def noted(self: ClientMemory, held: Holding, delta: int) -> None:
        changed(self, held, delta)
        for (listener,), size in self.by_listener():
            most[listener] = max(most.get(listener, 0), size)

    monkeypatch.setattr(ClientMemory, "changed", noted)
    return most


async def test_cursus_batches_that_unpack_to_much(
    tmp_path: Path, most_charged: dict[str, int]
) -> None:
    """A frame of some KiB became a batch of 8 MiB, of which the frame alone was charged."""
    async with (
        lone_node(tmp_path, ONE) as node,
        CursusClient(node.addresses["cursus"]) as client,
    ):
        await client.create("topic=many partitions=1")
        [body, _] = cursus_attacks.great_batches("many", megabytes=8)
        await client.send(body)
        await client.receive()
    assert most_charged["cursus"] >= 8 * MIB


async def test_what_is_forwarded_is_charged_where_it_goes(
    tmp_path: Path, most_charged: dict[str, int]
) -> None:
    flags = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}
    async with cluster(tmp_path, 2, flags) as nodes:
        async with CursusClient(nodes.up[0].addresses["cursus"]) as client:
            await client.create("topic=many partitions=1")
        leader = await nodes.leader("many", 0)
        [body, _] = cursus_attacks.great_batches("many", megabytes=8)
        async with CursusClient(nodes.up[1 - leader].addresses["cursus"]) as client:
            with trio.fail_after(HANG_S):
                while most_charged.get("peer", 0) < 8 * MIB:  # until the leader has its log
                    await client.send(body)
                    await client.receive()
