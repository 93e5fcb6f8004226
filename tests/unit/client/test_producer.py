"""The producer against scripted brokers: placing, acks, limits, failures, cancellation."""

from __future__ import annotations

import pytest
import trio

from paceline.client import ProducerSettings
from paceline.client.partitioner import fnv1a
from paceline.errors import (
    BufferFull,
    Closed,
    ConfigurationError,
    ErrorCode,
    InvalidRecord,
    PolicyViolation,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from paceline.types import Acks, Compression
from paceline.wire.batch import iter_batches
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import Produce
from paceline.wire.records import Record, decode_records
from tests.unit.client.harness import WALL_MS, CancelAtStep, cluster_and_client

# --- records in, records stored ------------------------------------------------------------------


async def test_send_is_acknowledged_with_its_place(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        log = cluster.create("orders")[0]
        async with client.producer() as producer:
            first = await producer.send("orders", b"a", key=b"k", headers=[("h", b"1")])
            second = await producer.send("orders", None, timestamp_ms=5)
        assert (first.topic, first.partition, first.offset) == ("orders", 0, 0)
        assert first.timestamp_ms == WALL_MS
        assert (second.offset, second.timestamp_ms) == (1, 5)
        stored = [record for batch in log.batches for record in decode_records(batch)]
        assert stored == [
            Record(0, WALL_MS, b"k", b"a", (("h", b"1"),)),
            Record(1, 5, None, None, ()),
        ]


async def test_topic_is_created_when_the_cluster_allows_it(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.auto_create_partitions = 2
        async with client.producer() as producer:
            assert await producer.partition_count("fresh") == 2
            await producer.send("fresh", b"a")
        assert sum(len(log.batches) for log in cluster.topics["fresh"]) == 1


async def test_missing_topic_is_an_error_soon(autojump_clock: object) -> None:
    async with cluster_and_client() as (_, client), client.producer() as producer:
        begin = trio.current_time()
        with pytest.raises(UnknownTopicOrPartition, match="nowhere"):
            await producer.send("nowhere", b"a")
        assert trio.current_time() - begin < 5


async def test_partition_that_does_not_exist_is_an_error(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        cluster.create("orders", 2)
        with pytest.raises(UnknownTopicOrPartition, match="orders/2"):
            await producer.send("orders", b"a", partition=2)


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"", 0x811C9DC5),
        (b"user1", 0xA07D2CF9),
        (b"user-role", 0x1A18DD01),
        ("ключ".encode(), 0x95C4E9E1),
    ],
)
async def test_keys_go_where_the_v1_rule_says(
    autojump_clock: object, key: bytes, hashed: int
) -> None:
    assert fnv1a(key) == hashed
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        cluster.create("orders", 12)
        sent = await producer.send("orders", b"v", key=key)
        (many,) = await producer.send_many("orders", [b"v"], keys=[key])
        assert (sent.partition, many.partition) == (hashed % 12, hashed % 12)


async def test_records_without_a_key_take_turns_over_partitions(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        logs = cluster.create("orders", 4)
        for _ in range(8):
            await producer.send("orders", b"v")
        assert [log.log_end for log in logs] == [2, 2, 2, 2]


async def test_null_keys_pass_over_partitions_without_a_leader(
    autojump_clock: object,
) -> None:
    async with cluster_and_client() as (cluster, client):
        logs = cluster.create("orders", 3)
        cluster.move("orders", 1, -1)
        async with client.producer() as producer:
            for _ in range(6):
                await producer.send("orders", b"v")
        assert logs[1].log_end == 0
        assert logs[0].log_end + logs[2].log_end == 6


async def test_send_many_keeps_order_per_key_and_reports_batches(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        logs = cluster.create("orders", 3)
        keys = [b"key-%d" % (i % 7) for i in range(500)]
        values = [b"%d" % i for i in range(500)]
        batches = await producer.send_many("orders", values, keys=keys)
        assert sum(batch.record_count for batch in batches) == 500
        for key in set(keys):
            log = logs[fnv1a(key) % 3]
            stored = [
                record.value
                for batch in log.batches
                for record in decode_records(batch)
                if record.key == key
            ]
            assert stored == [v for k, v in zip(keys, values, strict=True) if k == key]


async def test_send_many_mixes_keys_and_nulls(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        (log,) = cluster.create("orders")
        await producer.send_many("orders", [b"a", None, b"c"], keys=[None, b"k", None])
        stored = {(r.key, r.value) for batch in log.batches for r in decode_records(batch)}
        assert stored == {(None, b"a"), (b"k", None), (None, b"c")}


@pytest.mark.parametrize(
    ("value", "key", "headers"),
    [
        ("text", None, ()),
        (b"", "text", ()),
        (b"", None, [("h", "text")]),
        (b"", None, [(b"h", b"")]),
    ],
)
async def test_wrong_types_are_refused_at_the_door(
    autojump_clock: object, value: bytes, key: bytes, headers: list[tuple[str, bytes]]
) -> None:
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        cluster.create("orders")
        with pytest.raises(InvalidRecord):
            await producer.send("orders", value, key=key, headers=headers)
        if not headers:
            with pytest.raises(InvalidRecord):
                await producer.send_many("orders", [value], keys=[key])
        assert producer.buffered_bytes == 0


@pytest.mark.parametrize("codec", list(Compression))
async def test_compressed_batches_decode_to_what_was_sent(
    autojump_clock: object, codec: Compression
) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        async with client.producer(ProducerSettings(compression=codec)) as producer:
            await producer.send_many("orders", [b"abc" * 50] * 200)
        assert log.values() == [b"abc" * 50] * 200
        (_, header), *_ = iter_batches(log.batches[0])
        assert header.compression == codec


# --- acks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", list(Acks))
async def test_requests_carry_the_acks_asked_for(autojump_clock: object, acks: Acks) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.create("orders")
        async with client.producer(ProducerSettings(acks=acks)) as producer:
            await producer.send("orders", b"a")
        assert [request.acks for request in cluster.requests(Produce)] == [acks]


def test_settings_that_cannot_hold_together_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="idempotence"):
        ProducerSettings(acks=Acks.LEADER, idempotent=True)
    with pytest.raises(ConfigurationError, match="max_in_flight"):
        ProducerSettings(max_in_flight=6)
    with pytest.raises(ConfigurationError, match="batch_bytes"):
        ProducerSettings(batch_bytes=2**21)


# --- the buffer ----------------------------------------------------------------------------------


async def test_full_buffer_refuses_nowait_and_holds_submit_back(autojump_clock: object) -> None:
    settings = ProducerSettings(buffer_bytes=4096, batch_bytes=2048)
    async with cluster_and_client() as (cluster, client), client.producer(settings) as producer:
        (log,) = cluster.create("orders")
        await producer.partition_count("orders")
        cluster.fault(NativeApi.PRODUCE, count=1, delay_s=1.0)
        for _ in range(3):
            producer.send_nowait("orders", bytes(1000))
        with pytest.raises(BufferFull):
            producer.send_nowait("orders", bytes(1000))
        begin = trio.current_time()
        delivery = await producer.submit("orders", b"late")
        assert producer.buffered_bytes <= 4096
        await delivery.wait()
        assert trio.current_time() - begin >= 0
        await producer.flush()
        assert log.log_end == 4


async def test_waiters_for_space_are_served_in_order_and_may_leave(autojump_clock: object) -> None:
    settings = ProducerSettings(buffer_bytes=4096, batch_bytes=2048)
    async with cluster_and_client() as (cluster, client), client.producer(settings) as producer:
        (log,) = cluster.create("orders")
        await producer.send("orders", b"first")  # after it batches need not go alone
        for turn in range(4):
            cluster.fault(NativeApi.PRODUCE, delay_s=1.0 + turn / 10)
            producer.send_nowait("orders", bytes(990))
        order = []

        async def send(number: int) -> None:
            await producer.submit("orders", b"%d" % number * 500)
            order.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(send, number)
                await trio.sleep(0.01)
            with trio.move_on_after(0.1) as scope:
                await producer.submit("orders", b"never")
            assert scope.cancelled_caught
        await producer.flush()
        assert order == [0, 1, 2, 3]
        assert b"never" not in log.values()
        assert producer.buffered_bytes == 0


async def test_send_many_larger_than_the_buffer_goes_through_it(autojump_clock: object) -> None:
    settings = ProducerSettings(buffer_bytes=8192, batch_bytes=2048)
    async with cluster_and_client() as (cluster, client), client.producer(settings) as producer:
        (log,) = cluster.create("orders")
        values = [b"%05d" % number * 20 for number in range(1000)]
        await producer.send_many("orders", values)
        assert log.values() == values


# --- failures that nobody awaited, closing -------------------------------------------------------


async def test_flush_raises_a_failure_that_nobody_awaited_once(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        cluster.create("orders")
        cluster.fault(NativeApi.PRODUCE, error=ErrorCode.POLICY_VIOLATION)
        await producer.submit("orders", b"a")
        with pytest.raises(PolicyViolation):
            await producer.flush()
        await producer.flush()


async def test_flush_raises_for_what_ran_out_of_time_while_it_was_under_way(
    autojump_clock: object,
) -> None:
    """The answer, for which the node takes longer, is awaited no more."""
    settings = ProducerSettings(delivery_timeout_s=1, ack_timeout_s=5)
    async with cluster_and_client() as (cluster, client), client.producer(settings) as producer:
        cluster.create("orders")
        cluster.fault(NativeApi.PRODUCE, silent=True)
        await producer.submit("orders", b"a")
        with pytest.raises(RequestTimedOut, match="outcome unknown"):
            await producer.flush()
        await producer.flush()


async def test_flush_does_not_repeat_a_failure_that_was_seen(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        cluster.create("orders")
        cluster.fault(NativeApi.PRODUCE, error=ErrorCode.POLICY_VIOLATION)
        with pytest.raises(PolicyViolation):
            await producer.send("orders", b"a")
        await producer.flush()


async def test_leaving_the_block_flushes(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        async with client.producer(ProducerSettings(linger_s=60)) as producer:
            await producer.submit("orders", b"a")
        assert log.values() == [b"a"]


async def test_an_error_of_the_block_leaves_as_itself(
    autojump_clock: object,
) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.create("orders")
        with pytest.raises(KeyError):  # noqa: PT012 - the block's end is what is tested
            async with client.producer(ProducerSettings(linger_s=60)) as producer:
                unsent = await producer.submit("orders", b"a")
                raise KeyError("user's own")
        with pytest.raises(Closed):
            await unsent.wait()
        with pytest.raises(Closed):
            await producer.send("orders", b"b")


async def test_closing_leaves_what_was_sent_unknown(
    autojump_clock: object,
) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.create("orders")
        cluster.fault(NativeApi.PRODUCE, silent=True)
        with pytest.raises(KeyError):  # noqa: PT012 - the block's end is what is tested
            async with client.producer() as producer:
                sent = await producer.submit("orders", b"a")
                await trio.sleep(0.1)
                raise KeyError
        with pytest.raises(RequestTimedOut, match="outcome unknown"):
            await sent.wait()


# --- cancellation --------------------------------------------------------------------------------


@pytest.mark.parametrize("step", range(12))
async def test_send_may_be_cancelled_at_every_step(autojump_clock: object, step: int) -> None:
    settings = ProducerSettings(buffer_bytes=4096, batch_bytes=1024)
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        async with client.producer(settings) as producer:
            with trio.CancelScope() as scope, CancelAtStep(scope, step):
                await producer.send("orders", b"cancelled")
            if not scope.cancelled_caught:
                assert b"cancelled" in log.values()
            await producer.send("orders", b"after")
            await producer.flush()
            assert producer.buffered_bytes == 0
        values = log.values()
        assert values.count(b"cancelled") <= 1
        assert values[-1] == b"after"


@pytest.mark.parametrize("step", range(10))
async def test_send_many_and_flush_may_be_cancelled_at_every_step(
    autojump_clock: object, step: int
) -> None:
    settings = ProducerSettings(buffer_bytes=4096, batch_bytes=1024)
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        async with client.producer(settings) as producer:
            values = [b"%04d" % number for number in range(500)]
            with trio.CancelScope() as scope, CancelAtStep(scope, step):
                await producer.send_many("orders", values)
            with trio.CancelScope() as scope, CancelAtStep(scope, step):
                await producer.flush()
            await producer.flush()
            assert producer.buffered_bytes == 0
        stored = log.values()
        assert stored == values[: len(stored)]
