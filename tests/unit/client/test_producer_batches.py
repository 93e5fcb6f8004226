"""What the producer against scripted brokers puts into a batch and into a request, and when."""

from __future__ import annotations

import pytest
import trio

from paceline.client import ProducerSettings
from paceline.errors import InvalidRecord, MessageTooLarge
from paceline.types import Compression
from paceline.wire.batch import build_batch, build_value_batch, iter_batches
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import Produce
from paceline.wire.records import Record
from tests.unit.client.broker import Cluster
from tests.unit.client.harness import cluster_and_client


async def test_concurrent_sends_share_a_batch(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        (log,) = cluster.create("orders")
        await producer.partition_count("orders")
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(producer.send, "orders", b"%d" % number)
        assert log.log_end == 100
        assert len(log.batches) == 1


async def test_linger_waits_for_company_and_not_longer(autojump_clock: object) -> None:
    settings = ProducerSettings(linger_s=0.2)
    async with cluster_and_client() as (cluster, client), client.producer(settings) as producer:
        (log,) = cluster.create("orders")
        await producer.partition_count("orders")
        begin = trio.current_time()
        deliveries = []
        for number in range(3):
            deliveries.append(await producer.submit("orders", b"%d" % number))
            await trio.sleep(0.05)
        assert not log.batches
        for delivery in deliveries:
            await delivery.wait()
        assert trio.current_time() - begin == pytest.approx(0.2)
        assert len(log.batches) == 1


async def test_flush_does_not_wait_for_linger(autojump_clock: object) -> None:
    settings = ProducerSettings(linger_s=60.0)
    async with cluster_and_client() as (cluster, client), client.producer(settings) as producer:
        (log,) = cluster.create("orders")
        await producer.submit("orders", b"a")
        begin = trio.current_time()
        await producer.flush()
        assert trio.current_time() - begin < 1
        assert log.values() == [b"a"]


async def test_a_full_batch_does_not_wait_for_linger(autojump_clock: object) -> None:
    settings = ProducerSettings(linger_s=60.0, batch_bytes=4096)
    async with cluster_and_client() as (cluster, client), client.producer(settings) as producer:
        (log,) = cluster.create("orders")
        deliveries = [await producer.submit("orders", bytes(1000)) for _ in range(4)]
        begin = trio.current_time()
        await deliveries[0].wait()
        assert trio.current_time() - begin < 1
        assert all(len(batch) <= 4096 for batch in log.batches)


async def test_batches_stay_within_their_limit(autojump_clock: object) -> None:
    settings = ProducerSettings(batch_bytes=2048)
    async with cluster_and_client() as (cluster, client), client.producer(settings) as producer:
        (log,) = cluster.create("orders")
        await producer.send_many("orders", [bytes(100)] * 300)
        assert log.log_end == 300
        assert max(map(len, log.batches)) <= 2048
        assert len(log.batches) < 30


async def test_a_record_larger_than_a_batch_rides_alone(autojump_clock: object) -> None:
    settings = ProducerSettings(batch_bytes=2048)
    async with cluster_and_client() as (cluster, client), client.producer(settings) as producer:
        (log,) = cluster.create("orders")
        deliveries = [await producer.submit("orders", value) for value in (b"a", bytes(5000), b"b")]
        for delivery in deliveries:
            await delivery.wait()
        counts = [header.record_count for b in log.batches for _, header in iter_batches(b)]
        assert counts == [1, 1, 1]
        assert log.values() == [b"a", bytes(5000), b"b"]


async def test_a_record_above_the_cap_is_refused_at_the_door(
    autojump_clock: object,
) -> None:
    settings = ProducerSettings(max_record_bytes=1000)
    async with cluster_and_client() as (cluster, client), client.producer(settings) as producer:
        cluster.create("orders")
        with pytest.raises(MessageTooLarge, match="limit 1000"):
            await producer.send("orders", bytes(1001))
        with pytest.raises(MessageTooLarge, match="limit 1000"):
            await producer.send_many("orders", [b"", bytes(1001)])
        await producer.flush()
        assert not cluster.requests(Produce)
        assert producer.buffered_bytes == 0


async def test_a_batch_that_the_node_takes_no_frame_for_fails_alone(autojump_clock: object) -> None:
    def configure(cluster: Cluster) -> None:
        cluster.max_frame_bytes = 2000

    async with cluster_and_client(configure=configure) as (cluster, client):
        (log,) = cluster.create("orders")
        async with client.producer() as producer:
            with pytest.raises(MessageTooLarge):
                await producer.send("orders", bytes(3000))
            await producer.send("orders", b"small")
        assert log.values() == [b"small"]


async def test_batches_of_many_partitions_share_a_request(autojump_clock: object) -> None:
    settings = ProducerSettings(linger_s=0.01)
    async with cluster_and_client(1) as (cluster, client), client.producer(settings) as producer:
        cluster.create("orders", 8)
        await producer.partition_count("orders")
        async with trio.open_nursery() as nursery:
            for partition in range(8):

                async def send(partition: int = partition) -> None:
                    await producer.send("orders", b"v", partition=partition)

                nursery.start_soon(send)
        assert [len(request.partitions) for request in cluster.requests(Produce)] == [8]


async def test_in_flight_window_per_partition_is_kept(autojump_clock: object) -> None:
    settings = ProducerSettings(batch_bytes=1024)
    async with cluster_and_client() as (cluster, client), client.producer(settings) as producer:
        (log,) = cluster.create("orders")
        await producer.send("orders", b"first")
        fault = cluster.fault(NativeApi.PRODUCE, count=100, delay_s=1.0)
        deliveries = [await producer.submit("orders", bytes(900)) for _ in range(12)]
        await trio.sleep(0.5)
        assert fault.hits == 5
        await trio.sleep(1.0)
        assert fault.hits == 10
        for delivery in deliveries:
            await delivery.wait()
        assert log.log_end == 13


# --- prebuilt batches ----------------------------------------------------------------------------


async def test_prebuilt_batch_is_stored_but_for_the_producer(
    autojump_clock: object,
) -> None:
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        (log,) = cluster.create("orders")
        batch = build_value_batch([b"a", b"b"], timestamp_ms=9, compression=Compression.ZSTD)
        result = await producer.send_batch("orders", 0, batch)
        assert (result.base_offset, result.record_count) == (0, 2)
        assert log.batches[0][61:] == batch[61:]
        (_, header), *_ = iter_batches(log.batches[0])
        assert header.producer_id > 0
        assert header.base_timestamp == 9


async def test_prebuilt_batch_must_be_one_that_clients_may_send(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        cluster.create("orders")
        good = build_value_batch([b"a"], timestamp_ms=9)
        damaged = bytearray(good)
        damaged[-2] ^= 1
        control = build_batch([Record(0, 1, b"\0\0\0\1", b"")], flags=0x20)
        for bad in (damaged, good + good, control, good[:-1], b""):
            with pytest.raises(InvalidRecord):
                await producer.send_batch("orders", 0, bad)
