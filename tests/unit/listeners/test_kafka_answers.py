"""What Kafka clients are answered, and which of several faults they are told of."""

from __future__ import annotations

from typing import Any

from paceline.types import OffsetSpec
from paceline.wire.kafka import groups, offsets, transactions
from paceline.wire.kafka import records as wire
from tests.unit.listeners.world import BATCHES, NEW_EPOCH, check, world


def one_batch(name: str) -> wire.Records:
    return BATCHES[name] or None


PRODUCE = (
    # topic, partition, batches, acks, transaction, version: error, base offset
    (("orders", 0, "good", -1, None, 9), (0, 2)),
    (("orders", 0, "good", 1, None, 3), (0, 3)),
    # Who may not use the transaction, or the topic, whatever else is wrong.
    (("orders", 0, "good", -1, "secret", 9), (53, -1)),
    (("secret", 9, "bad crc", 5, "pay", 9), (29, -1)),
    (("secret", 9, "large", 1, None, 9), (29, -1)),
    (("sc_st", 9, "bad crc", 5, "pay", 9), (44, -1)),
    (("__groups", 99, "none", 5, "pay", 9), (44, -1)),
    # Who leads, before acks and batches are looked at.
    (("nowhere", 0, "none", 5, "pay", 9), (3, -1)),
    (("nowhere", 0, "bad crc", 1, "pay", 9), (3, -1)),
    (("orders", 9, "two", 1, "pay", 9), (3, -1)),
    (("orders", 0, "none", 5, None, 9), (21, -1)),
    (("orders", 0, "none", 1, None, 9), (87, -1)),
    (("orders", 0, "two", 1, None, 9), (87, -1)),
    (("orders", 0, "large", 1, None, 9), (87, -1)),
    (("orders", 0, "bad crc", 1, "pay", 9), (2, -1)),
    (("orders", 0, "late", 1, "pay", 9), (32, -1)),
    (("orders", 0, "zstd", 1, None, 6), (76, -1)),
    (("orders", 0, "zstd", 1, None, 7), (0, 4)),
    (("orders", 0, "good", 1, "pay", 9), (21, -1)),
    (("orders", 0, "good", -1, "pay", 9), (42, -1)),
    (("orders", 0, "transactional", -1, None, 9), (87, -1)),
    (("orders", 0, "transactional", -1, "pay", 9), (49, -1)),
)


def produce(topic: str, partition: int, batches: str, acks: int, name: str | None) -> Any:
    part = wire.ProduceRequestTopicPartition(index=partition, records=one_batch(batches))
    parts = (wire.ProduceRequestTopic(name=topic, partition_data=(part,)),)
    return wire.ProduceRequest(transactional_id=name, acks=acks, timeout_ms=1000, topic_data=parts)


async def test_produce(tmp_path, autojump_clock) -> None:
    async with world(tmp_path) as node:
        client = await node.kafka()
        answers = []
        for (*asked, version), _ in PRODUCE:
            response = await client.ask(produce(*asked), version)
            [[found]] = [entry.partition_responses for entry in response.responses]
            answers.append((found.error_code, found.base_offset))
    check(answers, PRODUCE)


async def test_produce_of_many_parts(tmp_path, autojump_clock) -> None:
    """Each partition's own answer, in order."""
    async with world(tmp_path) as node:
        client = await node.kafka()
        names = ("orders", "nowhere", "secret", "orders")
        topics = tuple(produce(name, 0, "good", -1, None).topic_data[0] for name in names)
        request = wire.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)
        response = await client.ask(request, 9)
        found = [
            (entry.name, part.error_code, part.base_offset)
            for entry in response.responses
            for part in entry.partition_responses
        ]
        assert found == [("orders", 0, 2), ("nowhere", 3, -1), ("secret", 29, -1), ("orders", 0, 3)]
        nothing = await client.ask(wire.ProduceRequest(acks=-1, timeout_ms=0), 9)
        assert nothing.responses == ()


