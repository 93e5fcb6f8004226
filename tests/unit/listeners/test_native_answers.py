"""What native clients are answered, and which of several faults they are told of."""

from __future__ import annotations

import pytest

from paceline.errors import PacelineError
from paceline.types import Acks, Isolation, LeaderEpoch, OffsetSpec
from paceline.wire.message import Message
from paceline.wire.native import data, groups
from paceline.wire.native.api import NativeApi
from tests.unit.listeners.world import BATCHES, NEW_EPOCH, check, world

ALL, NONE = Acks.ALL, Acks.NONE
READABLE = Isolation.READ_COMMITTED


PRODUCE = (
    # topic, partition, batches, acks, epoch, transaction: error, base offset, leader told
    (("orders", 0, "good", ALL, -1, None), (0, 2, -1)),
    (("orders", 0, "two", ALL, 0, None), (0, 3, -1)),
    (("orders", 0, "good", NONE, -1, None), (0, 5, -1)),
    # Of the whole request: who may not use the transaction.
    (("secret", 9, "bad crc", NONE, NEW_EPOCH, "secret"), 31),
    # Then, partition by partition: who may not use the topic, whatever else is wrong.
    (("secret", 9, "bad crc", NONE, NEW_EPOCH, "pay"), (31, -1, -1)),
    (("secret", 0, "large", ALL, -1, None), (31, -1, -1)),
    (("sc_st", 9, "bad crc", ALL, NEW_EPOCH, None), (44, -1, -1)),
    (("__groups", 1, "large", ALL, NEW_EPOCH, None), (44, -1, 0)),
    (("__groups", 99, "none", ALL, NEW_EPOCH, None), (44, -1, -1)),
    # Who leads, before the batches are looked at.
    (("nowhere", 0, "large", ALL, NEW_EPOCH, None), (3, -1, -1)),
    (("nowhere", 0, "none", ALL, NEW_EPOCH, None), (3, -1, -1)),
    (("nowhere", 0, "bad crc", NONE, NEW_EPOCH, "pay"), (3, -1, -1)),
    (("orders", 9, "bad crc", NONE, NEW_EPOCH, "pay"), (3, -1, -1)),
    (("orders", 0, "bad crc", NONE, NEW_EPOCH, "pay"), (75, -1, 0)),
    (("orders", 0, "none", NONE, -1, "pay"), (42, -1, 0)),
    (("orders", 0, "large", NONE, -1, "pay"), (10, -1, 0)),
    (("orders", 0, "bad crc", NONE, -1, "pay"), (2, -1, 0)),
    (("orders", 0, "late", NONE, -1, "pay"), (32, -1, 0)),
    (("orders", 0, "good", NONE, -1, "pay"), (21, -1, 0)),
    (("orders", 0, "good", ALL, -1, "pay"), (42, -1, 0)),
)


async def test_produce(tmp_path, autojump_clock) -> None:
    async with world(tmp_path) as node:
        client = await node.native()
        answers = []
        for asked, _ in PRODUCE:
            topic, partition, name, acks, epoch, transaction = asked
            batches = BATCHES[name]
            part = data.ProducePartition(topic, partition, len(batches), LeaderEpoch(epoch))
            request = data.Produce(1000, acks, (part,), transaction)
            answer: object
            try:
                reply = await client.ask(NativeApi.PRODUCE, request, data.ProduceReply, batches)
                [found] = reply.partitions
                answer = found.error, found.base_offset, found.leader
            except PacelineError as error:
                answer = error.code
            answers.append(answer)
    check(answers, PRODUCE)


