"""Who is slow or silent in the middle of something is ended; who waits for something is not."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import trio

import paceline
from paceline.types import Isolation
from paceline.wire.cursus.frames import framed
from paceline.wire.native import data
from paceline.wire.native.api import NativeApi
from tests.hostile.native import frame
from tests.integration.hostile.test_memory import MIB, ONE, connect
from tests.integration.node.cursus_client import CursusClient
from tests.integration.node.native import HELLO, NativeConnection, request
from tests.integration.node.nodes import HANG_S, RunningNode, V1Client, lone_node
from tests.integration.node.test_metrics import scrape

QUICK = {
    **ONE,
    "topics.partitions": "1",
    "limits.stall_ms": "700",
    "limits.native_idle_ms": "700",
    "cursus.stream_stall_ms": "700",
    "v1.consume_max_bytes": str(8 * MIB),
}
TOPIC_BYTES = 32 * MIB
"""More than the buffers of a connection take."""


async def test_half_a_line_is_not_waited_for(tmp_path: Path) -> None:
    async with lone_node(tmp_path, QUICK) as node, AsyncExitStack() as stack:
        silent = await connect(stack, node.v1)
        half = await connect(stack, node.v1)
        await half.send_all(b"V1|1|PRODUCE|orders k:0\nV1|2|PROD")
        told = b""
        with trio.fail_after(HANG_S):
            while more := await half.receive_some():
                told += more
        assert told.startswith(b"V1|1|OK|"), told
        assert told.endswith(b"ERR|BAD_REQUEST|request line begun and not ended in time\n"), told
        # Between lines a client may be silent for ever.
        await silent.send_all(b"V1|3|PRODUCE|orders k:0\n")
        with trio.fail_after(HANG_S):
            assert (await silent.receive_some()).startswith(b"V1|3|OK|")


async def active(node: RunningNode, protocol: str) -> float:
    return (await scrape(node.addresses["http"])).one("connections_active", protocol=protocol)


async def test_who_takes_nothing_is_ended(tmp_path: Path) -> None:
    """V1 and Cursus waited for their readers without end, native for as long as others did not
    need the memory."""
    part = data.FetchPartition("orders", 0, 0, TOPIC_BYTES)
    fetch = data.Fetch(0, 1, TOPIC_BYTES, Isolation.READ_COMMITTED, (part,))
    asks = {
        "v1": b"V1|1|CONSUME|orders 0 0\n" * 8,
        "cursus": framed(b"STREAM orders 0 0"),
        "native": request(NativeApi.HELLO, HELLO) + frame(NativeApi.FETCH, fetch),
    }
    async with lone_node(tmp_path, QUICK) as node, AsyncExitStack() as stack:
        async with V1Client(node.v1) as client:
            for _ in range(TOPIC_BYTES // MIB):
                await client.ok("PRODUCE", "orders k:" + "x" * (MIB - 100))
        for protocol, said in asks.items():
            stream = await connect(stack, node.addresses[protocol])
            await stream.send_all(said)
        with trio.fail_after(HANG_S):
            for protocol in asks:
                while await active(node, protocol):  # noqa: ASYNC110  of another task, by HTTP
                    await trio.sleep(0.05)


async def test_who_waits_is_not_ended(tmp_path: Path) -> None:
    """A long poll, a stream and a V1 client are healthy however long nothing comes; the native
    client comes back after a silence that was too long."""
    async with (
        lone_node(tmp_path, QUICK) as node,
        V1Client(node.v1) as writer,
        NativeConnection(node.addresses["native"]) as polling,
        NativeConnection(node.addresses["native"]) as silent,
        CursusClient(node.addresses["cursus"]) as streaming,
        paceline.connect(node.native) as client,
        client.producer() as producer,
    ):
        await writer.ok("PRODUCE", "orders k:0")
        await producer.send("orders", b"1")
        part = data.FetchPartition("orders", 0, 2, MIB)
        fetch = data.Fetch(25_000, 1, MIB, Isolation.READ_COMMITTED, (part,))
        await polling.send(frame(NativeApi.FETCH, fetch))
        await streaming.send(b"STREAM orders 0 2")
        assert await silent.receive() is None
        # The poll and the stream have been silent for as long, and the client, too.
        await trio.sleep(1)
        assert (await producer.send("orders", b"2")).offset == 2
        answer = await polling.receive()
        assert answer is not None
        assert answer.body[0][0][2] == 0
        with trio.fail_after(HANG_S):
            while not await streaming.receive():
                pass
        await writer.ok("PRODUCE", "orders k:3")
