"""What compaction emptied, as Kafka's clients read it: librdkafka takes an answer without a record
for one that was too small, asks for twice as much, and at last tells its user of an error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest
import trio

from paceline.wire.batch import build_batch, iter_batches
from paceline.wire.batch_header import HEADER_BYTES
from paceline.wire.kafka import transactions as wire
from paceline.wire.records import Record
from paceline_node.replication.partition import Partition
from tests.integration.node.kafka_client import HANG_S
from tests.integration.node.machines import connect
from tests.integration.node.nodes import lone_node
from tests.integration.node.test_kafka import NOW, ONE, TOPIC, fetch, fetched, one, produce
from tests.integration.node.test_kafka_transactions import Identity, TransactionalClient
from tests.integration.node.through_asyncio import through_asyncio

_SEGMENT_BYTES = 1024
_KEY = b"key".ljust(1100, b".")
"""A batch with it fills a segment, so that compaction does not join it with others at once."""
_FILLS = 12
_LARGEST = 1_000_000_000
"""As much may librdkafka be told to ask for; it doubles that once, and then it complains."""
_AGAIN = 3
_READERS = ("read_uncommitted", "read_committed")

Read = list[tuple[int, bytes]]
"""Offsets and values."""


class Compacted:
    """Offset 0 an aborted record, 1 its marker; from 2 on a record of one key in a segment each, of
    which compaction leaves the last; then what is not compacted."""

    who: Identity

    def __init__(
        self, address: tuple[str, int], client: TransactionalClient, partition: Partition
    ) -> None:
        self.server = f"{address[0]}:{address[1]}"
        self.client = client
        self.partition = partition

    async def init(self) -> None:
        """Transactions are not to time out, however slow the machine is."""
        request = wire.InitProducerIdRequest(
            transactional_id=self.client.name, transaction_timeout_ms=900_000
        )
        with trio.fail_after(HANG_S):
            while (made := await self.client.ask(request, 4)).error_code != 0:  # noqa: ASYNC110
                await trio.sleep(0.02)
        self.who = made.producer_id, made.producer_epoch

    async def write(self, value: bytes | None, key: bytes = _KEY) -> None:
        batch = build_batch([Record(-1, NOW, key, value)])
        assert one(await self.client.ask(produce(batch), 9)).error_code == 0

    async def begin(self, value: bytes) -> None:
        with trio.fail_after(HANG_S):
            while await self.client.add(self.who) != 0:  # noqa: ASYNC110  the last one's end
                await trio.sleep(0.02)
        assert await self.client.write(self.who, value) == 0

    async def end(self, *, commits: bool) -> None:
        assert await self.client.end(self.who, commits=commits) == 0
        await until(lambda: self.partition.last_stable_offset == self.partition.log_end_offset)


@asynccontextmanager
async def compacted(directory: Path, *, is_empty: bool = False) -> AsyncIterator[Compacted]:
    """With ``is_empty`` nothing is left of the key, and a transaction is open behind it: readers
    of committed records come to where there is nothing but what compaction emptied."""
    async with (
        lone_node(directory, {**ONE, "log.compaction_check_ms": "100"}) as node,
        connect(node.native) as native,
        TransactionalClient(node.addresses["kafka"]) as client,
    ):
        configs = {"retention.ms": "-1", "segment.bytes": str(_SEGMENT_BYTES)}
        await native.admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=configs)
        table = node.node.broker.replicas.table
        await until(lambda: (it := table.get(TOPIC, 0)) is not None and it.is_leader)
        partition = table.get(TOPIC, 0)
        assert partition is not None
        log = Compacted(node.addresses["kafka"], client, partition)
        await log.init()
        await log.begin(b"aborted")
        await log.end(commits=False)
        for number in range(_FILLS):
            await log.write(b"%d" % number)
        if is_empty:
            await log.write(None)
            await log.begin(b"open".ljust(_SEGMENT_BYTES, b"."))
        else:
            await log.write(b"last", b"another".ljust(len(_KEY), b"."))
            await log.begin(b"aborted too")
            await log.end(commits=False)
            await log.begin(b"committed")
            await log.end(commits=True)
        await native.admin.alter_topic(
            TOPIC,
            {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0.01",
                "delete.retention.ms": "0",
            },
        )
        await until(lambda: is_emptied(partition, is_empty=is_empty))
        yield log


def is_emptied(partition: Partition, *, is_empty: bool) -> bool:
    log = partition.log
    placeholders = [each for each in log.segments[:-1] if each.size == HEADER_BYTES]
    if is_empty:
        return sum(each.size for each in log.segments[:-1]) < len(_KEY)
    return len(placeholders) == _FILLS - 1


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(HANG_S):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.02)


# --- the clients ----------------------------------------------------------------------------------


def librdkafka_reads(server: str, isolation: str) -> list[tuple[Read, int]]:
    """What is read from the start, and the offset where it ended; several times."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server,
            "group.id": "g",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.message.max.bytes": _LARGEST,
        }
    )
    start = confluent_kafka.TopicPartition(TOPIC, 0, 0)
    consumer.assign([start])
    found: list[tuple[Read, int]] = []
    read: Read = []
    while len(found) < _AGAIN:
        message = consumer.poll(HANG_S)
        assert message is not None, f"nothing more behind {read}"
        error = message.error()
        if error is None:
            read.append((message.offset(), message.value()))
            continue
        assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
        found.append((read, message.offset()))
        read = []
        consumer.seek(start)
    consumer.close()
    return found