async def test_produce_of_many_parts(tmp_path, autojump_clock) -> None:
    """Each partition's own answer, in order; what cannot be of any is refused as a whole."""
    async with world(tmp_path) as node:
        client = await node.native()
        names = ("orders", "nowhere", "secret", "orders")
        parts = tuple(data.ProducePartition(name, 0, len(BATCHES["good"])) for name in names)
        request = data.Produce(1000, ALL, parts)
        reply = await client.ask(NativeApi.PRODUCE, request, data.ProduceReply, BATCHES["good"] * 4)
        found = [(each.topic, each.error, each.base_offset) for each in reply.partitions]
        assert found == [("orders", 0, 2), ("nowhere", 3, -1), ("secret", 31, -1), ("orders", 0, 3)]
        nothing = await client.ask(NativeApi.PRODUCE, data.Produce(0, ALL, ()), data.ProduceReply)
        assert nothing.partitions == ()
        with pytest.raises(PacelineError) as refused:
            await client.ask(NativeApi.PRODUCE, request, data.ProduceReply, BATCHES["good"])
        assert refused.value.code == 42


FETCH = (
    # topic, partition, offset, epoch: error, log start, high watermark, bytes, next offset, leader
    (("orders", 0, 0, -1), (0, 0, 2, 140, 2, -1)),
    (("orders", 0, 1, 0), (0, 0, 2, 70, 2, -1)),
    (("orders", 0, 2, -1), (0, 0, 2, 0, -1, -1)),
    (("secret", 9, 9, NEW_EPOCH), (31, -1, -1, 0, -1, -1)),
    (("nowhere", 0, 9, NEW_EPOCH), (3, -1, -1, 0, -1, -1)),
    (("orders", 9, 9, NEW_EPOCH), (3, -1, -1, 0, -1, -1)),
    (("orders", 0, 9, NEW_EPOCH), (75, -1, -1, 0, -1, 0)),
    (("orders", 0, 9, -1), (1, -1, -1, 0, -1, 0)),
    (("orders", 0, -1, -1), (1, -1, -1, 0, -1, 0)),
    (("__groups", 0, 9, -1), (1, -1, -1, 0, -1, 0)),
    (("sc_st", 0, 0, -1), (0, 0, 0, 0, -1, -1)),
)


async def test_fetch(tmp_path, autojump_clock) -> None:
    async with world(tmp_path) as node:
        client = await node.native()
        answers = []
        for asked, _ in FETCH:
            topic, partition, offset, epoch = asked
            part = data.FetchPartition(topic, partition, offset, 1000, LeaderEpoch(epoch))
            # An error is answered at once, and so is nothing at the end of the wait.
            request = data.Fetch(500, 1, 1000, READABLE, (part,))
            [found] = (await client.ask(NativeApi.FETCH, request, data.FetchReply)).partitions
            starts = found.log_start_offset, found.high_watermark
            sizes = found.records_bytes, found.next_offset
            answers.append((found.error, *starts, *sizes, found.leader))
    check(answers, FETCH)


LIST = (
    # topic, partition, what is asked for, epoch: error, offset, leader told
    (("orders", 0, OffsetSpec.EARLIEST, -1), (0, 0, -1)),
    (("orders", 0, OffsetSpec.LATEST, 0), (0, 2, -1)),
    (("orders", 0, 1, -1), (0, 0, -1)),
    (("orders", 0, 4_000_000_000_000, -1), (0, -1, -1)),
    (("secret", 9, -99, NEW_EPOCH), (31, -1, -1)),
    (("nowhere", 0, -99, NEW_EPOCH), (3, -1, -1)),
    (("orders", 9, -99, NEW_EPOCH), (3, -1, -1)),
    (("orders", 0, -99, NEW_EPOCH), (75, -1, 0)),
    (("orders", 0, -99, -1), (42, -1, 0)),
    (("__groups", 0, OffsetSpec.EARLIEST, -1), (0, 0, -1)),
    (("sc_st", 0, OffsetSpec.LATEST, -1), (0, 0, -1)),
)


