"""What a Kafka connection makes of the services' outcomes: partition by partition, in order."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import wait_all_tasks_blocked

from paceline.errors import (
    ErrorCode,
    NotEnoughReplicas,
    NotLeader,
    OffsetNotAvailable,
    RequestTimedOut,
    error_for,
)
from paceline.types import Compression, LeaderEpoch
from paceline.wire.kafka import records as wire
from paceline.wire.kafka.message_set import write_message_set
from paceline.wire.records import Record
from paceline_node.replication.partition import ProduceResult
from paceline_node.services.partitions.partition_access import Refused
from tests.unit.listeners.data_plane import DataPlane, kafka_client, kafka_listener
from tests.unit.listeners.lone import batch

NOW = 1_700_000_000_000
GOOD = batch()
APPENDED = ProduceResult(5, 5, LeaderEpoch(1), 6, 2, False)


def message_set(magic: int) -> bytes:
    made = [Record(at, NOW + at, b"k%d" % at, b"v%d" % at) for at in range(3)]
    return write_message_set(made, magic=magic, max_bytes=1 << 20)


def plane_of(count: int) -> DataPlane:
    return DataPlane(*[("orders", number) for number in range(count)])


# --- PRODUCE --------------------------------------------------------------------------------------


def produce(*batches: bytes | None, acks: int = -1, **more: Any) -> wire.ProduceRequest:
    """One batch for each partition of ``orders``, from 0 on."""
    parts = tuple(
        wire.ProduceRequestTopicPartition(index=number, records=data)
        for number, data in enumerate(batches)
    )
    topic = wire.ProduceRequestTopic(name="orders", partition_data=parts)
    return wire.ProduceRequest(acks=acks, timeout_ms=1000, topic_data=(topic,), **more)


def produced(response: wire.ProduceResponse) -> list[tuple[int, int, int]]:
    """Of each partition the error, the offset and the log's start."""
    [topic] = response.responses
    return [(each.error_code, each.base_offset, each.log_start_offset) for each in _parts(topic)]


def _parts(topic: wire.ProduceResponseEntry) -> Any:
    assert [each.index for each in topic.partition_responses] == list(
        range(len(topic.partition_responses))
    )
    return topic.partition_responses


async def test_each_partition_of_a_produce_has_its_own_outcome() -> None:
    plane = plane_of(6)
    plane.refuse("orders", 1, NotLeader("moved"), leader=2, epoch=7)
    plane.refuse("orders", 4, NotEnoughReplicas("1 of 2"))
    bad = GOOD[:-1] + b"?"
    async with kafka_client(kafka_listener(plane)) as client:
        answer = await client.ask(produce(GOOD, GOOD, bad, GOOD, GOOD, None, GOOD), 9)
    assert produced(answer) == [
        (0, 0, 0),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1),
        (ErrorCode.CORRUPT_MESSAGE, -1, -1),
        (0, 0, 0),
        (ErrorCode.NOT_ENOUGH_REPLICAS, -1, -1),
        (ErrorCode.INVALID_RECORD, -1, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
    ]
    told = [each.error_message for each in answer.responses[0].partition_responses]
    assert told[1] == "moved"
    assert told[0] is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        # Told in the numbers that producers know, and act on rightly.
        (ErrorCode.STORAGE_FULL, ErrorCode.STORAGE_ERROR),
        (ErrorCode.LEADER_CHANGED_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.THROTTLED, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE, ErrorCode.OUT_OF_ORDER_SEQUENCE),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH),
    ],
    ids=lambda each: each.name,
)
async def test_producers_are_told_what_they_know_to_act_on(
    error: ErrorCode, code: ErrorCode
) -> None:
    plane = plane_of(1)
    plane.refuse("orders", 0, error_for(error, "why"))
    async with kafka_client(kafka_listener(plane)) as client:
        assert produced(await client.ask(produce(GOOD), 9)) == [(code, -1, -1)]


