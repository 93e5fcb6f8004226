"""What a native session makes of requests for records, and of the services' outcomes."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from trio.testing import wait_all_tasks_blocked

from paceline.errors import (
    ErrorCode,
    InvalidRequest,
    NotEnoughReplicas,
    NotLeader,
    RequestTimedOut,
    error_for,
)
from paceline.types import Acks, Isolation, LeaderEpoch
from paceline.wire.batch import (
    APPEND_TIME,
    CONTROL,
    DELETE_HORIZON,
    EXTENDED,
    TRANSACTIONAL,
    build_batch,
)
from paceline.wire.frame import Kind
from paceline.wire.native import data
from paceline.wire.native.api import NativeApi
from paceline.wire.records import Record
from paceline_node.listeners.native.listener import NativeLimits
from paceline_node.replication.partition import ProduceResult
from paceline_node.services.partitions.partition_access import Refused
from tests.unit.listeners.data_plane import (
    DataPlane,
    native_client,
    native_listener,
)
from tests.unit.listeners.lone import NativeClient, batch

GOOD = batch()
APPENDED = ProduceResult(5, 5, LeaderEpoch(1), 6, 2, False)
INVALID_RECORD, CORRUPT = 87, 2


def plane_of(count: int) -> DataPlane:
    return DataPlane(*[("orders", number) for number in range(count)])


# --- PRODUCE --------------------------------------------------------------------------------------


def produce(sizes: Sequence[int], *, timeout_ms: int = 1000) -> data.Produce:
    """So many bytes for each partition of ``orders``, from 0 on."""
    parts = tuple(data.ProducePartition("orders", at, size) for at, size in enumerate(sizes))
    return data.Produce(timeout_ms, Acks.ALL, parts)


async def produced(client: NativeClient, *batches: bytes) -> Sequence[data.ProducedPartition]:
    """A batch for each partition, from 0 on."""
    wish = produce([len(each) for each in batches])
    reply = await client.ask(NativeApi.PRODUCE, wish, data.ProduceReply, b"".join(batches))
    assert [each.partition for each in reply.partitions] == list(range(len(batches)))
    return reply.partitions


async def test_each_partition_of_a_produce_has_its_own_outcome() -> None:
    """And the leader, where another one is known."""
    plane = plane_of(4)
    plane.refuse("orders", 1, NotLeader("moved"), leader=2, epoch=7)
    plane.refuse("orders", 3, NotEnoughReplicas("1 of 2"), leader=0, epoch=3)
    async with native_client(native_listener(plane)) as client:
        told = await produced(client, GOOD, GOOD, GOOD[:-1] + b"?", GOOD, GOOD)
    assert [(each.error, each.base_offset, each.leader, each.leader_epoch) for each in told] == [
        (0, 0, -1, 0),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, 2, 7),
        (CORRUPT, -1, -1, -1),
        (ErrorCode.NOT_ENOUGH_REPLICAS, -1, 0, 3),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1),
    ]
    assert [each.message for each in told][1] == "moved"


async def test_a_produce_that_waits_lets_later_requests_pass() -> None:
    plane = plane_of(2)
    plane.produce.waiting = {("orders", 0)}
    plane.put("orders", 1, GOOD)
    async with native_client(native_listener(plane)) as client:
        waits = await client.send(NativeApi.PRODUCE, produce([len(GOOD)]), GOOD)
        read = await fetched(client, 1)
        assert [each.error for each in read.partitions] == [0]
        plane.produce.settle("orders", 0, Refused(RequestTimedOut("late"), leader_epoch=1))
        frame = await client.next()
    assert frame is not None
    assert (frame.kind, frame.correlation) == (Kind.RESPONSE, waits)
    [told] = data.ProduceReply.unpack(frame.body).partitions
    assert (told.error, told.message) == (ErrorCode.REQUEST_TIMED_OUT, "late")


async def test_an_outcome_that_comes_after_its_client_has_gone_is_nobodys() -> None:
    plane = plane_of(1)
    plane.produce.waiting = {("orders", 0)}
    listener = native_listener(plane)
    async with native_client(listener) as client:
        await client.send(NativeApi.PRODUCE, produce([len(GOOD)]), GOOD)
        await wait_all_tasks_blocked()
    plane.produce.settle("orders", 0, APPENDED)
    async with native_client(listener) as client:
        assert [each.error for each in await produced(client, b"")] == [InvalidRequest.code]


@pytest.mark.parametrize(("asked_ms", "given_s"), [(-5, 0.0), (1500, 1.5), (2**62, 120.0)])
async def test_a_producer_waits_for_two_minutes_at_most(asked_ms: int, given_s: float) -> None:
    plane = plane_of(1)
    wish = produce([len(GOOD)], timeout_ms=asked_ms)
    async with native_client(native_listener(plane)) as client:
        await client.ask(NativeApi.PRODUCE, wish, data.ProduceReply, GOOD)
    assert [each.timeout_s for each in plane.produce.wishes] == [given_s]


async def test_sizes_that_do_not_add_up_append_nothing() -> None:
    plane = plane_of(2)
    size = len(GOOD)
    async with native_client(native_listener(plane)) as client:
        for sizes, payload in (
            ((size - 1,), GOOD),
            ((size + 1,), GOOD),
            ((size, 1), GOOD),
            ((), GOOD),
            ((size,), b""),
            ((-1,), b""),
            ((2 * size, -size), GOOD),
        ):
            with pytest.raises(InvalidRequest):
                await client.ask(NativeApi.PRODUCE, produce(sizes), data.ProduceReply, payload)
        assert plane.produce.wishes == []
        assert [each.error for each in await produced(client, GOOD)] == [0]


def _flipped(made: bytearray) -> bytes:
    made[-1] ^= 1
    return bytes(made)


def _with(position: int, value: int, form: str) -> bytes:
    made = _batch()
    struct.pack_into(form, made, position, value)
    return bytes(made)


def _batch(flags: int = 0, **settings: int) -> bytearray:
    return build_batch([Record(value=b"v", timestamp_ms=1)], flags=flags, **settings)


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (_batch(CONTROL), INVALID_RECORD),
        (_batch(CONTROL | TRANSACTIONAL), INVALID_RECORD),
        (_batch(TRANSACTIONAL), INVALID_RECORD),
        (build_batch([Record(value=bytes(100))], flags=EXTENDED), INVALID_RECORD),
        (_batch(APPEND_TIME), INVALID_RECORD),
        (_batch(DELETE_HORIZON), INVALID_RECORD),
        (_batch(0x400), INVALID_RECORD),
        (_flipped(_batch()), CORRUPT),
        (_batch() + _flipped(_batch()), CORRUPT),
        (_with(16, 1, ">b"), INVALID_RECORD),
        (_batch()[:-1], CORRUPT),
        (_batch()[:60], CORRUPT),
        (_with(8, 10, ">i"), CORRUPT),
        (_with(8, -1, ">i"), CORRUPT),
        (_with(8, 2**30, ">i"), CORRUPT),
        (_batch() + b"\x00", CORRUPT),
        (_batch(7), ErrorCode.UNSUPPORTED_COMPRESSION),
        (_batch(producer_id=5), INVALID_RECORD),
        (_batch(producer_id=-2), INVALID_RECORD),
        (b"", ErrorCode.INVALID_REQUEST),
    ],
    ids=[
        *("control", "control transaction marker", "transactional", "extended"),
        *("log append time", "delete horizon", "unknown attribute", "bad crc"),
        *("second of two bad", "magic 1", "cut", "head only", "length too small"),
        *("length negative", "length beyond", "trailing bytes", "unknown codec"),
        *("no sequence", "producer -2", "none"),
    ],
)
async def test_batches_that_clients_may_not_send(made: bytes, code: int) -> None:
    """One bad partition does not keep a good one from being written."""
    plane = plane_of(2)
    async with native_client(native_listener(plane)) as client:
        refused, good = await produced(client, bytes(made), GOOD)
    assert (refused.error, refused.base_offset) == (code, -1)
    assert refused.message
    assert (good.error, good.base_offset) == (0, 0)
    assert plane.partitions["orders", 0].end == 0


# --- FETCH ----------------------------------------------------------------------------------------


def fetch(*partitions: int, wait_ms: int = 0) -> data.Fetch:
    parts = tuple(data.FetchPartition("orders", each, 0, 1 << 20) for each in partitions)
    return data.Fetch(wait_ms, 1, 1 << 20, Isolation.READ_COMMITTED, parts)


async def fetched(client: NativeClient, *partitions: int) -> data.FetchReply:
    return await client.ask(NativeApi.FETCH, fetch(*partitions), data.FetchReply)


async def test_each_partition_of_a_fetch_has_its_own_outcome() -> None:
    """The payload is what was found, in order, and nothing of those that were refused."""
    plane = plane_of(4)
    first, last = batch(b"first"), batch(b"last") + batch(b"of all")
    plane.put("orders", 0, first)
    plane.put("orders", 3, last, 2)
    plane.refuse("orders", 1, NotLeader("moved"), leader=2, epoch=7)
    async with native_client(native_listener(plane)) as client:
        await client.send(NativeApi.FETCH, fetch(0, 1, 2, 3, 9))
        frame = await client.next()
    assert frame is not None
    told = data.FetchReply.unpack(frame.body).partitions
    assert [(each.error, each.records_bytes, each.next_offset, each.leader) for each in told] == [
        (0, len(first), 1, -1),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, -1, 2),
        (0, 0, -1, -1),
        (0, len(last), 2, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, -1, -1),
    ]
    assert bytes(frame.payload) == first + last


async def test_a_fetch_that_waits_ends_with_its_client() -> None:
    plane = plane_of(1)
    async with native_client(native_listener(plane)) as client:
        await client.send(NativeApi.FETCH, fetch(0, wait_ms=60_000))
        await wait_all_tasks_blocked()
        assert len(plane.fetch.parked) == 1
        await client.close()
        await wait_all_tasks_blocked()
        assert plane.fetch.parked == []


async def test_what_lies_in_an_older_tier_is_awaited() -> None:
    plane = plane_of(1)
    plane.put("orders", 0, GOOD)
    plane.fetch.in_older_tier = True
    async with native_client(native_listener(plane)) as client:
        [told] = (await fetched(client, 0)).partitions
    assert (told.error, told.records_bytes) == (0, len(GOOD))


async def test_no_more_requests_are_read_than_may_be_unanswered() -> None:
    plane = plane_of(2)
    plane.produce.waiting = {("orders", 0)}
    async with native_client(native_listener(plane, NativeLimits(max_in_flight=4))) as client:
        sent = [await client.send(NativeApi.PRODUCE, produce([len(GOOD)]), GOOD) for _ in range(10)]
        await wait_all_tasks_blocked()
        assert len(plane.produce.wishes) == 4
        plane.produce.settle("orders", 0, APPENDED)
        await wait_all_tasks_blocked()
        assert len(plane.produce.wishes) == 5
        for _ in range(9):
            await wait_all_tasks_blocked()
            plane.produce.settle("orders", 0, APPENDED)
        answers = [await client.next() for _ in range(10)]
    assert [frame.correlation for frame in answers if frame] == sent


# --- LIST_OFFSETS, TRIM_PARTITION -----------------------------------------------------------------


async def found(client: NativeClient, *specs: int) -> Sequence[data.OffsetFound]:
    """A spec for each partition of ``orders``, from 0 on."""
    queries = tuple(data.OffsetQuery("orders", at, spec) for at, spec in enumerate(specs))
    wish = data.ListOffsets(Isolation.READ_COMMITTED, queries)
    return (await client.ask(NativeApi.LIST_OFFSETS, wish, data.ListOffsetsReply)).partitions


async def test_each_look_up_of_an_offset_has_its_own_outcome() -> None:
    plane = plane_of(3)
    plane.refuse("orders", 1, NotLeader("moved"), leader=2, epoch=7)
    async with native_client(native_listener(plane)) as client:
        told = await found(client, 40, 41, 42, 43)
    assert [(each.error, each.offset, each.leader_epoch, each.leader) for each in told] == [
        (0, 40, 3, -1),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, 7, 2),
        (0, 42, 3, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1),
    ]


async def test_a_time_index_that_is_made_anew_is_waited_for() -> None:
    plane = plane_of(1)
    plane.offsets.is_known = False
    async with native_client(native_listener(plane)) as client:
        assert [each.offset for each in await found(client, 40)] == [40]
    assert plane.offsets.waited == 1


@pytest.mark.parametrize(("asked_ms", "given_s"), [(-5, 0.0), (1500, 1.5), (2**62, 60.0)])
async def test_who_trims_waits_for_a_minute_at_most(asked_ms: int, given_s: float) -> None:
    plane = plane_of(1)
    async with native_client(native_listener(plane)) as client:
        asked = data.TrimPartition("orders", 0, 5, asked_ms)
        reply = await client.ask(NativeApi.TRIM_PARTITION, asked, data.PartitionTrimmed)
    assert reply.log_start_offset == 5
    assert plane.trimming.asked == [("orders", 0, 5, given_s)]


# --- whole requests -------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [ErrorCode.AUTHORIZATION_FAILED, ErrorCode.REQUEST_TIMED_OUT])
async def test_what_is_refused_as_a_whole_is_an_error_and_the_session_goes_on(
    code: ErrorCode,
) -> None:
    plane = plane_of(1)
    plane.produce.refusal = error_for(code, "why")
    plane.refuse("orders", 0, error_for(code, "why"))
    async with native_client(native_listener(plane)) as client:
        for api, wish, payload in (
            (NativeApi.PRODUCE, produce([len(GOOD)]), GOOD),
            (NativeApi.TRIM_PARTITION, data.TrimPartition("orders", 0, 5, 0), b""),
        ):
            sent = await client.send(api, wish, payload)
            frame = await client.next()
            assert frame is not None
            assert (frame.kind, frame.correlation) == (Kind.ERROR, sent)
            assert frame.body[:2] == [code, "why"]
        assert [each.error for each in await found(client, 40)] == [code]


async def test_an_api_that_is_not_served_is_named() -> None:
    async with native_client(native_listener(plane_of(1))) as client:
        for api in (999, -1, NativeApi.STATUS + 2**40):
            with pytest.raises(InvalidRequest, match=str(api)):
                await client.ask(api, data.Status(), data.StatusReply)
        assert [each.error for each in await found(client, 40)] == [0]
