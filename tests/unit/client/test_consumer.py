"""The consumer against scripted brokers: positions, ends, failover, damage, bounds."""

from __future__ import annotations

import struct

import pytest
import trio

from paceline.client import Client, ConsumerSettings, OutOfRange, Position
from paceline.errors import (
    ConfigurationError,
    ErrorCode,
    InvalidRequest,
    OffsetOutOfRange,
    PacelineError,
    UnknownTopicOrPartition,
)
from paceline.types import Isolation, TopicPartition
from paceline.wire.batch import (
    CONTROL,
    TRANSACTIONAL,
    build_batch,
    build_value_batch,
)
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import AbortedTransaction, Fetch
from paceline.wire.records import Record
from tests.unit.client.broker import Cluster
from tests.unit.client.harness import CancelAtStep, cluster_and_client
from tests.unit.client.partition_log import PartitionLog

ORDERS = TopicPartition("orders", 0)


def fill(log: PartitionLog, count: int, *, per_batch: int = 10, first_ms: int = 1000) -> None:
    """Records ``0 .. count``, values their offsets, one millisecond apart."""
    end = log.log_end + count
    for start in range(log.log_end, end, per_batch):
        stop = min(start + per_batch, end)
        records = [Record(-1, first_ms + n, None, b"%d" % n) for n in range(start, stop)]
        log.append(memoryview(build_batch(records)))


async def read_to_end(
    client: Client, subscription: object = "orders", **options: object
) -> list[int]:
    async with client.consumer(subscription, stop=Position.LATEST, **options) as consumer:  # type: ignore[arg-type]
        return [record.offset async for record in consumer]


# --- from where to where -------------------------------------------------------------------------


async def test_records_come_as_they_were_sent(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.create("orders")
        async with client.producer() as producer:
            await producer.send("orders", b"v", key=b"k", headers=[("h", None)], timestamp_ms=7)
            await producer.send("orders", None, timestamp_ms=8)
        async with client.consumer("orders", stop=Position.LATEST) as consumer:
            records = [record async for record in consumer]
        assert records == [
            ("orders", 0, 0, 7, b"k", b"v", (("h", None),)),
            ("orders", 0, 1, 8, None, None, ()),
        ]


async def test_reading_to_the_end_takes_all_partitions_in_their_order(
    autojump_clock: object,
) -> None:
    async with cluster_and_client() as (cluster, client):
        for number, log in enumerate(cluster.create("orders", 5)):
            fill(log, 37 * number)
        async with client.consumer("orders", stop=Position.LATEST) as consumer:
            seen: dict[int, list[int]] = {}
            async for record in consumer:
                seen.setdefault(record.partition, []).append(record.offset)
        assert seen == {number: list(range(37 * number)) for number in range(1, 5)}


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (Position.EARLIEST, range(5, 100)),
        (Position.at(5), range(5, 100)),
        (Position.at(43), range(43, 100)),
        (Position.LATEST, range(0)),
        (Position.tail(7), range(93, 100)),
        (Position.tail(1000), range(5, 100)),
        (Position.since(1042), range(42, 100)),
        (Position.since(99999), range(0)),
    ],
)
async def test_start_positions(autojump_clock: object, start: Position, expected: range) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        fill(log, 100)
        log.log_start = 5
        assert await read_to_end(client, start=start) == list(expected)


