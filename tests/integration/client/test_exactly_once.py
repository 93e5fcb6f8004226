"""Members of a group that commit what they have read with their transactions: whoever reads next
begins behind it, or it was never committed."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from paceline.client import (
    Client,
    GroupConsumer,
    GroupSettings,
    Position,
    TransactionalProducer,
    blocking,
)
from paceline.errors import IllegalGeneration, InvalidTransactionState, UnstableOffsetCommit
from paceline.types import Isolation, TopicPartition
from tests.integration.node.machines import connect
from tests.integration.node.nodes import lone_node

pytestmark = [pytest.mark.virtual_time, pytest.mark.timeout(120)]

FLAGS = {
    "groups.initial_delay_ms": "50",
    "groups.session_min_ms": "500",
    "topics.replication_factor": "1",
    "topics.min_insync_replicas": "1",
}
SETTINGS = GroupSettings(session_timeout_s=2, rebalance_timeout_s=6, auto_commit_s=None)
AT = TopicPartition("in", 0)


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(30):
        while not condition():  # noqa: ASYNC110  conditions span tasks: no one event tells
            await trio.sleep(0.02)


@asynccontextmanager
async def ten_to_read(path: Path) -> AsyncIterator[tuple[str, Client]]:
    """A node's address, and a client; the records 0 to 9 are in two batches of ``in``."""
    async with lone_node(path, FLAGS) as node, connect(node.native) as client:
        await client.admin.create_topic("in", partitions=1, replication_factor=1)
        async with client.producer() as producer:
            for first in (0, 5):
                await producer.send_many("in", [b"%d" % n for n in range(first, first + 5)])
        yield node.native, client


def joined(client: Client) -> AbstractAsyncContextManager[GroupConsumer]:
    return client.consumer("in", group="copiers", membership=SETTINGS)


async def read_some(consumer: GroupConsumer, producer: TransactionalProducer) -> int:
    """Have one batch in the open transaction; where it ends."""
    batch = await consumer.next_batch()
    assert batch is not None
    await producer.send_many("out", [record.value or b"" for record in batch.records()])
    return batch.end_offset


@pytest.mark.parametrize("commits", [True, False])
async def test_the_next_reader_waits_for_offsets_of_an_open_transaction(
    tmp_path: Path, commits: bool
) -> None:
    """For longer than its session: all the while it stays a member."""
    firsts: list[int] = []
    async with (
        ten_to_read(tmp_path) as (_, client),
        client.transactional_producer("copier") as producer,
        trio.open_nursery() as nursery,
    ):
        await producer.begin()
        async with joined(client) as first:
            end = await read_some(first, producer)
            await producer.send_offsets({AT: end}, first.member)
        async with joined(client) as second:

            async def read() -> None:
                firsts.append((await anext(second)).offset)

            nursery.start_soon(read)
            await until(lambda: second.generation >= 0)
            generation = second.generation
            await trio.sleep(SETTINGS.session_timeout_s * 1.5)
            assert not firsts
            assert second.generation == generation
            await (producer.commit() if commits else producer.abort())
            await until(lambda: bool(firsts))
            assert second.generation == generation
    assert firsts == [end if commits else 0]


async def test_one_pending_offset_keeps_no_other_partition_waiting(tmp_path: Path) -> None:
    """The partition it is of begins when the transaction has ended; the member stays one."""
    seen: list[tuple[int, int]] = []
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        client.transactional_producer("copier") as producer,
        trio.open_nursery() as nursery,
    ):
        await client.admin.create_topic("in", partitions=4, replication_factor=1)
        async with client.producer() as plain:
            for partition in range(4):
                await plain.send_many("in", [b"a", b"b"], partition=partition)
        await producer.begin()
        await producer.send_offsets({AT: 1}, "copiers")
        async with joined(client) as consumer:

            async def read() -> None:
                async for record in consumer:
                    seen.append((record.partition, record.offset))

            nursery.start_soon(read)
            await until(lambda: len(seen) == 6)
            assert 0 not in {partition for partition, _ in seen}
            assert len(consumer.assignment) == 4
            generation = consumer.generation
            await producer.commit()
            await until(lambda: (0, 1) in seen)
            assert (0, 0) not in seen
            assert consumer.generation == generation
            nursery.cancel_scope.cancel()


async def test_asking_for_committed_offsets_waits_too(tmp_path: Path) -> None:
    async with (
        ten_to_read(tmp_path) as (_, client),
        client.transactional_producer("copier") as producer,
        joined(client) as consumer,
    ):
        await producer.begin()
        end = await read_some(consumer, producer)
        await producer.send_offsets({AT: end}, consumer.member)
        async with client.consumer(
            "in", group="others", membership=SETTINGS, isolation=Isolation.READ_UNCOMMITTED
        ) as hasty:
            assert await hasty.committed([AT]) == {AT: None}
        with pytest.raises(UnstableOffsetCommit):
            await consumer.committed([AT])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.commit)
            assert await consumer.committed([AT]) == {AT: end}