async def test_list_offsets(tmp_path, autojump_clock) -> None:
    async with world(tmp_path) as node:
        client = await node.native()
        answers = []
        for asked, _ in LIST:
            topic, partition, spec, epoch = asked
            query = data.OffsetQuery(topic, partition, spec, LeaderEpoch(epoch))
            request = data.ListOffsets(READABLE, (query,))
            reply = await client.ask(NativeApi.LIST_OFFSETS, request, data.ListOffsetsReply)
            [found] = reply.partitions
            answers.append((found.error, found.offset, found.leader))
    check(answers, LIST)


OFFSET = groups.OffsetToCommit("orders", 0, 1)
PROTOCOL = groups.GroupProtocol("range", b"")
GROUPS: tuple[tuple[NativeApi, Message, int], ...] = (
    (NativeApi.FIND_COORDINATOR, groups.FindCoordinator("secret"), 31),
    (NativeApi.FIND_COORDINATOR, groups.FindCoordinator(""), 0),
    (NativeApi.FIND_COORDINATOR, groups.FindCoordinator("team"), 0),
    (NativeApi.JOIN_GROUP, groups.JoinGroup("secret", "m", 1, 1, "", ()), 31),
    (NativeApi.JOIN_GROUP, groups.JoinGroup("", "m", 1, 1, "", ()), 24),
    (NativeApi.JOIN_GROUP, groups.JoinGroup("team", "m", 1, 1, "", ()), 26),
    (NativeApi.JOIN_GROUP, groups.JoinGroup("team", "m", 10_000, 1, "", ()), 23),
    (NativeApi.JOIN_GROUP, groups.JoinGroup("team", "m", 10_000, 1, "c", (PROTOCOL,)), 25),
    (NativeApi.SYNC_GROUP, groups.SyncGroup("secret", 1, "m"), 31),
    (NativeApi.SYNC_GROUP, groups.SyncGroup("team", 1, "m"), 25),
    (NativeApi.HEARTBEAT_GROUP, groups.HeartbeatGroup("secret", 1, "m"), 31),
    (NativeApi.HEARTBEAT_GROUP, groups.HeartbeatGroup("team", 1, "m"), 25),
    (NativeApi.LEAVE_GROUP, groups.LeaveGroup("secret", ()), 31),
    (NativeApi.LEAVE_GROUP, groups.LeaveGroup("team", ()), 0),
    (NativeApi.COMMIT_OFFSETS, groups.CommitOffsets("secret", 5, "m", (OFFSET,)), 31),
    (NativeApi.COMMIT_OFFSETS, groups.CommitOffsets("team", 5, "m", (OFFSET,)), 22),
    (NativeApi.COMMIT_OFFSETS, groups.CommitOffsets("team", -1, "", (OFFSET,)), 0),
    (NativeApi.FETCH_OFFSETS, groups.FetchOffsets("secret"), 31),
    (NativeApi.FETCH_OFFSETS, groups.FetchOffsets("team"), 0),
    (NativeApi.DESCRIBE_GROUP, groups.DescribeGroup("secret"), 31),
    (NativeApi.DESCRIBE_GROUP, groups.DescribeGroup("none"), 0),
    (NativeApi.RESET_OFFSETS, groups.ResetOffsets("secret", (OFFSET,)), 31),
    (NativeApi.RESET_OFFSETS, groups.ResetOffsets("team", (OFFSET,)), 0),
    (NativeApi.DELETE_OFFSETS, groups.DeleteOffsets("secret", ()), 31),
    (NativeApi.DELETE_OFFSETS, groups.DeleteOffsets("none", ()), 69),
    (NativeApi.DELETE_GROUP, groups.DeleteGroup("secret"), 31),
    (NativeApi.DELETE_GROUP, groups.DeleteGroup("none"), 69),
    (NativeApi.DELETE_GROUP, groups.DeleteGroup("team"), 0),
)


async def test_groups(tmp_path, autojump_clock) -> None:
    async with world(tmp_path) as node:
        client = await node.native()
        answers = [await client.code(api, request) for api, request, _ in GROUPS]
    check(answers, GROUPS)
