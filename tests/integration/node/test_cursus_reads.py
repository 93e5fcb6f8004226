"""One node over Cursus: CONSUME and STREAM, by the bytes that clients see."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from paceline.wire.cursus.batch import CursusRecord, parse_batch
from paceline.wire.cursus.frames import framed
from tests.integration.node.cursus_client import ONE, CursusClient, batch, numbered, payloads
from tests.integration.node.nodes import RunningNode, lone_node
from tests.unit.wire_cursus.vectors import FRAMES

pytestmark = pytest.mark.virtual_time


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RunningNode]:
    async with lone_node(tmp_path, ONE) as up:
        yield up


@pytest.fixture
async def client(node: RunningNode) -> AsyncIterator[CursusClient]:
    async with CursusClient(node.addresses["cursus"]) as connection:
        yield connection


async def test_consume(client: CursusClient) -> None:
    await client.create("topic=orders partitions=2")
    await client.stream.send_all(framed(b"CONSUME orders 1 0"))
    assert framed(await client.receive()) == FRAMES["T11"]
    await client.stream.send_all(framed(b"CONSUME topic=orders partition=1 offset=0 member=m"))
    assert framed(await client.receive()) == FRAMES["T10"]
    await client.produce(batch("orders", numbered(1, 5), partition=1))
    line = "CONSUME topic=orders partition=1 member=m"
    assert payloads(await client.read(f"{line} offset=3")) == [b"4", b"5"]
    assert payloads(await client.read(f"{line} batch=2")) == [b"1", b"2"]
    assert await client.read(f"{line} autoOffsetReset=latest") == []
    assert await client.read(f"{line} offset=99") == []
    assert payloads(await client.read("CONSUME topic=ord* partition=1 member=m")) == [
        b"1", b"2", b"3", b"4", b"5",
    ]  # fmt: skip
    for text, answer in [
        ("CONSUME none 0 0", "ERROR: topic_not_found topic=none"),
        ("CONSUME orders 9 0", "ERROR: partition_not_found partition=9"),
        ("CONSUME orders", "ERROR: invalid_consume_syntax command=CONSUME"),
        (f"{line} isolation=x", "ERROR: invalid_isolation isolation=x"),
    ]:
        assert await client.say(text) == answer


async def test_consume_waits_for_a_first_record(node: RunningNode, client: CursusClient) -> None:
    await client.create("t 1")
    async with CursusClient(node.addresses["cursus"]) as producer, trio.open_nursery() as nursery:
        read: list[CursusRecord] = []

        async def wait() -> None:
            line = "CONSUME topic=t partition=0 offset=0 member=m wait_ms=3900"
            read.extend(await client.read(line))

        nursery.start_soon(wait)
        await producer.produce(batch("t", numbered(1, 1)))
    assert payloads(read) == [b"1"]


@pytest.mark.parametrize(
    ("rule", "shown"),
    [
        ("raw", [b"\xff\xfe", b"fine", "größe".encode(), b"half \xc3"]),
        ("replace", ["��".encode(), b"fine", "größe".encode(), "half �".encode()]),
        ("skip", [b"fine", "größe".encode()]),
    ],
)
async def test_payloads_that_are_no_text(tmp_path: Path, rule: str, shown: list[bytes]) -> None:
    payloads_ = [b"\xff\xfe", b"fine", "größe".encode(), b"half \xc3"]
    async with (
        lone_node(tmp_path, {**ONE, "cursus.non_utf8": rule}) as node,
        CursusClient(node.addresses["cursus"]) as client,
    ):
        await client.create("t 1")
        written = [CursusRecord(payload=each) for each in payloads_]
        await client.produce(batch("t", written))
        assert payloads(await client.read("CONSUME topic=t partition=0 offset=0")) == shown
        assert payloads(await client.read("CONSUME t 0 0")) == shown
        assert payloads(await client.read("CONSUME topic=t* partition=0 offset=0")) == shown
        await client.send(b"STREAM t 0 0")
        frame = parse_batch(await client.receive())
        assert payloads(frame.records) == shown


async def test_stream(node: RunningNode, client: CursusClient) -> None:
    await client.create("t 1")
    await client.send(b"STREAM topic=t partition=0 group=g member=m generation=1")
    async with CursusClient(node.addresses["cursus"]) as producer:
        for first in (1, 3):
            await producer.produce(batch("t", numbered(first, 2)))
            got: list[bytes] = []
            while len(got) < 2:
                got += payloads(parse_batch(await client.receive()).records)
            assert got == [b"%d" % first, b"%d" % (first + 1)]
        assert await client.receive() == b""  # a keepalive
        # The same member streams again elsewhere: this one is told and has its connection back.
        await producer.send(b"STREAM topic=t partition=0 group=g member=m generation=1 offset=4")
        while (frame := await client.receive()) == b"":
            pass
        assert frame == b"STREAM_CONTROL type=CLOSE reason=replaced offset=4"
        assert await client.say("LIST") == "OK count=1 topics=t"
        # A frame on a streaming connection ends the stream without a word.
        await producer.send(b"LIST")
        while (frame := await producer.receive()) == b"":
            pass
        assert frame == b"OK count=1 topics=t"


async def test_streams_that_cannot_be(client: CursusClient) -> None:
    await client.create("t 1")
    assert await client.say("STREAM none 0 0") == "ERROR: topic_not_found topic=none"
    assert await client.say("STREAM t 5 0") == "ERROR: partition_not_found partition=5"
    await client.send(b"STREAM t 0 0")  # seed dialect, no group
    await client.send(b"PUBLISH topic=t partition=0 message=m")
    frames = []
    while not frames or not frames[-1].startswith(b"{"):
        frames.append(await client.receive())
    assert b"STREAM_CONTROL" not in b"".join(frames)


async def test_a_reset_log_tells_readers_its_range(tmp_path: Path) -> None:
    flags = {**ONE, "log.segment_bytes": "1024", "log.retention_bytes": "1"}
    async with (
        lone_node(tmp_path, flags) as node,
        CursusClient(node.addresses["cursus"]) as client,
    ):
        await client.create("t 1")
        for first in range(1, 40):
            await client.produce(batch("t", [CursusRecord(payload=bytes(200))] * first))
        partition = node.node.broker.replicas.table.get("t", 0)  # type: ignore[union-attr]
        assert partition is not None
        partition.log.enforce_retention(2**50, partition.high_watermark)
        start, end = partition.log_start_offset, partition.high_watermark
        assert start > 1
        line = "CONSUME topic=t partition=0 member=m"
        assert await client.say(f"{line} offset=1") == (
            f"ERROR: OFFSET_OUT_OF_RANGE requested=1 earliest={start} latest={end}"
        )
        assert await client.say("CONSUME t 0 1") == (
            f"ERROR: OFFSET_OUT_OF_RANGE requested=1 earliest={start} latest={end}"
        )
        if start < end:
            assert (await client.read(f"{line} offset=0"))[0].offset == start
            assert (await client.read("CONSUME t 0 0"))[0].offset == start