FETCH = (
    # topic, partition, offset, epoch: error, log start, high watermark, bytes
    (("orders", 0, 0, -1), (0, 0, 2, 140)),
    (("orders", 0, 1, 0), (0, 0, 2, 70)),
    (("orders", 0, 2, -1), (0, 0, 2, 0)),
    (("secret", 9, 9, NEW_EPOCH), (29, -1, -1, 0)),
    (("nowhere", 0, 9, NEW_EPOCH), (3, -1, -1, 0)),
    (("orders", 9, 9, NEW_EPOCH), (3, -1, -1, 0)),
    (("orders", 0, 9, NEW_EPOCH), (75, -1, -1, 0)),
    (("orders", 0, 9, -1), (1, -1, -1, 0)),
    (("orders", 0, -1, -1), (1, -1, -1, 0)),
    (("__groups", 0, 9, -1), (1, -1, -1, 0)),
    (("sc_st", 0, 0, -1), (0, 0, 0, 0)),
)


async def test_fetch(tmp_path, autojump_clock) -> None:
    async with world(tmp_path) as node:
        client = await node.kafka()
        answers = []
        for (topic, partition, offset, epoch), _ in FETCH:
            part = wire.FetchRequestTopicPartition(
                partition=partition,
                current_leader_epoch=epoch,
                fetch_offset=offset,
                partition_max_bytes=1000,
            )
            topics = (wire.FetchRequestTopic(topic=topic, partitions=(part,)),)
            request = wire.FetchRequest(
                max_wait_ms=500, min_bytes=1, max_bytes=1000, isolation_level=1, topics=topics
            )
            response = await client.ask(request, 11)
            [[found]] = [entry.partitions for entry in response.responses]
            answers.append(
                (
                    found.error_code,
                    found.log_start_offset,
                    found.high_watermark,
                    len(found.records or b""),
                )
            )
    check(answers, FETCH)


LIST = (
    # topic, partition, what is asked for, epoch: error, offset
    (("orders", 0, OffsetSpec.EARLIEST, -1), (0, 0)),
    (("orders", 0, OffsetSpec.LATEST, 0), (0, 2)),
    (("orders", 0, 1, -1), (0, 0)),
    (("orders", 0, 4_000_000_000_000, -1), (0, -1)),
    (("secret", 9, -99, NEW_EPOCH), (29, -1)),
    (("nowhere", 0, -99, NEW_EPOCH), (3, -1)),
    (("orders", 9, -99, NEW_EPOCH), (3, -1)),
    (("orders", 0, -99, NEW_EPOCH), (75, -1)),
    (("orders", 0, -99, -1), (42, -1)),
    # What the native protocol alone asks for.
    (("orders", 0, OffsetSpec.EPOCH_END, -1), (42, -1)),
    (("orders", 0, OffsetSpec.AHEAD, -1), (42, -1)),
    (("__groups", 0, OffsetSpec.EARLIEST, -1), (0, 0)),
    (("sc_st", 0, OffsetSpec.LATEST, -1), (0, 0)),
)


async def test_list_offsets(tmp_path, autojump_clock) -> None:
    async with world(tmp_path) as node:
        client = await node.kafka()
        answers = []
        for (topic, partition, timestamp, epoch), _ in LIST:
            part = wire.ListOffsetsRequestTopicPartition(
                partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp
            )
            topics = (wire.ListOffsetsRequestTopic(name=topic, partitions=(part,)),)
            response = await client.ask(
                wire.ListOffsetsRequest(isolation_level=1, topics=topics), 7
            )
            [[found]] = [entry.partitions for entry in response.topics]
            answers.append((found.error_code, found.offset))
    check(answers, LIST)


EPOCHS = (
    # topic, partition, current epoch, epoch asked for: error, end
    (("orders", 0, 0, 0), (0, 2)),
    (("secret", 9, NEW_EPOCH, 0), (29, -1)),
    (("nowhere", 0, NEW_EPOCH, 0), (3, -1)),
    (("orders", 0, NEW_EPOCH, 0), (75, -1)),
    (("orders", 0, 0, 5), (0, -1)),
)