@pytest.mark.parametrize(
    ("data", "acks", "version", "code"),
    [
        (GOOD, 2, 9, ErrorCode.INVALID_REQUIRED_ACKS),
        (GOOD * 2, -1, 9, ErrorCode.INVALID_RECORD),
        (message_set(0), -1, 9, ErrorCode.INVALID_RECORD),
        (GOOD[:-1], -1, 9, ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:-1] + b"\2", -1, 9, ErrorCode.CORRUPT_MESSAGE),
        (message_set(1)[:-1] + b"\0", -1, 2, ErrorCode.CORRUPT_MESSAGE),
        (b"", -1, 9, ErrorCode.INVALID_RECORD),
        (batch(compression=Compression.ZSTD), -1, 6, ErrorCode.UNSUPPORTED_COMPRESSION),
        (batch(flags=0x10), -1, 9, ErrorCode.INVALID_RECORD),
        (batch(flags=0x20), -1, 9, ErrorCode.INVALID_RECORD),
    ],
    ids=["acks", "two", "magic 0", "cut", "crc", "old crc", "none", "zstd", "txn", "control"],
)
async def test_what_produce_refuses(data: bytes, acks: int, version: int, code: int) -> None:
    async with kafka_client(kafka_listener(plane_of(1))) as client:
        refused = await client.ask(produce(data, acks=acks), version)
        assert [(each[:2]) for each in produced(refused)] == [(code, -1)]
        assert produced(await client.ask(produce(GOOD), 9)) == [(0, 0, 0)]


@pytest.mark.parametrize(("asked_ms", "given_s"), [(-5, 0.0), (1500, 1.5), (2**31 - 1, 120.0)])
async def test_a_producer_waits_for_two_minutes_at_most(asked_ms: int, given_s: float) -> None:
    plane = plane_of(1)
    request = produce(GOOD)
    request = wire.ProduceRequest(acks=-1, timeout_ms=asked_ms, topic_data=request.topic_data)
    async with kafka_client(kafka_listener(plane)) as client:
        await client.ask(request, 9)
    assert [each.timeout_s for each in plane.produce.wishes] == [given_s]


async def test_a_transaction_that_may_not_be_used_is_told_at_every_partition() -> None:
    plane = plane_of(2)
    plane.produce.refusal = error_for(ErrorCode.AUTHORIZATION_FAILED, "no")
    async with kafka_client(kafka_listener(plane)) as client:
        answer = await client.ask(produce(GOOD, GOOD, transactional_id="pay"), 9)
    assert produced(answer) == [(ErrorCode.AUTHORIZATION_FAILED, -1, -1)] * 2


async def test_answers_keep_the_order_of_the_requests() -> None:
    """The first produce waits for its followers, and the second does not."""
    plane = plane_of(2)
    plane.produce.waiting = {("orders", 0)}
    async with kafka_client(kafka_listener(plane)) as client:
        await client.send(produce(GOOD), 9)
        later = produce(None, GOOD)
        await client.send(later, 9)
        await wait_all_tasks_blocked()
        assert len(plane.produce.wishes) == 2
        plane.produce.settle("orders", 0, APPENDED)
        first, second = [await client.read(0, 9) for _ in range(2)]
    assert produced(first) == [(0, 5, 2)]
    assert produced(second)[1] == (0, 0, 0)


async def test_one_partition_that_waits_holds_the_answer_of_all() -> None:
    plane = plane_of(2)
    plane.produce.waiting = {("orders", 0)}
    async with kafka_client(kafka_listener(plane)) as client:
        await client.send(produce(GOOD, GOOD), 9)
        await wait_all_tasks_blocked()
        plane.produce.settle("orders", 0, Refused(RequestTimedOut("late")))
        answer = await client.read(0, 9)
    assert produced(answer) == [(ErrorCode.REQUEST_TIMED_OUT, -1, -1), (0, 0, 0)]


async def test_acks_0_gets_no_answer_and_an_error_of_it_the_end() -> None:
    plane = plane_of(2)
    plane.refuse("orders", 1, NotLeader("moved"))
    async with kafka_client(kafka_listener(plane)) as client:
        await client.send(produce(GOOD, acks=0), 9)
        assert produced(await client.ask(produce(GOOD), 9)) == [(0, 1, 0)], "the next one's"
        await client.send(produce(GOOD, GOOD, acks=0), 9)
        assert await client.read(0, 9) is None


async def test_an_outcome_that_comes_after_its_client_has_gone_is_nobodys() -> None:
    plane = plane_of(1)
    plane.produce.waiting = {("orders", 0)}
    listener = kafka_listener(plane)
    async with kafka_client(listener) as client:
        await client.send(produce(GOOD), 9)
        await wait_all_tasks_blocked()
    plane.produce.settle("orders", 0, APPENDED)
    async with kafka_client(listener) as client:
        assert produced(await client.ask(produce(None), 9))[0][0] == ErrorCode.INVALID_RECORD


# --- FETCH ----------------------------------------------------------------------------------------


def fetch(*partitions: int, wait_ms: int = 0, level: int = 0, **more: Any) -> wire.FetchRequest:
    parts = tuple(
        wire.FetchRequestTopicPartition(
            partition=number, fetch_offset=0, partition_max_bytes=1 << 20
        )
        for number in partitions
    )
    topic = wire.FetchRequestTopic(topic="orders", partitions=parts)
    return wire.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=level,
        topics=(topic,),
        **more,
    )


