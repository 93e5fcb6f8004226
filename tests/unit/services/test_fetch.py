"""Long polls over many partitions: what wakes them, what they cost, what they are told."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
import trio

from paceline.errors import ErrorCode, NotLeader
from paceline.types import NO_EPOCH, NO_NODE, Acks, Isolation, TopicId
from paceline.wire.native import data
from paceline.wire.native.admin import CreateTopic, DeleteTopic
from paceline.wire.native.api import NativeApi
from paceline_node.replication.partition import Partition
from tests.unit.listeners.lone import LoneNode, NativeClient, batch, lone_node

PARTITIONS = 20
SMALL = batch(b"v")


@pytest.fixture
async def node(tmp_path, autojump_clock):
    async with lone_node(tmp_path, {"topics.partitions": str(PARTITIONS)}) as node:
        admin = await node.native()
        assert not await admin.code(NativeApi.CREATE_TOPIC, CreateTopic("orders", PARTITIONS, 1))
        for partition in range(PARTITIONS):
            await _append(node, partition)
        yield node


async def _append(node: LoneNode, partition: int) -> None:
    client = await node.native()
    part = data.ProducePartition("orders", partition, len(SMALL))
    request = data.Produce(1000, Acks.ALL, (part,))
    while True:
        reply = await client.ask(NativeApi.PRODUCE, request, data.ProduceReply, SMALL)
        if not reply.partitions[0].error:
            return
        assert reply.partitions[0].error == NotLeader.code  # its log is still being made
        await trio.sleep(0.01)


def _fetch(*, min_bytes: int, wait_ms: int = 20_000) -> data.Fetch:
    parts = tuple(data.FetchPartition("orders", each, 1, 10_000) for each in range(PARTITIONS))
    return data.Fetch(wait_ms, min_bytes, 1_000_000, Isolation.READ_COMMITTED, parts)


class _Waiting:
    """A fetch under way."""

    def __init__(self, client: NativeClient, request: data.Fetch) -> None:
        self._client = client
        self._request = request
        self.done = trio.Event()
        self.reply: Any = None

    async def run(self) -> None:
        self.reply = await self._client.ask(NativeApi.FETCH, self._request, data.FetchReply)
        self.done.set()


async def _parked(node: LoneNode, nursery: trio.Nursery, request: data.Fetch) -> _Waiting:
    waiting = _Waiting(await node.native(), request)
    nursery.start_soon(waiting.run)
    await trio.sleep(0.01)
    assert not waiting.done.is_set()
    return waiting


@pytest.fixture
def reads(monkeypatch) -> list[int]:
    """The numbers of the partitions that are read, one after the other."""
    found: list[int] = []
    real = Partition.read

    def read(self: Partition, *args: Any, **more: Any) -> Any:
        if self.topic == "orders":
            found.append(self.partition)
        return real(self, *args, **more)

    monkeypatch.setattr(Partition, "read", read)
    return found


async def test_too_little_looks_only_at_what_woke(node, reads, autojump_clock) -> None:
    async with trio.open_nursery() as nursery:
        waiting = await _parked(node, nursery, _fetch(min_bytes=3 * len(SMALL)))
        reads.clear()
        await _append(node, 3)
        await _append(node, 7)
        await trio.sleep(0.01)
        assert reads == [3, 7]
        assert not waiting.done.is_set()
        await _append(node, 3)
        await waiting.done.wait()
    # The last one made it enough: it looks once more, and all are read for the answer.
    assert reads == [3, 7, 3, *range(PARTITIONS)]
    sizes = {each.partition: each.records_bytes for each in waiting.reply.partitions}
    assert {at: size for at, size in sizes.items() if size} == {
        3: 2 * len(SMALL),
        7: len(SMALL),
    }


async def test_any_byte_wakes_who_asks_for_one(node, reads, autojump_clock) -> None:
    async with trio.open_nursery() as nursery:
        waiting = await _parked(node, nursery, _fetch(min_bytes=1))
        reads.clear()
        await _append(node, 9)
        await waiting.done.wait()
    assert reads == list(range(PARTITIONS))
    assert [each.partition for each in waiting.reply.partitions if each.records_bytes] == [9]


async def test_the_deadline_tells_what_there_is(node, reads, autojump_clock) -> None:
    async with trio.open_nursery() as nursery:
        waiting = await _parked(node, nursery, _fetch(min_bytes=1_000_000, wait_ms=500))
        await _append(node, 5)
        await waiting.done.wait()
    assert [each.partition for each in waiting.reply.partitions if each.records_bytes] == [5]
    assert {each.error for each in waiting.reply.partitions} == {0}


async def test_an_error_is_told_at_once(node, reads, autojump_clock) -> None:
    """However much was asked for."""
    async with trio.open_nursery() as nursery:
        waiting = await _parked(node, nursery, _fetch(min_bytes=1_000_000))
        began = trio.current_time()
        admin = await node.native()
        assert not await admin.code(NativeApi.DELETE_TOPIC, DeleteTopic("orders"))
        await waiting.done.wait()
        assert trio.current_time() - began < 10
    assert any(each.error for each in waiting.reply.partitions)


async def test_of_another_topic_of_the_name_no_leader_is_told(node) -> None:
    """Epochs of the two say nothing of each other: a higher one stood in the way of who leads the
    topic that was asked for."""
    client = await node.native()
    other = TopicId(UUID(int=1))
    part = data.FetchPartition("orders", 0, 0, 10_000, topic_id=other)
    request = data.Fetch(0, 1, 1_000_000, Isolation.READ_COMMITTED, (part,))
    [refused] = (await client.ask(NativeApi.FETCH, request, data.FetchReply)).partitions
    assert refused.error == ErrorCode.UNKNOWN_TOPIC_ID
    assert (refused.leader, refused.leader_epoch) == (NO_NODE, NO_EPOCH)
