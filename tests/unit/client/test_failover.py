"""Producers while leaders move, die and lose answers: stored once, in order, or told why not."""

from __future__ import annotations

import pytest
import trio

from paceline.client import ClientSettings, ProducerSettings
from paceline.errors import (
    ConnectionLost,
    ErrorCode,
    LeaderNotAvailable,
    NotEnoughReplicas,
    Outcome,
    OutOfOrderSequence,
    PacelineError,
    RequestTimedOut,
)
from paceline.types import Acks
from paceline.wire.batch import iter_batches
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import InitProducer, MetadataRequest, Produce
from tests.unit.client.harness import cluster_and_client
from tests.unit.client.partition_log import PartitionLog

UNACKNOWLEDGED = ProducerSettings(acks=Acks.LEADER)


def epochs(log: PartitionLog) -> list[int]:
    return [header.producer_epoch for batch in log.batches for _, header in iter_batches(batch)]


# --- failover ------------------------------------------------------------------------------------


async def test_moved_leader_is_found_by_metadata(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        (log,) = cluster.create("orders")
        await producer.send("orders", b"a")
        cluster.move("orders", 0, 2)
        begin = trio.current_time()
        await producer.send("orders", b"b")
        assert trio.current_time() - begin < 0.1
        assert log.values() == [b"a", b"b"]


async def test_dead_leader_is_left_for_the_next(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        (log,) = cluster.create("orders")
        await producer.send("orders", b"a")
        cluster.kill(0)
        delivery = await producer.submit("orders", b"b")
        await trio.sleep(3)
        assert not delivery.is_done
        cluster.move("orders", 0, 1)
        begin = trio.current_time()
        await delivery.wait()
        assert trio.current_time() - begin < 0.5
        assert log.values() == [b"a", b"b"]


async def test_leader_that_comes_back_is_used_again(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        (log,) = cluster.create("orders")
        await producer.send("orders", b"a")
        cluster.kill(0)
        delivery = await producer.submit("orders", b"b")
        await trio.sleep(1)
        cluster.start(0)
        await delivery.wait()
        assert log.values() == [b"a", b"b"]


async def test_leader_that_never_answers_a_greeting_is_given_up(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        (log,) = cluster.create("orders", 1)
        cluster.move("orders", 0, 1)
        cluster.nodes[1].is_deaf = True
        delivery = await producer.submit("orders", b"a")
        await trio.sleep(1)
        cluster.move("orders", 0, 2)
        await delivery.wait()
        assert log.values() == [b"a"]


async def test_records_pipelined_over_many_failovers_are_stored_once_in_order(
    autojump_clock: object,
) -> None:
    settings = ProducerSettings(batch_bytes=1024)
    async with cluster_and_client() as (cluster, client), client.producer(settings) as producer:
        (log,) = cluster.create("orders")
        values = [b"%06d" % number for number in range(3000)]
        deliveries = []

        async def trouble() -> None:
            for turn in range(1, 12):
                await trio.sleep(0.02)
                cluster.kill((turn - 1) % 3)
                await trio.sleep(0.01)
                cluster.move("orders", 0, turn % 3)
                cluster.start((turn - 1) % 3)

        async with trio.open_nursery() as nursery:
            cluster.fault(NativeApi.PRODUCE, count=10**6, delay_s=0.003)
            nursery.start_soon(trouble)
            for value in values:
                deliveries.append(await producer.submit("orders", value))
                await trio.sleep(0.0001)
        for delivery in deliveries:
            await delivery.wait()
        assert log.values() == values
        assert [each.result().offset for each in deliveries] == list(range(3000))
        assert log.epoch == 11


# --- lost answers --------------------------------------------------------------------------------


async def test_retry_after_a_lost_answer_is_stored_once(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        (log,) = cluster.create("orders")
        fault = cluster.fault(NativeApi.PRODUCE, cut_after=True)
        metadata = await producer.send("orders", b"a")
        assert fault.hits == 1
        assert len(cluster.requests(Produce)) == 2
        assert metadata.offset == 0
        assert log.values() == [b"a"]


async def test_overdue_answer_ends_the_connection_and_the_retry_is_stored_once(
    autojump_clock: object,
) -> None:
    settings = ProducerSettings(ack_timeout_s=2.0)
    async with cluster_and_client() as (cluster, client), client.producer(settings) as producer:
        (log,) = cluster.create("orders")
        cluster.fault(NativeApi.PRODUCE, silent=True)
        begin = trio.current_time()
        await producer.send("orders", b"a")
        assert 7.0 <= trio.current_time() - begin < 8.0
        assert log.values() == [b"a"]


async def test_whole_window_lost_after_it_was_stored_is_recognised(autojump_clock: object) -> None:
    settings = ProducerSettings(batch_bytes=1024)
    async with cluster_and_client() as (cluster, client), client.producer(settings) as producer:
        (log,) = cluster.create("orders")
        await producer.send("orders", b"first")
        cluster.fault(NativeApi.PRODUCE, count=4, delay_s=10)
        cluster.fault(NativeApi.PRODUCE, skip=0, cut_after=True)
        results = await producer.send_many("orders", [bytes([n]) * 900 for n in range(5)])
        assert [each.base_offset for each in results] == [1, 2, 3, 4, 5]
        assert all(each.duplicate for each in results)
        assert len(log.values()) == 6


async def test_order_is_kept_when_the_first_of_a_window_is_refused(autojump_clock: object) -> None:
    settings = ProducerSettings(batch_bytes=1024)
    async with cluster_and_client() as (cluster, client), client.producer(settings) as producer:
        (log,) = cluster.create("orders")
        await producer.send("orders", b"first")
        cluster.fault(NativeApi.PRODUCE, count=3, error=ErrorCode.THROTTLED)
        values = [bytes([n]) * 900 for n in range(20)]
        await producer.send_many("orders", values)
        assert log.values() == [b"first", *values]
        assert set(epochs(log)) == {0}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.LEADER_CHANGED_AFTER_APPEND,
        ErrorCode.THROTTLED,
        ErrorCode.STORAGE_FULL,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    ],
)
async def test_retriable_refusals_are_retried(autojump_clock: object, code: ErrorCode) -> None:
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        (log,) = cluster.create("orders")
        fault = cluster.fault(NativeApi.PRODUCE, count=3, error=code)
        await producer.send("orders", b"a")
        assert fault.hits == 3
        assert log.values() == [b"a"]


# --- without idempotence -------------------------------------------------------------------------


async def test_unknown_outcome_is_not_repeated_without_idempotence(autojump_clock: object) -> None:
    async with (
        cluster_and_client() as (cluster, client),
        client.producer(UNACKNOWLEDGED) as producer,
    ):
        (log,) = cluster.create("orders")
        cluster.fault(NativeApi.PRODUCE, cut_after=True)
        with pytest.raises(ConnectionLost) as caught:
            await producer.send("orders", b"a")
        assert caught.value.was_sent
        assert len(cluster.requests(Produce)) == 1
        await producer.send("orders", b"b")
        assert log.values() == [b"a", b"b"]
        assert not cluster.requests(InitProducer)


async def test_definite_refusal_is_repeated_without_idempotence(autojump_clock: object) -> None:
    async with (
        cluster_and_client() as (cluster, client),
        client.producer(UNACKNOWLEDGED) as producer,
    ):
        (log,) = cluster.create("orders")
        cluster.fault(NativeApi.PRODUCE, count=2, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await producer.send("orders", b"a")
        assert log.values() == [b"a"]


async def test_unknown_outcome_is_repeated_when_asked_for(autojump_clock: object) -> None:
    settings = ProducerSettings(acks=Acks.LEADER, repeat_unknown=True)
    async with cluster_and_client() as (cluster, client), client.producer(settings) as producer:
        (log,) = cluster.create("orders")
        cluster.fault(NativeApi.PRODUCE, cut_after=True)
        await producer.send("orders", b"a")
        assert log.values() == [b"a", b"a"]


# --- giving up -----------------------------------------------------------------------------------


async def test_deadline_without_a_leader_says_that_nothing_was_sent(
    autojump_clock: object,
) -> None:
    settings = ProducerSettings(delivery_timeout_s=3)
    async with cluster_and_client() as (cluster, client), client.producer(settings) as producer:
        (log,) = cluster.create("orders")
        cluster.move("orders", 0, -1)
        begin = trio.current_time()
        with pytest.raises(LeaderNotAvailable, match="nothing was sent") as caught:
            await producer.send("orders", b"a")
        assert trio.current_time() - begin == pytest.approx(3, abs=0.1)
        assert caught.value.outcome is Outcome.DEFINITE
        assert producer.buffered_bytes == 0
        assert log.values() == []


async def test_deadline_after_refusals_raises_the_refusal(autojump_clock: object) -> None:
    settings = ProducerSettings(delivery_timeout_s=3)
    async with cluster_and_client() as (cluster, client), client.producer(settings) as producer:
        cluster.create("orders")
        fault = cluster.fault(NativeApi.PRODUCE, count=10**6, error=ErrorCode.NOT_ENOUGH_REPLICAS)
        with pytest.raises(NotEnoughReplicas):
            await producer.send("orders", b"a")
        assert 5 < fault.hits < 100


async def test_deadline_in_flight_says_that_the_outcome_is_unknown(autojump_clock: object) -> None:
    settings = ProducerSettings(delivery_timeout_s=3)
    async with cluster_and_client() as (cluster, client), client.producer(settings) as producer:
        (log,) = cluster.create("orders")
        cluster.fault(NativeApi.PRODUCE, delay_s=4)
        begin = trio.current_time()
        with pytest.raises(RequestTimedOut, match="outcome unknown") as caught:
            await producer.send("orders", b"a")
        assert trio.current_time() - begin == pytest.approx(3, abs=0.1)
        assert caught.value.outcome is Outcome.UNKNOWN
        # The next batch waits until the first one's fate is known, then takes the next epoch.
        await producer.send("orders", b"b")
        assert log.values() == [b"a", b"b"]
        assert epochs(log) == [0, 1]


async def test_batches_behind_one_that_was_given_up_go_on_without_duplicates(
    autojump_clock: object,
) -> None:
    settings = ProducerSettings(delivery_timeout_s=2, batch_bytes=1024)
    async with cluster_and_client() as (cluster, client), client.producer(settings) as producer:
        (log,) = cluster.create("orders")
        await producer.send("orders", b"first")
        cluster.fault(NativeApi.PRODUCE, count=10**6, error=ErrorCode.THROTTLED)
        early = await producer.submit("orders", b"early")
        await trio.sleep(1.5)
        late = await producer.submit("orders", b"late")
        await trio.sleep(0.8)
        cluster.faults.clear()
        await late.wait()
        with pytest.raises(PacelineError):
            await early.wait()
        assert log.values() == [b"first", b"late"]
        assert epochs(log) == [0, 1]


async def test_lost_acknowledged_records_are_reported_loudly(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        (log,) = cluster.create("orders")
        await producer.send("orders", b"a")
        await producer.send("orders", b"b")
        # An unclean election: the last acknowledged batch is gone, and with it its sequence.
        (state,) = log.producers.values()
        state.recent.pop()
        log.batches.pop()
        log.log_end -= 1
        with pytest.raises(OutOfOrderSequence):
            await producer.send("orders", b"c")
        await producer.send("orders", b"d")
        assert log.values() == [b"a", b"d"]
        assert epochs(log) == [0, 1]


async def test_a_fenced_producer_id_is_replaced(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        (log,) = cluster.create("orders")
        await producer.send("orders", b"a")
        (state,) = log.producers.values()
        state.epoch = 7
        with pytest.raises(PacelineError, match="epoch 0, known 7"):
            await producer.send("orders", b"b")
        await producer.send("orders", b"c")
        assert log.values() == [b"a", b"c"]
        assert len(cluster.requests(InitProducer)) == 2


async def test_no_producer_id_is_reported_when_none_can_be_had(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        cluster.create("orders")
        cluster.fault(NativeApi.INIT_PRODUCER, error=ErrorCode.AUTHORIZATION_FAILED)
        with pytest.raises(PacelineError, match="as the test asked") as caught:
            await producer.send("orders", b"a")
        assert caught.value.code is ErrorCode.AUTHORIZATION_FAILED
        await producer.send("orders", b"b")


# --- metadata ------------------------------------------------------------------------------------


async def test_many_partitions_of_a_dead_leader_share_few_metadata_requests(
    autojump_clock: object,
) -> None:
    async with cluster_and_client() as (cluster, client), client.producer() as producer:
        cluster.create("orders", 30)
        await producer.send_many("orders", [b"v"] * 30, keys=[b"%d" % n for n in range(30)])
        before = len(cluster.requests(MetadataRequest))
        cluster.kill(0)
        deliveries = [
            await producer.submit("orders", b"w", partition=partition) for partition in range(30)
        ]
        await trio.sleep(0.2)
        for partition in range(30):
            cluster.move("orders", partition, 1)
        for delivery in deliveries:
            await delivery.wait()
        assert len(cluster.requests(MetadataRequest)) - before < 25


async def test_first_contact_tries_every_address(autojump_clock: object) -> None:
    from paceline.client import connect
    from tests.unit.client.broker import Cluster

    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery)
        cluster.kill(0)
        cluster.kill(1)
        async with connect(cluster.bootstrap(), dial=cluster.dial) as client:
            assert (await client.admin.describe_cluster()).controller == 0
        cluster.kill(2)
        begin = trio.current_time()
        with pytest.raises(ConnectionLost):
            async with connect(
                cluster.bootstrap(), ClientSettings(operation_timeout_s=4), dial=cluster.dial
            ):
                pass
        assert trio.current_time() - begin == pytest.approx(4, abs=0.3)
        nursery.cancel_scope.cancel()
