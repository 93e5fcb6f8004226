"""``max.message.bytes`` of a topic, for clients of each protocol: a batch that is larger is refused
whole, and a record is never looked at by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio
import trio.testing

from paceline.error_codes import ErrorCode
from paceline.types import Acks
from paceline.wire.batch import build_batch
from paceline.wire.cursus.batch import CursusBatch, CursusRecord, Dialect, encode_batch
from paceline.wire.kafka import records as kafka
from paceline.wire.native import data
from paceline.wire.native.admin import AlterTopic, CreateTopic, Done, TopicCreated
from paceline.wire.native.api import NativeApi
from paceline.wire.records import Record
from paceline_node.replication.partition import Partition
from tests.unit.listeners.lone import CursusClient, KafkaClient, LoneNode, NativeClient, lone_node

LIMIT = 1024
HALF = b"x" * (LIMIT // 2)
TOO_LARGE = b"x" * LIMIT


@asynccontextmanager
async def strict_node(directory: Path) -> AsyncIterator[LoneNode]:
    """With a topic ``t`` of small batches."""
    async with lone_node(directory) as node:
        client = await node.native()
        limits = {"max.message.bytes": str(LIMIT)}
        await client.ask(NativeApi.CREATE_TOPIC, CreateTopic("t", 1, 1, limits), TopicCreated)
        await until(lambda: (found := hosted(node)) is not None and found.is_leader)
        yield node


def hosted(node: LoneNode) -> Partition | None:
    assert node.node.broker is not None
    return node.node.broker.replicas.table.get("t", 0)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  no event tells of it
        await trio.sleep(0.01)


async def allow_more(node: LoneNode) -> None:
    client = await node.native()
    change = AlterTopic("t", {"max.message.bytes": str(4 * LIMIT)})
    await client.ask(NativeApi.ALTER_TOPIC, change, Done)
    partition = hosted(node)
    assert partition is not None
    await until(lambda: partition.config.max_message_bytes > LIMIT)


def of_size(size: int, *values: bytes) -> bytes:
    """A batch of exactly that size, with these values and one that makes it so large."""
    without = len(build_batch([Record(-1, 1_000, None, value) for value in (*values, b"")]))
    for fill in range(size - without, 0, -1):
        found = build_batch([Record(-1, 1_000, None, value) for value in (*values, b"f" * fill)])
        if len(found) == size:
            return bytes(found)
    raise AssertionError(f"no batch has {size} bytes")


async def native(client: NativeClient, batches: bytes) -> tuple[int, int]:
    part = data.ProducePartition("t", 0, len(batches))
    request = data.Produce(1000, Acks.ALL, (part,))
    reply = await client.ask(NativeApi.PRODUCE, request, data.ProduceReply, batches)
    [found] = reply.partitions
    return found.error, found.base_offset


async def test_native(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with strict_node(tmp_path) as node:
        client = await node.native()
        assert await native(client, of_size(LIMIT)) == (ErrorCode.NONE, 0)
        many = of_size(LIMIT + 1, *[b"small"] * 40)
        assert await native(client, many) == (ErrorCode.MESSAGE_TOO_LARGE, -1)
        small = of_size(LIMIT)
        # Together they may be as large as anything: each batch counts by itself.
        assert await native(client, small * 5) == (ErrorCode.NONE, 1)
        assert await native(client, small + many) == (ErrorCode.MESSAGE_TOO_LARGE, -1)
        await allow_more(node)
        assert await native(client, many) == (ErrorCode.NONE, 6)


async def ask_kafka(client: KafkaClient, batches: bytes) -> tuple[int, int]:
    part = kafka.ProduceRequestTopicPartition(index=0, records=batches)
    topics = (kafka.ProduceRequestTopic(name="t", partition_data=(part,)),)
    request = kafka.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)
    response = await client.ask(request, 9)
    [[found]] = [entry.partition_responses for entry in response.responses]
    return found.error_code, found.base_offset


async def test_kafka(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with strict_node(tmp_path) as node:
        client = await node.kafka()
        assert await ask_kafka(client, of_size(LIMIT)) == (0, 0)
        many = of_size(LIMIT + 1, *[b"small"] * 40)
        assert await ask_kafka(client, many) == (10, -1)
        await allow_more(node)
        assert await ask_kafka(client, many) == (0, 1)


async def test_v1(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with strict_node(tmp_path) as node:
        client = await node.v1()
        said = await client.say("PRODUCE", f"t k:{HALF.decode()} acks=all")
        assert said == "OK|partition=0 offset=0 hw=0"
        large = f"t k:{TOO_LARGE.decode()} acks=all"
        said = await client.say("PRODUCE", large)
        assert said.startswith("ERR|BAD_REQUEST|")
        assert "max.message.bytes=1024" in said
        await allow_more(node)
        assert await client.say("PRODUCE", large) == "OK|partition=0 offset=1 hw=1"


async def write_cursus(client: CursusClient, first: int, *values: bytes) -> str:
    records = [
        CursusRecord(sequence=first + at, producer_id=b"p", epoch=1, payload=value)
        for at, value in enumerate(values)
    ]
    batch = CursusBatch(Dialect.REAL, "t", 0, Acks.ALL, True, records)
    return (await client.ask(encode_batch(batch))).decode()


async def test_cursus(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """The node makes the batches: many small records come to lie in several."""
    async with strict_node(tmp_path) as node:
        client = await node.cursus()
        assert '"last_offset":6' in await write_cursus(client, 1, *[HALF] * 7)
        partition = hosted(node)
        assert partition is not None
        assert partition.log_end_offset == 7
        said = await write_cursus(client, 8, b"small", TOO_LARGE)
        assert said.startswith("ERROR: invalid_message_size")
        assert partition.log_end_offset == 7
        assert '"last_offset":7' in await write_cursus(client, 8, b"small")
        await allow_more(node)
        assert '"last_offset":8' in await write_cursus(client, 9, TOO_LARGE)