def fetched(response: wire.FetchResponse) -> list[tuple[int, bytes]]:
    assert response.error_code == 0
    [topic] = response.responses
    return [(each.error_code, bytes(each.records or b"")) for each in topic.partitions]


async def test_each_partition_of_a_fetch_has_its_own_outcome() -> None:
    plane = plane_of(4)
    plane.put("orders", 0, GOOD)
    plane.put("orders", 3, GOOD)
    plane.refuse("orders", 1, NotLeader("moved"), leader=2, epoch=7)
    async with kafka_client(kafka_listener(plane)) as client:
        answer = await client.ask(fetch(0, 1, 2, 3, 9), 12)
    assert fetched(answer) == [
        (0, GOOD),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, b""),
        (0, b""),
        (0, GOOD),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, b""),
    ]
    marks = [each.high_watermark for each in answer.responses[0].partitions]
    assert marks == [1, -1, 0, 1, -1]


async def test_a_batch_that_does_not_hold_is_told_and_the_others_are_served() -> None:
    """Kafka's clients are sent nothing that was not looked at."""
    plane = plane_of(3)
    for number, stored in enumerate((GOOD, GOOD[:-1] + b"?", GOOD)):
        plane.put("orders", number, stored)
    async with kafka_client(kafka_listener(plane)) as client:
        answer = await client.ask(fetch(0, 1, 2), 12)
    assert fetched(answer) == [(0, GOOD), (ErrorCode.CORRUPT_MESSAGE, b""), (0, GOOD)]
    assert plane.fetch.reported == [("orders", 1)]


@pytest.mark.parametrize(("level", "aborted"), [(0, None), (1, ())])
async def test_only_readers_of_committed_data_are_told_of_aborted_transactions(
    level: int, aborted: object
) -> None:
    plane = plane_of(1)
    plane.put("orders", 0, GOOD)
    async with kafka_client(kafka_listener(plane)) as client:
        answer = await client.ask(fetch(0, 9, level=level), 12)
    [topic] = answer.responses
    assert [each.aborted_transactions for each in topic.partitions] == [aborted, aborted]


async def test_sessions_are_declined_before_anything_is_read() -> None:
    plane = plane_of(1)
    async with kafka_client(kafka_listener(plane)) as client:
        for session, epoch in ((7, 3), (0, 5)):
            refused = await client.ask(fetch(0, session_id=session, session_epoch=epoch), 12)
            assert refused.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert plane.fetch.wishes == []
        granted = await client.ask(fetch(0, session_epoch=0), 12)
        assert (granted.error_code, granted.session_id) == (0, 0)


async def test_a_fetch_that_waits_ends_with_its_client() -> None:
    plane = plane_of(1)
    listener = kafka_listener(plane)
    async with kafka_client(listener) as client:
        await client.send(fetch(0, wait_ms=60_000), 12)
        await wait_all_tasks_blocked()
        assert len(plane.fetch.parked) == 1
    assert plane.fetch.parked == []


async def test_what_lies_in_an_older_tier_is_awaited() -> None:
    plane = plane_of(1)
    plane.put("orders", 0, GOOD)
    plane.fetch.in_older_tier = True
    async with kafka_client(kafka_listener(plane)) as client:
        assert fetched(await client.ask(fetch(0), 12)) == [(0, GOOD)]


@pytest.mark.parametrize(
    ("wait_ms", "least", "given_s"), [(500, 1, 0.5), (500, 0, 0.0), (500, -1, 0.0)]
)
async def test_who_wants_no_bytes_waits_for_none(wait_ms: int, least: int, given_s: float) -> None:
    plane = plane_of(1)
    plane.put("orders", 0, GOOD)
    asked = fetch(0, wait_ms=wait_ms)
    asked = wire.FetchRequest(max_wait_ms=wait_ms, min_bytes=least, topics=asked.topics)
    async with kafka_client(kafka_listener(plane)) as client:
        await client.ask(asked, 12)
    assert [each.wait_s for each in plane.fetch.wishes] == [given_s]


# --- offsets --------------------------------------------------------------------------------------


def times(*spec: int, **more: Any) -> wire.ListOffsetsRequest:
    """A time for each partition of ``orders``, from 0 on."""
    parts = tuple(
        wire.ListOffsetsRequestTopicPartition(partition_index=number, timestamp=time, **more)
        for number, time in enumerate(spec)
    )
    return wire.ListOffsetsRequest(
        replica_id=-1, topics=(wire.ListOffsetsRequestTopic(name="orders", partitions=parts),)
    )


