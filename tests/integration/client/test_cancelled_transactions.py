"""Programs that are cancelled anywhere in a transaction: at each step of the scheduler on its way.

Whatever is cut off, a transaction is there as a whole or not at all, what was told to be committed
is there, and the same producer, or the next one of its id, goes on at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from paceline.client import (
    Client,
    Position,
    ProducerSettings,
    TransactionalProducer,
    TransactionalSettings,
)
from paceline.errors import InvalidTransactionState
from paceline.types import TopicPartition
from tests.integration.node.machines import connect
from tests.integration.node.nodes import lone_node

pytestmark = [
    pytest.mark.virtual_time,
    pytest.mark.timeout(240),
    pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.slow)]),
]

FLAGS = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}
PARTITIONS = 3
AT = TopicPartition("in", 0)
SMALL = ProducerSettings(batch_bytes=1024, buffer_bytes=1024)
"""Each record waits until there is space for it."""
SETTINGS = TransactionalSettings(producer=SMALL)
LIMIT = 5000
"""More steps than any story takes."""


class CancelAt(trio.abc.Instrument):
    """Cancels a scope at the ``number``-th step of the scheduler. The steps of all tasks count, for
    what a task waits for goes on meanwhile: the same checkpoint is cut before a request has left,
    while it is on its way, when it is done and not yet answered."""

    def __init__(self, scope: trio.CancelScope, number: int) -> None:
        self._scope = scope
        self._left = number

    @property
    def has_struck(self) -> bool:
        return self._left <= 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._left -= 1
        if self._left == 0:
            self._scope.cancel()


async def cut(story: Callable[[], Awaitable[None]], number: int) -> bool:
    """Tell a story up to the ``number``-th step; whether it takes so many."""
    with trio.CancelScope() as scope:
        instrument = CancelAt(scope, number)
        trio.lowlevel.add_instrument(instrument)
        try:
            await story()
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return instrument.has_struck


class Ledger:
    """Writes numbers, each in one transaction and into each partition, and judges them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.last = 0
        """What was written last, or begun to be."""
        self._told: set[int] = set()
        self._taken_back: set[int] = set()

    async def write(self, producer: TransactionalProducer) -> int:
        """In the open transaction."""
        self.last += 1
        number = self.last
        value = b"%d" % number + b" " * (SMALL.batch_bytes // 2)
        await producer.send("out", value, partition=0)
        for partition in range(1, PARTITIONS):
            await producer.submit("out", value, partition=partition)
        await producer.send_offsets({AT: number}, "copiers")
        return number

    async def commit(self, producer: TransactionalProducer) -> None:
        async with producer.transaction():
            number = await self.write(producer)
        self._told.add(number)

    def told(self, number: int) -> None:
        """It is committed."""
        self._told.add(number)

    def taken_back(self, number: int) -> None:
        """It is aborted."""
        self._taken_back.add(number)

    async def judge(self) -> None:
        """The last transaction must have been committed."""
        seen: Counter[int] = Counter()
        async with self._client.consumer("out", stop=Position.LATEST) as consumer:
            async for record in consumer:
                seen[int(record.value or b"")] += 1
        assert set(seen.values()) == {PARTITIONS}, "in part, or twice"
        assert self._told <= set(seen), "committed, and not there"
        assert not self._taken_back & set(seen), "aborted, and there"
        assert self.last in self._told
        offsets = await self._client.admin.groups.offsets("copiers")
        assert offsets[AT].offset == self.last


@asynccontextmanager
async def ledger(path: Path) -> AsyncIterator[tuple[Client, Ledger]]:
    async with lone_node(path, FLAGS) as node, connect(node.native) as client:
        for topic in ("in", "out"):
            await client.admin.create_topic(topic, partitions=PARTITIONS, replication_factor=1)
        yield client, Ledger(client)


async def test_the_same_producer_goes_on(tmp_path: Path, stride: int) -> None:
    """Left by its block, which aborts what is open."""
    async with (
        ledger(tmp_path) as (client, book),
        client.transactional_producer("cut", SETTINGS) as producer,
    ):
        for number in range(1, LIMIT, stride):
            was_cut = await cut(lambda: book.commit(producer), number)
            await book.commit(producer)
            if not was_cut:
                break
        assert not was_cut
        await book.judge()


@pytest.mark.parametrize("commits", [True, False])
async def test_who_ends_transactions_by_itself_may_abort(
    tmp_path: Path, commits: bool, stride: int
) -> None:
    """... and is told when that comes too late."""
    async with (
        ledger(tmp_path) as (client, book),
        client.transactional_producer("cut", SETTINGS) as producer,
    ):
        written = 0

        async def story() -> None:
            nonlocal written
            await producer.begin()
            written = await book.write(producer)
            if commits:
                await producer.commit()
                book.told(written)
            else:
                await producer.flush()
                await producer.abort()
                book.taken_back(written)

        for number in range(1, LIMIT, stride):
            was_cut = await cut(story, number)
            if producer.in_transaction:
                try:
                    await producer.abort()
                    book.taken_back(book.last)
                except InvalidTransactionState:
                    assert commits
                    book.told(written)
            await book.commit(producer)
            if not was_cut:
                break
        assert not was_cut
        await book.judge()


@pytest.mark.parametrize("leaves_open", [False, True])
async def test_the_next_producer_goes_on(tmp_path: Path, leaves_open: bool, stride: int) -> None:
    """Opening and closing are cut as well; an open transaction is aborted by closing."""
    async with ledger(tmp_path) as (client, book):

        async def story() -> None:
            async with client.transactional_producer("cut", SETTINGS) as producer:
                await book.commit(producer)
                if leaves_open:
                    await producer.begin()
                    await book.write(producer)

        for number in range(1, LIMIT, stride):
            was_cut = await cut(story, number)
            async with client.transactional_producer("cut", SETTINGS) as another:
                await book.commit(another)
            if not was_cut:
                break
        assert not was_cut
        await book.judge()