async def test_offsets_of_a_batch_are_refused_once_another_may_read_it(tmp_path: Path) -> None:
    """The consumer has joined again meanwhile, and would pass as a member of the new generation."""
    async with (
        ten_to_read(tmp_path) as (_, client),
        client.transactional_producer("copier") as producer,
        joined(client) as slow,
    ):
        await producer.begin()
        end = await read_some(slow, producer)
        generation = slow.generation
        async with joined(client):
            await until(lambda: slow.generation > generation)
            with pytest.raises(IllegalGeneration):
                await producer.send_offsets({AT: end}, slow.member)
        with pytest.raises(InvalidTransactionState):
            await producer.commit()
        await producer.abort()


async def test_many_records_of_one_transaction_are_copied_once_over_a_rebalance(
    tmp_path: Path,
) -> None:
    """The last of them was taken after it, by a member that won its partition back."""
    copied: list[bytes | None] = []
    async with (
        ten_to_read(tmp_path) as (_, client),
        client.transactional_producer("copier") as producer,
        joined(client) as consumer,
    ):
        await client.admin.create_topic("out", partitions=1, replication_factor=1)
        await producer.begin()
        taken = [await anext(consumer) for _ in range(7)]
        generation = consumer.generation
        async with joined(client):
            await until(lambda: consumer.generation > generation)
            generation = consumer.generation
        await until(lambda: consumer.generation > generation)  # and has left
        taken.append(await anext(consumer))
        assert taken[-1].offset == 0, "it is read again"
        await producer.send_many("out", [each.value for each in taken])
        with pytest.raises(IllegalGeneration):
            await producer.send_offsets({AT: 7}, consumer.member)
        await producer.abort()
        await producer.begin()  # the same once more is no better
        with pytest.raises(IllegalGeneration):
            await producer.send_offsets({AT: 7}, consumer.member)
        await producer.abort()
        await consumer.rewind()
        for count in (1, 1, 6, 2):
            async with producer.transaction():
                taken = [await anext(consumer) for _ in range(count)]
                await producer.send_many("out", [each.value for each in taken])
                await producer.send_offsets({AT: taken[-1].offset + 1}, consumer.member)
        async with client.consumer("out", stop=Position.LATEST) as output:
            async for record in output:
                copied.append(record.value)
    assert copied == [b"%d" % number for number in range(10)]


@pytest.mark.virtual_time(False)
async def test_blocking_members_commit_with_transactions_too(tmp_path: Path) -> None:
    def copy(bootstrap: str) -> tuple[int, int]:
        with (
            blocking.connect(bootstrap) as client,
            client.transactional_producer("copier") as producer,
            client.group_consumer("in", "copiers", membership=SETTINGS) as consumer,
        ):
            with producer.transaction():
                record = next(consumer)
                producer.send("out", record.value)
                producer.send_offsets({AT: record.offset + 1}, consumer.member)
            committed = consumer.committed([AT])[AT]
            assert committed is not None
            return consumer.member.generation, committed

    async with ten_to_read(tmp_path) as (address, _):
        generation, committed = await trio.to_thread.run_sync(copy, address)
        assert (generation > 0, committed) == (True, 1)


@pytest.mark.virtual_time(False)
async def test_a_blocking_member_that_paused_is_told_what_it_lost(tmp_path: Path) -> None:
    """Pausing the partition in hand is no seek: what was taken of it stays taken. A move made it
    stale, and its offsets were accepted: three records were there twice."""

    def copy(bootstrap: str) -> None:
        with (
            blocking.connect(bootstrap) as client,
            client.transactional_producer("copier") as producer,
            client.group_consumer("in", "copiers", membership=SETTINGS) as consumer,
        ):
            producer.begin()
            assert [next(consumer).offset for _ in range(3)] == [0, 1, 2]
            consumer.pause(AT)
            assert consumer.position(AT) == 3
            generation = consumer.generation
            with client.group_consumer("in", "copiers", membership=SETTINGS):
                await_(lambda: consumer.generation > generation)
                generation = consumer.generation
            await_(lambda: consumer.generation > generation and consumer.assignment == [AT])
            assert next(consumer).offset == 0  # nothing is committed: it is read again
            with pytest.raises(IllegalGeneration):
                producer.send_offsets({AT: 1}, consumer.member)
            producer.abort()

    async with ten_to_read(tmp_path) as (address, _):
        await trio.to_thread.run_sync(copy, address)


@pytest.mark.virtual_time(False)
async def test_what_is_left_of_a_paused_batch_is_not_committed(tmp_path: Path) -> None:
    def read(bootstrap: str) -> None:
        settings = replace(SETTINGS, auto_commit_s=0.05)
        with (
            blocking.connect(bootstrap) as client,
            client.group_consumer("in", "copiers", membership=settings) as consumer,
        ):
            assert [next(consumer).offset for _ in range(3)] == [0, 1, 2]
            consumer.pause(AT)
            with pytest.raises(TimeoutError):  # it asks for more, so the three are done
                consumer.next_batch(timeout_s=0.2)
            await_(lambda: consumer.committed([AT]) == {AT: 3})
        with (
            blocking.connect(bootstrap) as client,
            client.group_consumer("in", "copiers", membership=settings) as consumer,
        ):
            assert next(consumer).offset == 3

    async with ten_to_read(tmp_path) as (address, _):
        await trio.to_thread.run_sync(read, address)


def await_(holds: Callable[[], bool]) -> None:
    """Wait in a thread that has no loop."""
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, "not within 30 s"
        time.sleep(0.01)