def kafka_python_reads(server: str, isolation: str) -> list[tuple[Read, int]]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=server, isolation_level=isolation, auto_offset_reset="earliest"
    )
    where = kafka.TopicPartition(TOPIC, 0)
    consumer.assign([where])
    end = consumer.end_offsets([where])[where]
    read: Read = []
    while consumer.position(where) < end:
        for each in consumer.poll(timeout_ms=200).get(where, ()):
            read.append((each.offset, each.value))
    consumer.close()
    return [(read, end)]


def aiokafka_reads(server: str, isolation: str) -> list[tuple[Read, int]]:
    async def run() -> list[tuple[Read, int]]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=server, isolation_level=isolation, auto_offset_reset="earliest"
        )
        where = aiokafka.TopicPartition(TOPIC, 0)
        await consumer.start()
        try:
            consumer.assign([where])
            end = (await consumer.end_offsets([where]))[where]
            read: Read = []
            while await consumer.position(where) < end:
                fetched = await consumer.getmany(where, timeout_ms=200)
                read += [(each.offset, each.value) for each in fetched.get(where, ())]
        finally:
            await consumer.stop()
        return [(read, end)]

    return through_asyncio(run(), HANG_S)


CLIENTS = (librdkafka_reads, kafka_python_reads, aiokafka_reads)


# --- reading past what is empty -------------------------------------------------------------------


@pytest.mark.slow
async def test_all_clients_read_past_many_empty_segments(tmp_path: Path) -> None:
    async with compacted(tmp_path) as log:
        kept = [(13, b"11"), (14, b"last")]
        expected = {
            "read_uncommitted": [*kept, (15, b"aborted too"), (17, b"committed")],
            "read_committed": [*kept, (17, b"committed")],
        }
        for client in CLIENTS:
            for isolation in _READERS:
                for found in await trio.to_thread.run_sync(client, log.server, isolation):
                    assert found == (expected[isolation], 19), (client, isolation)


async def test_all_clients_come_to_an_end_that_is_empty(tmp_path: Path) -> None:
    async with compacted(tmp_path, is_empty=True) as log:
        for client in CLIENTS:
            for found in await trio.to_thread.run_sync(client, log.server, "read_committed"):
                assert found == ([], 15), client
        # Where it has come to, there is nothing, and it waits.
        at_end = await log.client.ask(fetch(15, isolation_level=1), 12)
        assert not fetched(at_end).records
        await log.end(commits=True)
        for client in CLIENTS:
            for read, end in await trio.to_thread.run_sync(client, log.server, "read_committed"):
                assert ([offset for offset, _ in read], end) == ([15], 17), client


@pytest.mark.parametrize("isolation", [0, 1])
async def test_an_answer_begins_with_what_holds_something(tmp_path: Path, isolation: int) -> None:
    async with compacted(tmp_path) as log:
        for offset in range(2, 13):
            answer = fetched(await log.client.ask(fetch(offset, isolation_level=isolation), 12))
            _, header = next(iter_batches(answer.records))
            assert (header.base_offset, header.record_count) == (13, 1)


async def test_what_is_only_empty_leads_on(tmp_path: Path) -> None:
    async with compacted(tmp_path, is_empty=True) as log:
        offset = 2
        while offset < 15:
            answer = fetched(await log.client.ask(fetch(offset, isolation_level=1), 12))
            batches = [header for _, header in iter_batches(answer.records)]
            assert all(each.is_control and each.record_count for each in batches), batches
            assert batches[-1].next_offset > offset
            offset = batches[-1].next_offset
        assert offset == 15
