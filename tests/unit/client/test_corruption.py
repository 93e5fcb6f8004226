"""Batches that do not hold: told to the leader, fetched again, never passed over."""

from __future__ import annotations

import pytest
import trio

from paceline.client import ClientSettings, Position
from paceline.client.consumed import Slice
from paceline.client.single_error_nursery import open_scope
from paceline.errors import CorruptMessage, ErrorCode
from paceline.wire.batch import CONTROL, build_batch, build_raw_batch, stamp
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import ReportCorrupt
from paceline.wire.records import Record
from tests.unit.client.broker import Cluster
from tests.unit.client.harness import cluster_and_client
from tests.unit.client.test_consumer import ORDERS, fill, read_to_end


async def test_damage_on_the_way_is_fetched_again(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        fill(log, 30)
        fault = cluster.fault(NativeApi.FETCH, corrupt=True)
        assert await read_to_end(client) == list(range(30))
        assert fault.hits == 1
        assert len(reports(cluster)) == 1


def reports(cluster: Cluster) -> list[ReportCorrupt]:
    """What leaders were told to be corrupt."""
    return [
        request
        for node in cluster.nodes.values()
        for _, request in node.requests
        if isinstance(request, ReportCorrupt)
    ]


async def test_damage_at_the_leader_is_reported_and_read_from_the_next(
    autojump_clock: object,
) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        fill(log, 30)
        former = log.leader
        fault = cluster.fault(NativeApi.FETCH, corrupt=True, count=100, node=former)
        cluster.damaged = {0, 10, 20}
        assert await read_to_end(client) == list(range(30))
        assert fault.hits >= 1
        assert log.leader != former
        assert len(reports(cluster)) == 1


@pytest.mark.parametrize("is_in_time", [True, False])
async def test_a_reader_waits_for_the_next_leader_as_long_as_an_operation_may_take(
    autojump_clock: object, is_in_time: bool
) -> None:
    """It gave up after 10 s, although an election under load may take longer."""
    settings = ClientSettings(operation_timeout_s=60)
    async with cluster_and_client(settings=settings) as (cluster, client):
        (log,) = cluster.create("orders")
        fill(log, 30)
        former = log.leader
        cluster.fault(NativeApi.FETCH, corrupt=True, node=former)
        refused = cluster.fault(
            NativeApi.FETCH, error=ErrorCode.CORRUPT_MESSAGE, count=10_000, node=former
        )
        cluster.damaged, cluster.elects = {0, 10, 20}, False

        async def elect() -> None:
            await trio.sleep(50 if is_in_time else 70)
            cluster.move("orders", 0, (former + 1) % 3)

        async with open_scope() as nursery:
            nursery.start_soon(elect)
            if is_in_time:
                assert await read_to_end(client) == list(range(30))
            else:
                with pytest.raises(CorruptMessage):
                    await read_to_end(client)
                assert trio.current_time() >= 60
        assert refused.hits > 1


async def test_damage_in_the_log_is_named_and_never_passed_over(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        fill(log, 30)
        log.batches[1][-2] ^= 1
        async with client.consumer("orders", stop=Position.LATEST) as consumer:
            assert [(await anext(consumer)).offset for _ in range(10)] == list(range(10))
            for _ in range(2):
                with pytest.raises(CorruptMessage, match="base offset 10"):
                    await anext(consumer)
            assert [report.offset for report in reports(cluster)] == [10]
            await consumer.seek(ORDERS, Position.at(20))
            assert [record.offset async for record in consumer] == list(range(20, 30))


async def test_records_that_do_not_decode_are_named_and_never_passed_over(
    autojump_clock: object,
) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        fill(log, 10)
        log.append_raw(build_raw_batch(b"\xff" * 30, record_count=3))
        fill(log, 10)
        async with client.consumer("orders", stop=Position.LATEST) as consumer:
            for _ in range(10):
                await anext(consumer)
            for _ in range(2):
                with pytest.raises(CorruptMessage, match="offset 10"):
                    await anext(consumer)
            assert consumer.position(ORDERS) == 10


async def test_a_gap_between_batches_is_corruption(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        fill(log, 30)
        del log.batches[1]
        with pytest.raises(CorruptMessage, match=r"offsets 0\.\.10 before offset 20"):
            await read_to_end(client)


async def test_what_is_reported_is_the_bad_batch_not_a_hidden_one_before_it(
    autojump_clock: object,
) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        marker = Record(key=b"\x00\x00\x00\x01", value=bytes(6))
        for _ in range(2):
            log.append_raw(build_batch([marker], producer_id=7, producer_epoch=0, flags=CONTROL))
        fill(log, 20)
        stamp(log.batches[2], 0, 2 ^ 64, log.epoch)
        with pytest.raises(CorruptMessage, match="where 2 was expected"):
            await read_to_end(client)
        assert [report.offset for report in reports(cluster)] == [2]


async def test_a_report_that_nobody_looked_at_is_made_again(autojump_clock: object) -> None:
    """Another reader's report a moment before is no word on this one."""
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        fill(log, 30)
        former = log.leader
        cluster.fault(NativeApi.FETCH, corrupt=True, count=100, node=former)
        cluster.fault(NativeApi.REPORT_CORRUPT, error=ErrorCode.THROTTLED, count=3)
        cluster.damaged = {0, 10, 20}
        assert await read_to_end(client) == list(range(30))
        assert log.leader != former


@pytest.mark.parametrize("base", [96, 104])
@pytest.mark.parametrize("is_last", [True, False])
def test_the_first_batch_must_lead_to_the_next_one(base: int, is_last: bool) -> None:
    """It may begin before the offset asked for, so only its end tells that it is in its place."""
    data = bytearray()
    for first in [100] if is_last else [100, 116]:
        batch = build_batch([Record(value=b"v")] * 16)
        stamp(batch, 0, first, 0)
        data += batch
    end = 116 if is_last else 132
    assert Slice(ORDERS, memoryview(bytes(data)), 104, end).take(None) is not None
    stamp(data, 0, base, 0)
    with pytest.raises(CorruptMessage):
        Slice(ORDERS, memoryview(bytes(data)), 104, end).take(None)
