"""Of a group's offsets, those of transactions too, whichever was sent last stays, also where the
coordinator crashes. The end of a transaction took back what was acknowledged meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from paceline.errors import ErrorCode
from paceline.types import TopicPartition
from paceline.wire.kafka import offsets
from tests.integration.node.machines import connect
from tests.integration.node.nodes import HANG_S, Cluster, cluster
from tests.integration.node.test_kafka import ONE, TOPIC, make_topic
from tests.integration.node.test_kafka_transactions import Identity, TransactionalClient

pytestmark = pytest.mark.virtual_time

_PASSING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


class Client(TransactionalClient):
    """One of two producers, which commits as a plain consumer, too."""

    def __init__(self, address: tuple[str, int], name: str) -> None:
        super().__init__(address)
        self.name = name

    async def commit(self, offset: int) -> int:
        part = offsets.OffsetCommitRequestTopicPartition(partition_index=0, committed_offset=offset)
        topic = offsets.OffsetCommitRequestTopic(name=TOPIC, partitions=(part,))
        request = offsets.OffsetCommitRequest(group_id="g", topics=(topic,))
        [answered] = (await self.ask(request, 2)).topics
        return int(answered.partitions[0].error_code)

    async def delete(self) -> int:
        part = offsets.OffsetDeleteRequestTopicPartition(partition_index=0)
        topic = offsets.OffsetDeleteRequestTopic(name=TOPIC, partitions=(part,))
        answered = await self.ask(offsets.OffsetDeleteRequest(group_id="g", topics=(topic,)), 0)
        return int(answered.error_code or answered.topics[0].partitions[0].error_code)


async def done(ask: Callable[[], Awaitable[int]]) -> None:
    """Ask as clients do: again as long as there is no coordinator."""
    with trio.fail_after(HANG_S):
        while (code := await ask()) in _PASSING:  # noqa: ASYNC110  no event tells
            await trio.sleep(0.02)
    assert code == 0


async def begun(client: Client) -> Identity:
    who: Identity = (-1, -1)

    async def init() -> int:
        nonlocal who
        code, who = await client.init()
        return code

    await done(init)
    return who


async def sent(client: Client, who: Identity, offset: int) -> None:
    await done(lambda: client.add_group(who))
    await done(lambda: client.commit_offset(who, offset))


async def ended(client: Client, who: Identity) -> None:
    await done(lambda: client.end(who, commits=True))


async def committed(client: Client) -> int:
    """Once nothing is pending any more."""
    with trio.fail_after(HANG_S):
        while True:
            code, offset = await client.offset(require_stable=True)
            if code == 0:
                return offset
            assert code in {*_PASSING, ErrorCode.UNSTABLE_OFFSET_COMMIT}
            await trio.sleep(0.02)


@asynccontextmanager
async def two_clients(nodes: Cluster) -> AsyncIterator[tuple[Client, Client]]:
    address = nodes.up[0].addresses["kafka"]
    async with Client(address, "x") as x, Client(address, "y") as y:
        yield x, y


@pytest.mark.parametrize("crashes", [False, True])
async def test_what_was_sent_last_stays(tmp_path: Path, crashes: bool) -> None:
    async with cluster(tmp_path, 1, ONE) as nodes:
        async with two_clients(nodes) as (x, y):
            await make_topic(x)
            await done(lambda: x.commit(3))
            first = await begun(x)
            await sent(x, first, 5)
            await done(lambda: y.commit(100))
        if crashes:
            await nodes.restart(0)
        async with two_clients(nodes) as (x, y):
            await ended(x, first)
            assert await committed(x) == 100
            await sent(x, first, 160)
            second = await begun(y)
            await sent(y, second, 190)
            await ended(y, second)
        if crashes:
            await nodes.restart(0)
        async with two_clients(nodes) as (x, y):
            await ended(x, first)
            assert await committed(x) == 190


async def test_what_an_operator_was_told_is_done_stays_done(tmp_path: Path) -> None:
    at = TopicPartition(TOPIC, 0)
    async with cluster(tmp_path, 1, ONE) as nodes, two_clients(nodes) as (x, y):
        await make_topic(x)
        await done(lambda: x.commit(3))
        who = await begun(x)
        await sent(x, who, 150)
        async with connect(nodes.bootstrap_native) as client:
            await client.admin.groups.alter_offsets("g", {at: 0})
        await ended(x, who)
        assert await committed(x) == 0
        await sent(x, who, 150)
        assert await y.delete() == 0
        await ended(x, who)
        assert await committed(x) == -1