async def test_stop_positions(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        fill(log, 100)
        for stop, end in (
            (Position.at(33), 33),
            (Position.since(1058), 58),
            (Position.tail(1), 99),
        ):
            async with client.consumer("orders", stop=stop) as consumer:
                assert [record.offset async for record in consumer] == list(range(end))
                assert consumer.position(ORDERS) >= end


async def test_end_is_that_of_the_start_not_of_later(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        fill(log, 20)
        async with client.consumer("orders", stop=Position.LATEST) as consumer:
            fill(log, 20)
            assert [record.offset async for record in consumer] == list(range(20))


async def test_an_empty_topic_ends_at_once(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.create("orders", 3)
        assert await read_to_end(client) == []


async def test_end_waits_for_leader_and_for_its_true_high_watermark(
    autojump_clock: object,
) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        fill(log, 20)
        cluster.move("orders", 0, -1)
        result: list[list[int]] = []

        async def read() -> None:
            result.append(await read_to_end(client))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await trio.sleep(100)
            assert not result
            log.hw_is_known = False
            cluster.move("orders", 0, 1)
            await trio.sleep(100)
            assert not result
            log.hw_is_known = True
        assert result == [list(range(20))]


async def test_waiting_consumer_gets_what_arrives(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        async with client.consumer("orders") as consumer:
            for turn in range(3):
                await trio.sleep(10)
                fill(log, 1)
                begin = trio.current_time()
                record = await anext(consumer)
                assert record.offset == turn
                assert trio.current_time() - begin < 0.1


async def test_missing_topics_and_partitions_are_errors(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.create("orders", 2)
        for wrong in ("nowhere", TopicPartition("orders", 2)):
            with pytest.raises(UnknownTopicOrPartition):
                await read_to_end(client, wrong)


def test_positions_that_make_no_sense_are_refused() -> None:
    for make in (Position.at, Position.since, Position.tail):
        with pytest.raises(ConfigurationError):
            make(-1)


# --- moving about --------------------------------------------------------------------------------


async def test_seek_goes_anywhere_and_drops_what_was_read_ahead(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        fill(log, 100)
        async with client.consumer("orders") as consumer:
            for target in (73, 5, 99, 0, 18):
                await consumer.seek(ORDERS, Position.at(target))
                assert consumer.position(ORDERS) == target
                assert (await anext(consumer)).offset == target
                assert consumer.position(ORDERS) == target + 1


async def test_position_counts_records_handed_out(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        fill(log, 30)
        async with client.consumer("orders") as consumer:
            for expected in range(25):
                assert consumer.positions() == {ORDERS: expected}
                await anext(consumer)


async def test_nobody_waits_for_ever_for_an_end_that_nobody_can_tell(
    autojump_clock: object,
) -> None:
    """One partition has lost its leader: it is told so, also of a seek, and the ends of the others
    can be asked for."""
    async with cluster_and_client() as (cluster, client):
        first, _ = cluster.create("orders", 2)
        cluster.move("orders", 1, 1)
        async with client.producer() as producer:
            await producer.send("orders", b"a", partition=0)
        async with client.consumer("orders") as consumer:
            alive, dead = consumer.assignment
            cluster.kill(1)
            with trio.fail_after(3 * client.settings.operation_timeout_s):
                with pytest.raises(PacelineError) as failure:
                    await consumer.end_offsets()
                with pytest.raises(PacelineError):
                    await consumer.seek(dead, Position.LATEST)
            assert failure.value.retriable
            assert await consumer.end_offsets([alive]) == {alive: first.log_end}
            assert (await anext(consumer)).value == b"a"


async def test_pause_holds_one_partition_and_loses_nothing(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        for log in cluster.create("orders", 2):
            fill(log, 30)
        other = TopicPartition("orders", 1)
        async with client.consumer("orders", stop=Position.LATEST) as consumer:
            first = [await anext(consumer) for _ in range(15)]
            consumer.pause(ORDERS)
            during = [await anext(consumer) for _ in range(30 - sum(r.partition for r in first))]
            assert {record.partition for record in during} == {1}
            assert consumer.position(other) == 30
            consumer.resume(ORDERS)
            rest = [record async for record in consumer]
        offsets = [r.offset for r in (*first, *during, *rest) if r.partition == 0]
        assert offsets == list(range(30))


async def test_assign_and_unassign(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        for log in cluster.create("orders", 3):
            fill(log, 10)
        async with client.consumer() as consumer:
            await consumer.assign([TopicPartition("orders", 2)], stop=Position.LATEST)
            assert [record.partition async for record in consumer] == [2] * 10
            await consumer.assign("orders", stop=Position.LATEST)
            assert len(consumer.assignment) == 3
            consumer.unassign([TopicPartition("orders", 0)])
            assert [record.partition async for record in consumer] == [1] * 10
            with pytest.raises(InvalidRequest, match="orders/0"):
                consumer.position(TopicPartition("orders", 0))


async def test_batches_are_handed_out_whole(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        fill(log, 35)
        start = Position.at(12)
        async with client.consumer("orders", start=start, stop=Position.at(31)) as consumer:
            batches = [batch async for batch in consumer.batches()]
        assert [(b.first_offset, b.end_offset) for b in batches] == [(12, 20), (20, 30), (30, 31)]
        assert bytes(batches[1].data) == bytes(log.batches[2])
        offsets = [record.offset for batch in batches for record in batch.records()]
        assert offsets == list(range(12, 31))


async def test_partitions_take_turns(autojump_clock: object) -> None:
    async with cluster_and_client(1) as (cluster, client):
        for log in cluster.create("orders", 2):
            fill(log, 100)
        async with client.consumer("orders", stop=Position.LATEST) as consumer:
            await trio.sleep(1)
            partitions = [batch.partition async for batch in consumer.batches()]
        assert partitions[:6] in ([0, 1] * 3, [1, 0] * 3)


async def test_new_partitions_of_a_whole_topic_are_found(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        logs = cluster.create("orders", 1)
        async with client.consumer("orders") as consumer:
            logs.append(PartitionLog("orders", 1, 1))
            fill(logs[1], 3)
            with trio.fail_after(100):
                records = [await anext(consumer) for _ in range(3)]
        assert {record.partition for record in records} == {1}


# --- out of range --------------------------------------------------------------------------------


async def test_out_of_range_fails_until_the_consumer_seeks(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        fill(log, 100)
        log.log_start = 50
        async with client.consumer("orders", start=Position.at(10)) as consumer:
            for _ in range(2):
                with pytest.raises(OffsetOutOfRange, match=r"offset 10 outside 50\.\.100"):
                    await anext(consumer)
            await consumer.seek(ORDERS, Position.at(60))
            assert (await anext(consumer)).offset == 60


@pytest.mark.parametrize(
    ("policy", "expected"), [(OutOfRange.EARLIEST, 50), (OutOfRange.LATEST, 100)]
)
async def test_out_of_range_may_go_to_either_end(
    autojump_clock: object, policy: OutOfRange, expected: int
) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        fill(log, 100)
        log.log_start = 50
        async with client.consumer(
            "orders", start=Position.at(10), out_of_range=policy
        ) as consumer:
            await trio.sleep(1)
            fill(log, 5)
            assert (await anext(consumer)).offset == expected


# --- trouble -------------------------------------------------------------------------------------


async def test_reading_goes_on_over_failovers_without_loss_or_repetition(
    autojump_clock: object,
) -> None:
    settings = ConsumerSettings(partition_bytes=300, fetch_bytes=600, prefetch_bytes=2000)
    async with cluster_and_client() as (cluster, client):
        for log in cluster.create("orders", 3):
            fill(log, 400)
        cluster.fault(NativeApi.FETCH, count=10**6, delay_s=0.002)

        async def trouble() -> None:
            for turn in range(60):
                await trio.sleep(0.013)
                cluster.kill(turn % 3)
                await trio.sleep(0.004)
                for partition in range(3):
                    if cluster.topics["orders"][partition].leader == turn % 3:
                        cluster.move("orders", partition, (turn + 1) % 3)
                cluster.start(turn % 3)

        seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trouble)
            async with client.consumer(
                "orders", stop=Position.LATEST, settings=settings
            ) as consumer:
                async for record in consumer:
                    seen[record.partition].append(record.offset)
            nursery.cancel_scope.cancel()
        assert seen == {number: list(range(400)) for number in range(3)}
        assert sum(log.epoch for log in cluster.topics["orders"]) > 3


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.STORAGE_ERROR,
        ErrorCode.THROTTLED,
    ],
)
async def test_retriable_refusals_are_retried(autojump_clock: object, code: ErrorCode) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        fill(log, 30)
        fault = cluster.fault(NativeApi.FETCH, count=3, error=code)
        assert await read_to_end(client) == list(range(30))
        assert fault.hits == 3


async def test_lasting_refusals_are_raised(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        fill(log, 30)
        cluster.fault(NativeApi.FETCH, error=ErrorCode.AUTHORIZATION_FAILED)
        with pytest.raises(PacelineError, match="orders/0: as the test asked"):
            await read_to_end(client)


async def test_a_deleted_topic_is_an_error_in_the_end(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.create("orders")
        async with client.consumer("orders") as consumer:
            await trio.sleep(1)
            del cluster.topics["orders"]
            with trio.fail_after(60), pytest.raises(UnknownTopicOrPartition, match="orders/0"):
                await anext(consumer)


# --- transactions --------------------------------------------------------------------------------


def marker(producer_id: int, kind: int) -> bytearray:
    return build_batch(
        [Record(-1, 1, struct.pack(">hh", 0, kind), b"")],
        producer_id=producer_id,
        producer_epoch=0,
        flags=CONTROL | TRANSACTIONAL,
    )


def transactional(producer_id: int, value: bytes) -> bytearray:
    return build_batch(
        [Record(-1, 1, None, value)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        flags=TRANSACTIONAL,
    )


async def test_aborted_records_and_markers_are_hidden(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        for batch in (
            transactional(1, b"aborted"),
            transactional(2, b"committed"),
            build_value_batch([b"plain"], timestamp_ms=1),
            marker(1, 0),
            transactional(1, b"committed later"),
            marker(2, 1),
            marker(1, 1),
        ):
            log.append_raw(batch)
        log.aborted = (AbortedTransaction(1, 0),)
        visible = {
            Isolation.READ_COMMITTED: [b"committed", b"plain", b"committed later"],
            Isolation.READ_UNCOMMITTED: [b"aborted", b"committed", b"plain", b"committed later"],
        }
        for isolation, values in visible.items():
            async with client.consumer(
                "orders", stop=Position.LATEST, isolation=isolation
            ) as consumer:
                assert [record.value async for record in consumer] == values
                assert consumer.position(ORDERS) == 7


# --- bounds and cancellation ---------------------------------------------------------------------


async def test_reading_ahead_is_bounded(autojump_clock: object) -> None:
    settings = ConsumerSettings(prefetch_bytes=20_000, partition_bytes=3000, fetch_bytes=6000)
    async with cluster_and_client(1) as (cluster, client):
        for log in cluster.create("orders", 2):
            for _ in range(200):
                log.append(memoryview(build_value_batch([bytes(900)], timestamp_ms=1)))
        async with client.consumer("orders", settings=settings) as consumer:
            await trio.sleep(60)
            asked = len(cluster.requests(Fetch))
            await trio.sleep(60)
            assert len(cluster.requests(Fetch)) == asked
            assert asked <= 20_000 / 2500 + 2
            for _ in range(100):
                await anext(consumer)
            assert len(cluster.requests(Fetch)) > asked


async def test_batch_larger_than_every_limit_is_read(autojump_clock: object) -> None:
    settings = ConsumerSettings(prefetch_bytes=1000, partition_bytes=1000, fetch_bytes=1000)
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        for _ in range(3):
            log.append(memoryview(build_value_batch([bytes(50_000)], timestamp_ms=1)))
        assert await read_to_end(client, settings=settings) == [0, 1, 2]


@pytest.mark.parametrize("step", range(6))
async def test_reading_may_be_cancelled_at_every_step(autojump_clock: object, step: int) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        fill(log, 50, per_batch=1)
        seen = []
        async with client.consumer("orders", stop=Position.LATEST) as consumer:
            for _ in range(10):
                with trio.CancelScope() as scope, CancelAtStep(scope, step):
                    seen.append((await anext(consumer)).offset)
            seen += [record.offset async for record in consumer]
        assert seen == list(range(50))


async def test_the_blocks_error_leaves_as_itself(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.create("orders")
        with pytest.raises(KeyError):
            async with client.consumer("orders"):
                raise KeyError("user's own")


# --- a topic that is made anew --------------------------------------------------------------------


async def make_anew_while_asked(cluster: Cluster, client: Client) -> None:
    """A leader has told where the old one lies; before that arrives, ``client`` hears of the new
    one."""
    asked = cluster.fault(NativeApi.LIST_OFFSETS, delay_s=1)
    while not asked.hits:  # noqa: ASYNC110  a fault has no event
        await trio.sleep(0.01)
    (log,) = cluster.create("orders")
    fill(log, 10)
    await client.admin.topic("orders")


@pytest.mark.parametrize("seeks", [False, True])
async def test_a_place_that_was_looked_up_in_the_old_one_is_none_in_the_new_one(
    autojump_clock: object, seeks: bool
) -> None:
    """What the new one had before it was passed over."""
    async with cluster_and_client(1) as (cluster, client), trio.open_nursery() as nursery:
        (log,) = cluster.create("orders")
        fill(log, 7)
        async with client.consumer(out_of_range=OutOfRange.EARLIEST) as consumer:
            if seeks:
                await consumer.assign("orders")
            nursery.start_soon(make_anew_while_asked, cluster, client)
            if seeks:
                await consumer.seek(ORDERS, Position.LATEST)
            else:
                await consumer.assign("orders", start=Position.LATEST)
            with trio.fail_after(60):
                assert [(await anext(consumer)).offset for _ in range(10)] == list(range(10))
