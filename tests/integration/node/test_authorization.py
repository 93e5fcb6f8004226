"""A policy that refuses: every request is refused in its protocol's words, and nothing happens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import pytest
import trio

from paceline.errors import (
    AuthorizationFailed,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    NotCoordinator,
)
from paceline.types import Acks, Isolation, NodeId
from paceline.wire.batch import build_batch
from paceline.wire.message import Message
from paceline.wire.native import acls, admin, data, groups, quotas, transactions, users
from paceline.wire.native.api import NativeApi
from paceline.wire.native.load import LoadAsked
from paceline.wire.records import Record
from paceline.wire.segment import messages as segment
from paceline.wire.segment import pravega_messages as pravega
from paceline.wire.segment.errors import ReplyCode
from paceline.wire.v1.commands import COMMANDS
from paceline_node.security.principals import (
    ANONYMOUS,
    CLUSTER,
    AllowAll,
    Operation,
    Principal,
    Resource,
    ResourceKind,
    refuse,
)
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import HANG_S, V1Client, lone_node
from tests.integration.segment.client import connect as connect_segments
from tests.integration.segment.test_pravega import connected as connect_pravega

pytestmark = pytest.mark.virtual_time

ALONE = {
    "topics.partitions": "1",
    "topics.replication_factor": "1",
    "topics.min_insync_replicas": "1",
}
TOPIC = Resource(ResourceKind.TOPIC, "orders")
NEW = Resource(ResourceKind.TOPIC, "new")
TEAM = Resource(ResourceKind.GROUP, "team")
WRITER = UUID(int=1)


class Guard:
    """Allows everything, or nothing; notes what it was asked while it refused."""

    def __init__(self) -> None:
        self._allow = AllowAll()
        self._shut = False
        self.refused: list[tuple[Operation, Resource]] = []

    @contextmanager
    def shut(self) -> Iterator[None]:
        self._shut = True
        yield
        self._shut = False

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> None:
        self._allow.authorize(principal, operation, resource)
        if self._shut:
            assert principal == ANONYMOUS
            self.refused.append((operation, resource))
            refuse(principal, operation, resource)


def batch() -> bytes:
    return bytes(build_batch([Record(-1, 1_700_000_000_000, b"k", b"v")]))


NODE = NodeId(0)
PRODUCE = data.Produce(1000, Acks.LEADER, (data.ProducePartition("orders", 0, len(batch())),))
FETCH = data.Fetch(
    0, 1, 1000, Isolation.READ_COMMITTED, (data.FetchPartition("orders", 0, 0, 1000),)
)
LIST = data.ListOffsets(Isolation.READ_COMMITTED, (data.OffsetQuery("orders", 0, -1),))
ALTER = admin.AlterTopic("orders", {"retention.ms": "5000"})
REASSIGN = admin.ReassignPartition("orders", 0, (NODE,))
ACL = acls.Acl(
    "ann", acls.AclResource.TOPIC, acls.AclPattern.LITERAL, "orders", acls.AclOperation.READ
)
EXTERNAL = admin.RegisterExternal(NodeId(7), "host", 1, 1)

OFFSET = groups.OffsetToCommit("orders", 0, 1)
DELETED = groups.DeleteOffsets("team", (groups.TopicPartitions("orders", (0,)),))
JOIN = groups.JoinGroup(
    "team", "", 10_000, 10_000, "consumer", (groups.GroupProtocol("range", b""),)
)

WHOLE: dict[NativeApi, tuple[Message, Operation, Resource]] = {
    NativeApi.TRIM_PARTITION: (
        data.TrimPartition("orders", 0, 0, 1000),
        Operation.DELETE,
        TOPIC,
    ),
    NativeApi.REPORT_CORRUPT: (data.ReportCorrupt("orders", 0, 0), Operation.CONSUME, TOPIC),
    NativeApi.INIT_PRODUCER: (data.InitProducer(), Operation.IDENTIFY_PRODUCER, CLUSTER),
    NativeApi.CREATE_TOPIC: (admin.CreateTopic("new"), Operation.CREATE, NEW),
    NativeApi.DELETE_TOPIC: (admin.DeleteTopic("orders"), Operation.DELETE, TOPIC),
    NativeApi.ALTER_TOPIC: (ALTER, Operation.ALTER_CONFIGS, TOPIC),
    NativeApi.ADD_PARTITIONS: (admin.AddPartitions("orders", 9), Operation.ALTER, TOPIC),
    NativeApi.ALTER_GROUP: (admin.AlterGroup("team", ("orders",)), Operation.ALTER, TEAM),
    NativeApi.DESCRIBE_TOPIC: (data.DescribeTopic("orders"), Operation.DESCRIBE, TOPIC),
    NativeApi.ELECT_LEADER: (
        admin.ElectLeader("orders", 0, NODE),
        Operation.MOVE_LEADER,
        TOPIC,
    ),
    NativeApi.SET_ROLE: (
        admin.SetRole("orders", 0, NODE, "follower"),
        Operation.MOVE_LEADER,
        TOPIC,
    ),
    NativeApi.FENCE_BROKER: (admin.FenceBroker(NODE, True), Operation.ADMINISTER, CLUSTER),
    NativeApi.REGISTER_EXTERNAL: (EXTERNAL, Operation.ADMINISTER, CLUSTER),
    NativeApi.RECONCILE_EXTERNAL: (admin.ReconcileExternal(1), Operation.ADMINISTER, CLUSTER),
    NativeApi.REASSIGN_PARTITION: (REASSIGN, Operation.ADMINISTER, CLUSTER),
    NativeApi.ADD_VOTER: (admin.AddVoter(NODE), Operation.ADMINISTER, CLUSTER),
    NativeApi.REMOVE_VOTER: (admin.RemoveVoter(NODE), Operation.ADMINISTER, CLUSTER),
    NativeApi.LIST_REASSIGNMENTS: (admin.ListReassignments(), Operation.DESCRIBE, CLUSTER),
    NativeApi.CREATE_ACLS: (acls.CreateAcls((ACL,)), Operation.ADMINISTER, CLUSTER),
    NativeApi.DELETE_ACLS: (
        acls.DeleteAcls((acls.AclFilter(),)),
        Operation.ADMINISTER,
        CLUSTER,
    ),
    NativeApi.LIST_ACLS: (acls.ListAcls(), Operation.DESCRIBE, CLUSTER),
    NativeApi.ALTER_QUOTAS: (quotas.AlterQuotas(()), Operation.ADMINISTER, CLUSTER),
    NativeApi.LIST_QUOTAS: (quotas.ListQuotas(), Operation.DESCRIBE, CLUSTER),
    NativeApi.UNREGISTER_BROKER: (admin.UnregisterBroker(NODE), Operation.ADMINISTER, CLUSTER),
    NativeApi.ALTER_USER: (
        users.AlterUser("alice", True, True),
        Operation.ADMINISTER,
        CLUSTER,
    ),
    NativeApi.DELETE_USER: (users.DeleteUser("alice"), Operation.ADMINISTER, CLUSTER),
    NativeApi.LIST_USERS: (users.ListUsers(), Operation.DESCRIBE, CLUSTER),
    NativeApi.STATUS: (data.Status(), Operation.DESCRIBE, CLUSTER),
    NativeApi.LOAD: (LoadAsked(), Operation.DESCRIBE, CLUSTER),
    NativeApi.STOP_CLUSTER: (data.StopCluster(), Operation.ADMINISTER, CLUSTER),
    NativeApi.FIND_COORDINATOR: (groups.FindCoordinator("team"), Operation.DESCRIBE, TEAM),
    NativeApi.JOIN_GROUP: (JOIN, Operation.JOIN_GROUP, TEAM),
    NativeApi.SYNC_GROUP: (groups.SyncGroup("team", 1, "m"), Operation.JOIN_GROUP, TEAM),
    NativeApi.HEARTBEAT_GROUP: (
        groups.HeartbeatGroup("team", 1, "m"),
        Operation.JOIN_GROUP,
        TEAM,
    ),
    NativeApi.LEAVE_GROUP: (groups.LeaveGroup("team", ()), Operation.JOIN_GROUP, TEAM),
    NativeApi.COMMIT_OFFSETS: (
        groups.CommitOffsets("team", -1, "", (OFFSET,)),
        Operation.COMMIT_OFFSETS,
        TEAM,
    ),
    NativeApi.FETCH_OFFSETS: (groups.FetchOffsets("team"), Operation.DESCRIBE, TEAM),
    NativeApi.DESCRIBE_GROUP: (groups.DescribeGroup("team"), Operation.DESCRIBE, TEAM),
    NativeApi.DELETE_GROUP: (groups.DeleteGroup("team"), Operation.DELETE, TEAM),
    NativeApi.DELETE_OFFSETS: (DELETED, Operation.ALTER, TEAM),
    NativeApi.RESET_OFFSETS: (groups.ResetOffsets("team", (OFFSET,)), Operation.ALTER, TEAM),
}
PAY = Resource(ResourceKind.TRANSACTION, "pay")
SINK = Resource(ResourceKind.TRANSACTION, "sink")
WHOLE |= {
    NativeApi.FIND_TRANSACTION_COORDINATOR: (
        transactions.FindTransactionCoordinator("pay"),
        Operation.DESCRIBE,
        PAY,
    ),
    NativeApi.END_TRANSACTION: (
        transactions.EndTransaction("pay", 1, 0, True),
        Operation.TRANSACT,
        PAY,
    ),
    NativeApi.COMMIT_TRANSACTION_OFFSETS: (
        transactions.CommitTransactionOffsets("pay", 1, 0, "team", -1, "", (OFFSET,)),
        Operation.COMMIT_OFFSETS,
        TEAM,
    ),
    NativeApi.DESCRIBE_TRANSACTION: (
        transactions.DescribeTransaction("pay"),
        Operation.DESCRIBE,
        PAY,
    ),
    NativeApi.ABORT_TRANSACTION: (
        transactions.AbortTransaction("pay"),
        Operation.TRANSACT,
        PAY,
    ),
    NativeApi.BEGIN_ATTEMPT: (
        transactions.BeginAttempt("sink", "q", "r", 0, 0, 0, 60_000),
        Operation.TRANSACT,
        SINK,
    ),
    NativeApi.TOUCH_BATCH: (transactions.TouchBatch("sink", "r", 0), Operation.TRANSACT, SINK),
    NativeApi.COMMIT_GROUP: (
        transactions.CommitGroup("sink", "r", 0, ()),
        Operation.TRANSACT,
        SINK,
    ),
    NativeApi.ABORT_GROUP: (transactions.AbortGroup("sink", 0, ()), Operation.TRANSACT, SINK),
    NativeApi.SINK_STATE: (transactions.SinkState("sink"), Operation.DESCRIBE, SINK),
}
"""Requests that are refused as a whole."""
BY_PARTITION = {
    NativeApi.PRODUCE: (Operation.PRODUCE, PRODUCE, data.ProduceReply),
    NativeApi.FETCH: (Operation.CONSUME, FETCH, data.FetchReply),
    NativeApi.LIST_OFFSETS: (Operation.DESCRIBE, LIST, data.ListOffsetsReply),
}
NOT_JUDGED = {NativeApi.HELLO, NativeApi.AUTHENTICATE}
"""The greeting, and who somebody is: what comes before any right."""

V1 = {
    "PRODUCE": ("orders k:v", Operation.PRODUCE, TOPIC),
    "CONSUME": ("orders 0 0", Operation.CONSUME, TOPIC),
    "JOIN": ("team orders c", Operation.JOIN_GROUP, TEAM),
    "SYNC": ("team orders c 1", Operation.JOIN_GROUP, TEAM),
    "HEARTBEAT": ("team orders c 1", Operation.JOIN_GROUP, TEAM),
    "LEAVE": ("team orders c 1", Operation.JOIN_GROUP, TEAM),
    "COMMIT": ("team orders c 1 0 1", Operation.COMMIT_OFFSETS, TEAM),
    "OFFSET": ("team orders 0", Operation.DESCRIBE, TEAM),
    "REPLICA_FETCH": ("orders 0 1 0", Operation.REPLICATE, CLUSTER),
    "BROKER_FETCH": ("orders 0 1 0", Operation.CONSUME, TOPIC),
    "BROKER_REPLICA_ACK": ("orders 0 1 0", Operation.REPLICATE, CLUSTER),
    "SET_PARTITION_ROLE": ("new 0 follower", Operation.MOVE_LEADER, NEW),
    "ADMIN_CREATE_TOPIC": ("new 1 1", Operation.CREATE, NEW),
    "ADMIN_REGISTER_BROKER": ("7 host 9000", Operation.ADMINISTER, CLUSTER),
    "ADMIN_BROKER_HEARTBEAT": ("7", Operation.ADMINISTER, CLUSTER),
    "ADMIN_SET_PARTITION_LEADER": ("orders 0 -1 0", Operation.MOVE_LEADER, TOPIC),
    "ADMIN_FENCE_BROKER": ("0", Operation.ADMINISTER, CLUSTER),
    "ADMIN_UNFENCE_BROKER": ("0", Operation.ADMINISTER, CLUSTER),
    "ADMIN_RECONCILE_BROKER_HEALTH": ("1", Operation.ADMINISTER, CLUSTER),
    "ADMIN_ELECT_TOPIC_LEADERS": ("orders", Operation.MOVE_LEADER, TOPIC),
    "ADMIN_GET_METADATA": ("", Operation.DESCRIBE, CLUSTER),
}


async def state(native: NativeConnection) -> object:
    """Everything that one of the requests could have changed."""
    seen = await native.metadata(None)
    status = await native.status()
    return (
        seen.brokers,
        seen.topics,
        await native.describe("orders", 0),
        status.state,
        status.reasons,
    )


def test_every_request_is_tried() -> None:
    lists = {NativeApi.METADATA, NativeApi.LIST_GROUPS, NativeApi.LIST_TRANSACTIONS}
    tried = {*WHOLE, *BY_PARTITION, *lists}
    assert tried == set(NativeApi) - NOT_JUDGED
    assert set(V1) == set(COMMANDS)


async def test_native_requests(tmp_path) -> None:
    guard = Guard()
    async with (
        lone_node(tmp_path, ALONE, policy=guard) as node,
        NativeConnection(node.addresses["native"]) as native,
        V1Client(node.v1) as v1,
    ):
        await v1.ok("PRODUCE", "orders k:v acks=all")
        before = await state(native)
        with guard.shut():
            for api, (body, operation, resource) in WHOLE.items():
                with pytest.raises(AuthorizationFailed, match="anonymous may not"):
                    await native.call(api, body, Message)
                assert guard.refused == [(operation, resource)], api
                guard.refused.clear()
            for api, (operation, body, reply) in BY_PARTITION.items():
                payload = batch() if api == NativeApi.PRODUCE else b""
                [result] = (await native.call(api, body, reply, payload)).partitions
                assert result.error == ErrorCode.AUTHORIZATION_FAILED, api
                assert result.leader == -1, "a refusal tells nothing"
                assert guard.refused == [(operation, TOPIC)], api
                guard.refused.clear()
        assert await state(native) == before


async def test_native_metadata(tmp_path) -> None:
    guard = Guard()
    async with (
        lone_node(tmp_path, ALONE, policy=guard) as node,
        NativeConnection(node.addresses["native"]) as native,
        V1Client(node.v1) as v1,
    ):
        await v1.ok("PRODUCE", "orders k:v acks=all")
        with guard.shut():
            asked = data.MetadataRequest(("orders", "new"), allow_auto_create=True)
            reply = await native.call(NativeApi.METADATA, asked, data.MetadataReply)
            refused = ErrorCode.AUTHORIZATION_FAILED
            assert [(t.name, t.error, t.partitions) for t in reply.topics] == [
                ("orders", refused, ()),
                ("new", refused, ()),
            ]
            assert guard.refused == [(Operation.DESCRIBE, TOPIC), (Operation.DESCRIBE, NEW)]
            assert (await native.metadata(None)).topics == ()
        names = [topic.name for topic in (await native.metadata(None)).topics]
        assert "orders" in names
        assert "new" not in names


async def test_native_list_of_transactions(tmp_path) -> None:
    guard = Guard()
    async with (
        lone_node(tmp_path, ALONE, policy=guard) as node,
        NativeConnection(node.addresses["native"]) as native,
    ):
        init = data.InitProducer("pay", 60_000)

        async def listed() -> list[str]:
            reply = await native.call(
                NativeApi.LIST_TRANSACTIONS,
                transactions.ListTransactions(),
                transactions.TransactionsListed,
            )
            return [each.transactional_id for each in reply.transactions]

        with trio.fail_after(HANG_S):
            while True:
                with contextlib.suppress(
                    NotCoordinator, CoordinatorLoadInProgress, CoordinatorNotAvailable
                ):
                    await native.call(NativeApi.INIT_PRODUCER, init, data.ProducerIdentity)
                    break
                await trio.sleep(0.01)
        assert await listed() == ["pay"]
        with guard.shut():
            assert await listed() == []
            with pytest.raises(AuthorizationFailed):
                await native.call(NativeApi.INIT_PRODUCER, init, Message)
            assert guard.refused == [(Operation.DESCRIBE, PAY), (Operation.TRANSACT, PAY)]


async def test_native_list_of_groups(tmp_path) -> None:
    guard = Guard()
    async with (
        lone_node(tmp_path, ALONE, policy=guard) as node,
        NativeConnection(node.addresses["native"]) as native,
        V1Client(node.v1) as v1,
    ):
        await v1.ok("JOIN", "team orders c")

        async def listed() -> list[str]:
            with trio.fail_after(HANG_S):
                while True:  # other partitions of __groups may be loading still
                    with contextlib.suppress(CoordinatorLoadInProgress):
                        reply = await native.call(
                            NativeApi.LIST_GROUPS, groups.ListGroups(), groups.GroupsListed
                        )
                        return [each.group for each in reply.groups]
                    await trio.sleep(0.01)

        assert await listed() == ["team"]
        with guard.shut():
            assert await listed() == []
            assert guard.refused == [(Operation.DESCRIBE, TEAM)]


async def test_v1_commands(tmp_path) -> None:
    guard = Guard()
    async with (
        lone_node(tmp_path, ALONE, policy=guard) as node,
        NativeConnection(node.addresses["native"]) as native,
        V1Client(node.v1) as v1,
    ):
        await v1.ok("PRODUCE", "orders k:v acks=all")
        before = await state(native)
        with guard.shut():
            for command, (args, operation, resource) in V1.items():
                reply = await v1.call(command, args)
                assert reply.startswith("ERR|NOT_AUTHORIZED|anonymous may not "), (command, reply)
                assert guard.refused == [(operation, resource)], command
                guard.refused.clear()
        assert await state(native) == before


SEGMENT = Resource(ResourceKind.TOPIC, "sc_st")
SEGMENT_REQUESTS = (
    (segment.CreateSegment("sc/st/0"), Operation.CREATE),
    (segment.SetupAppend(WRITER, "sc/st/0"), Operation.PRODUCE),
    (segment.ReadSegment("sc/st/0", 0, 1), Operation.CONSUME),
    (segment.GetStreamSegmentInfo("sc/st/0"), Operation.DESCRIBE),
    (segment.SealSegment("sc/st/0"), Operation.ALTER),
    (segment.TruncateSegment("sc/st/0", 0), Operation.ALTER),
    (segment.DeleteSegment("sc/st/0"), Operation.DELETE),
)


async def test_pravega_segment_requests(tmp_path) -> None:
    """The Pravega dialect's, tables included: a refusal is an error, and changes nothing."""
    name, table = "sc/st/0", "sc/rg_kvtable/0"
    asked = (
        (pravega.CreateSegment(1, name, 0, 0, ""), Operation.CREATE),
        (pravega.SetupAppend(2, WRITER, name, ""), Operation.PRODUCE),
        (pravega.MergeSegments(3, name, "none", ""), Operation.PRODUCE),
        (pravega.ReadSegment(name, 0, 1, "", 4), Operation.CONSUME),
        (pravega.GetStreamSegmentInfo(5, name, ""), Operation.DESCRIBE),
        (pravega.SealSegment(6, name, ""), Operation.ALTER),
        (pravega.TruncateSegment(7, name, 0, ""), Operation.ALTER),
        (pravega.DeleteSegment(8, name, ""), Operation.DELETE),
        (pravega.CreateTableSegment(9, table, ""), Operation.CREATE),
        (pravega.UpdateTableEntries(10, table, "", (), -1), Operation.PRODUCE),
        (pravega.RemoveTableKeys(11, table, "", (), -1), Operation.PRODUCE),
        (pravega.ReadTable(12, table, "", ()), Operation.CONSUME),
        (pravega.ReadTableKeys(13, table, "", 1, b""), Operation.CONSUME),
        (pravega.ReadTableEntries(14, table, "", 1, b""), Operation.CONSUME),
        (pravega.ReadTableEntriesDelta(15, table, "", 0, 1), Operation.CONSUME),
        (pravega.DeleteTableSegment(16, table, False, ""), Operation.DELETE),
    )
    guard = Guard()
    async with lone_node(tmp_path, ALONE, policy=guard) as node, connect_pravega(node) as raw:
        with guard.shut():
            for request, operation in asked:
                await raw.ask(request, pravega.ErrorMessage)
                assert guard.refused[-1][0] is operation, request
        for request, _ in asked[1:2] + asked[9:10]:
            await raw.ask(request, pravega.NoSuchSegment)


async def test_segment_requests(tmp_path) -> None:
    guard = Guard()
    async with (
        lone_node(tmp_path, ALONE, policy=guard) as node,
        connect_segments(node.addresses["segment"]) as raw,
    ):
        for made in (False, True):
            with guard.shut():
                for request, operation in SEGMENT_REQUESTS:
                    refused = await raw.ask(request, segment.ErrorMessage)
                    assert refused.error_code == ReplyCode.UNSPECIFIED
                    assert guard.refused[-1] == (operation, SEGMENT)
            if not made:
                info = await raw.ask(SEGMENT_REQUESTS[3][0], segment.StreamSegmentInfo)
                assert not info.exists
                await raw.create("sc/st/0")
        info = await raw.ask(SEGMENT_REQUESTS[3][0], segment.StreamSegmentInfo)
        assert info.exists
        assert not info.is_sealed