async def test_end_of_epoch(tmp_path, autojump_clock) -> None:
    async with world(tmp_path) as node:
        client = await node.kafka()
        answers = []
        for (topic, partition, current, asked), _ in EPOCHS:
            part = wire.OffsetForLeaderEpochRequestTopicPartition(
                partition=partition, current_leader_epoch=current, leader_epoch=asked
            )
            topics = (wire.OffsetForLeaderEpochRequestTopic(topic=topic, partitions=(part,)),)
            response = await client.ask(wire.OffsetForLeaderEpochRequest(topics=topics), 3)
            [[found]] = [entry.partitions for entry in response.topics]
            answers.append((found.error_code, found.end_offset))
    check(answers, EPOCHS)


_ONE = (offsets.OffsetCommitRequestTopicPartition(partition_index=0, committed_offset=1),)
_COMMITTED = (
    offsets.OffsetCommitRequestTopic(name="orders", partitions=_ONE),
    offsets.OffsetCommitRequestTopic(name="secret", partitions=_ONE),
)
_PROTOCOLS = (groups.JoinGroupRequestProtocol(name="range", metadata=b""),)
_DELETED = (
    offsets.OffsetDeleteRequestTopic(
        name="orders", partitions=(offsets.OffsetDeleteRequestTopicPartition(partition_index=0),)
    ),
)
GROUPS = (
    # request, version: the errors in the response, in order
    (groups.JoinGroupRequest(group_id="secret"), 5, [30]),
    (groups.JoinGroupRequest(group_id="", session_timeout_ms=1), 5, [24]),
    (groups.JoinGroupRequest(group_id="team", session_timeout_ms=1), 5, [26]),
    (groups.JoinGroupRequest(group_id="team", session_timeout_ms=10_000), 5, [42]),
    (
        groups.JoinGroupRequest(
            group_id="team",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=_PROTOCOLS,
        ),
        5,
        [79],
    ),
    (groups.SyncGroupRequest(group_id="secret"), 5, [30]),
    (groups.SyncGroupRequest(group_id="team", member_id="m"), 5, [25]),
    (groups.HeartbeatRequest(group_id="secret"), 4, [30]),
    (groups.HeartbeatRequest(group_id="team", member_id="m"), 4, [25]),
    (groups.LeaveGroupRequest(group_id="secret"), 4, [30]),
    (groups.LeaveGroupRequest(group_id="team"), 4, [0]),
    (offsets.OffsetCommitRequest(group_id="secret", topics=_COMMITTED), 8, [30, 30]),
    (
        offsets.OffsetCommitRequest(group_id="team", generation_id=5, topics=_COMMITTED),
        8,
        [22, 22],
    ),
    (offsets.OffsetCommitRequest(group_id="team", topics=_COMMITTED), 8, [0, 29]),
    (offsets.OffsetFetchRequest(group_id="secret"), 7, [30]),
    (offsets.OffsetFetchRequest(group_id="team"), 7, [0, 0]),
    (groups.DescribeGroupsRequest(groups=("secret", "none")), 5, [30, 0]),
    (groups.ListGroupsRequest(), 4, [0]),
    (offsets.OffsetDeleteRequest(group_id="secret", topics=_DELETED), 0, [30]),
    (offsets.OffsetDeleteRequest(group_id="none", topics=_DELETED), 0, [69]),
    (groups.DeleteGroupsRequest(groups_names=("secret", "none", "team")), 2, [30, 69, 0]),
    (transactions.InitProducerIdRequest(transactional_id="secret"), 4, [53]),
    (transactions.EndTxnRequest(transactional_id="secret"), 3, [53]),
    (transactions.EndTxnRequest(transactional_id="none"), 3, [49]),
    (transactions.AddOffsetsToTxnRequest(transactional_id="secret", group_id="secret"), 3, [30]),
)


def errors_of(response: object) -> list[int]:
    """All error codes in a response; an outer one follows those that it holds."""
    found: list[int] = []
    for name in type(response).__slots__:  # type: ignore[attr-defined]
        value = getattr(response, name)
        if name == "error_code":
            found.append(value)
        for each in value if isinstance(value, tuple) else ():
            if hasattr(each, "__slots__"):
                found += errors_of(each)
    return found


async def test_groups(tmp_path, autojump_clock) -> None:
    async with world(tmp_path) as node:
        client = await node.kafka()
        answers = [errors_of(await client.ask(request, version)) for request, version, _ in GROUPS]
    check(answers, GROUPS)