def found(response: wire.ListOffsetsResponse) -> list[tuple[int, int, int]]:
    [topic] = response.topics
    return [(each.error_code, each.offset, each.leader_epoch) for each in topic.partitions]


async def test_each_look_up_of_an_offset_has_its_own_outcome() -> None:
    plane = plane_of(3)
    plane.refuse("orders", 1, NotLeader("moved"), leader=2, epoch=7)
    async with kafka_client(kafka_listener(plane)) as client:
        answer = await client.ask(times(40, 41, 42, 43), 7)
    assert found(answer) == [
        (0, 40, 3),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, 7),
        (0, 42, 3),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
    ]


async def test_a_time_index_that_is_made_anew_is_waited_for() -> None:
    plane = plane_of(1)
    plane.offsets.is_known = False
    async with kafka_client(kafka_listener(plane)) as client:
        assert found(await client.ask(times(40), 7)) == [(0, 40, 3)]
    assert plane.offsets.waited == 1


@pytest.mark.parametrize(("version", "code"), [(4, 5), (5, 78)])
async def test_a_new_leader_that_may_not_say_yet_is_told_in_a_number_of_the_version(
    version: int, code: int
) -> None:
    plane = plane_of(1)
    plane.refuse("orders", 0, OffsetNotAvailable("not yet"))
    async with kafka_client(kafka_listener(plane)) as client:
        assert found(await client.ask(times(-1), version))[0][0] == code


async def test_what_is_no_time_in_a_version_is_none_to_the_service() -> None:
    """Nor what the native protocol alone asks for."""
    plane = plane_of(1)
    async with kafka_client(kafka_listener(plane)) as client:
        for version, spec in ((7, -1), (7, -2), (7, -3), (6, -3), (7, -4), (7, -101)):
            await client.ask(times(spec), version)
    assert [each.spec for each in plane.offsets.queries] == [-1, -2, -3, -1000, -1000, -1000]


@pytest.mark.parametrize(
    ("spec", "most", "offsets"),
    [(-1, 5, (0,)), (-1, 0, ()), (25, 5, (20, 10, 0)), (25, 2, (20, 10)), (25, -1, ())],
)
async def test_version_0_lists_the_begins_of_segments(
    spec: int, most: int, offsets: tuple[int, ...]
) -> None:
    plane = plane_of(1)
    plane.offsets.starts = [0, 10, 20, 30]
    async with kafka_client(kafka_listener(plane)) as client:
        [topic] = (await client.ask(times(spec, max_num_offsets=most), 0)).topics
    assert [each.old_style_offsets for each in topic.partitions] == [offsets]


async def test_ends_of_epochs_are_told_partition_by_partition() -> None:
    plane = plane_of(3)
    plane.offsets.epochs = {4: (LeaderEpoch(3), 70)}
    plane.refuse("orders", 1, NotLeader("moved"))
    parts = tuple(
        wire.OffsetForLeaderEpochRequestTopicPartition(partition=number, leader_epoch=epoch)
        for number, epoch in ((0, 4), (1, 4), (2, 9))
    )
    asked = wire.OffsetForLeaderEpochRequest(
        topics=(wire.OffsetForLeaderEpochRequestTopic(topic="orders", partitions=parts),)
    )
    async with kafka_client(kafka_listener(plane)) as client:
        [topic] = (await client.ask(asked, 3)).topics
    assert [(each.error_code, each.leader_epoch, each.end_offset) for each in topic.partitions] == [
        (0, 3, 70),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1),
        (0, -1, -1),
    ]


# --- DELETE_RECORDS -------------------------------------------------------------------------------


async def test_partitions_to_trim_share_the_time_of_their_request(autojump_clock) -> None:
    plane = plane_of(3)
    plane.refuse("orders", 1, RequestTimedOut("not everywhere"))
    plane.trimming.takes_s = 4.0
    parts = tuple(
        wire.DeleteRecordsRequestTopicPartition(partition_index=number, offset=offset)
        for number, offset in ((0, 5), (1, 5), (2, 7), (9, -1))
    )
    asked = wire.DeleteRecordsRequest(
        topics=(wire.DeleteRecordsRequestTopic(name="orders", partitions=parts),),
        timeout_ms=10_000,
    )
    async with kafka_client(kafka_listener(plane)) as client:
        [topic] = (await client.ask(asked, 2)).topics
    assert [(each.error_code, each.low_watermark) for each in topic.partitions] == [
        (0, 5),
        (ErrorCode.REQUEST_TIMED_OUT, -1),
        (0, 7),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert [each[-1] for each in plane.trimming.asked] == [10.0, 6.0, 2.0, 0.0]
