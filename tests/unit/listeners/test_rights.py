"""What was once open to those who may do less: each is refused to whoever lacks the one right that
it takes, and asks for no more than it takes."""

from __future__ import annotations

from uuid import UUID

import pytest
import trio

from paceline.errors import ErrorCode
from paceline.types import NodeId
from paceline.wire.cursus.commands import COMMANDS
from paceline.wire.kafka import offsets
from paceline.wire.kafka import topics as kafka
from paceline.wire.native import admin, data, groups, transactions
from paceline.wire.native.api import NativeApi
from paceline.wire.segment import messages as segment
from paceline.wire.segment import pravega_messages as pravega
from paceline.wire.segment.client import closed_block
from paceline.wire.segment.events import frame_events
from paceline_node.security.principals import (
    CLUSTER,
    AllowAll,
    Operation,
    Principal,
    Resource,
    ResourceKind,
    refuse,
)
from tests.unit.listeners.lone import LoneNode, lone_node

ORDERS = Resource(ResourceKind.TOPIC, "orders")
SECRET = Resource(ResourceKind.TOPIC, "secret")
ADMINISTER = (Operation.ADMINISTER, CLUSTER)


class Without:
    """Allows everything but some rights."""

    def __init__(self) -> None:
        self.missing: set[tuple[Operation, Resource]] = set()
        self.asked: list[tuple[Operation, Resource]] = []
        self._allow = AllowAll()

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> None:
        self._allow.authorize(principal, operation, resource)
        self.asked.append((operation, resource))
        if (operation, resource) in self.missing:
            refuse(principal, operation, resource)


@pytest.fixture
def policy() -> Without:
    return Without()


@pytest.fixture
async def node(tmp_path, autojump_clock, policy):
    async with lone_node(tmp_path, policy=policy) as node:
        v1 = await node.v1()
        for topic in ("orders", "secret"):
            answer = await v1.say("PRODUCE", f"{topic} k:v acks=1")
            assert answer.startswith("OK"), answer
        answer = await (await node.cursus()).say("CREATE topic=pushed partitions=1")
        assert answer.startswith("OK"), answer
        yield node


async def test_an_unclean_election_takes_administering(node: LoneNode, policy: Without) -> None:
    native = await node.native()
    policy.missing = {ADMINISTER}
    clean = admin.ElectLeader("orders", 0, NodeId(0))
    unclean = admin.ElectLeader("orders", 0, NodeId(0), unclean=True)
    assert await native.code(NativeApi.ELECT_LEADER, clean) == ErrorCode.ELECTION_NOT_NEEDED
    assert await native.code(NativeApi.ELECT_LEADER, unclean) == ErrorCode.AUTHORIZATION_FAILED
    policy.missing = {(Operation.MOVE_LEADER, ORDERS)}
    assert await native.code(NativeApi.ELECT_LEADER, clean) == ErrorCode.AUTHORIZATION_FAILED
    assert await native.code(NativeApi.ELECT_LEADER, unclean) != ErrorCode.AUTHORIZATION_FAILED


async def test_a_topics_own_rules_take_administering(node: LoneNode, policy: Without) -> None:
    native, cursus = await node.native(), await node.cursus()
    policy.missing = {ADMINISTER}
    opened = admin.AlterTopic("orders", {"access.policy": "open"})
    kept = admin.AlterTopic("orders", {"retention.ms": "1000000"})
    assert await native.code(NativeApi.ALTER_TOPIC, opened) == ErrorCode.AUTHORIZATION_FAILED
    assert await native.code(NativeApi.ALTER_TOPIC, kept) == 0
    policy.missing = set()
    shut = "CREATE topic=shut partitions=1 auth_policy=acl read_acl=ann"
    assert (await cursus.say(shut)).startswith("OK")
    policy.missing = {ADMINISTER}
    told = await cursus.say("CREATE topic=shut partitions=1 auth_policy=open")
    assert "NOT_AUTHORIZED" in told, told
    assert (await cursus.say(shut)).startswith("OK"), "what is so already is no change"


@pytest.mark.parametrize("key", ["retention.ms", "access.policy"])
async def test_only_looking_whether_settings_could_be_changed(
    node: LoneNode, policy: Without, key: str
) -> None:
    policy.missing = {(Operation.ALTER_CONFIGS, ORDERS)}
    change = kafka.IncrementalAlterConfigsRequestResourceConfig(
        name=key, config_operation=0, value="nonsense"
    )
    resource = kafka.IncrementalAlterConfigsRequestResource(
        resource_type=2, resource_name="orders", configs=(change,)
    )
    asked = kafka.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=True)
    [told] = (await (await node.kafka()).ask(asked, 1)).responses
    assert told.error_code == 29
    policy.missing = set()
    [told] = (await (await node.kafka()).ask(asked, 1)).responses
    assert told.error_code == ErrorCode.INVALID_CONFIG


async def test_whoever_lists_topics_for_a_group_must_know_them(
    node: LoneNode, policy: Without
) -> None:
    native = await node.native()
    policy.missing = {(Operation.DESCRIBE, SECRET)}
    listed = admin.AlterGroup("team", ("orders", "secret"))
    assert await native.code(NativeApi.ALTER_GROUP, listed) == ErrorCode.AUTHORIZATION_FAILED
    assert await native.code(NativeApi.ALTER_GROUP, admin.AlterGroup("team", ("orders",))) == 0


async def test_v1_brokers_outside_read_as_others_do(node: LoneNode, policy: Without) -> None:
    v1 = await node.v1()
    policy.missing = {(Operation.CONSUME, SECRET), (Operation.REPLICATE, CLUSTER)}
    told = await v1.say("BROKER_FETCH", "secret 0 1 0")
    assert "NOT_AUTHORIZED|anonymous may not consume topic secret" in told
    assert "NOT_AUTHORIZED" not in await v1.say("BROKER_FETCH", "orders 0 1 0")


async def test_members_of_v1_must_be_allowed_to_read(node: LoneNode, policy: Without) -> None:
    v1 = await node.v1()
    assert (await v1.say("JOIN", "team secret c")).startswith("OK")
    policy.missing = {(Operation.CONSUME, SECRET)}
    for command, args in (
        ("JOIN", "team secret d"),
        ("SYNC", "team secret c 1"),
        ("HEARTBEAT", "team secret c 1"),
        ("COMMIT", "team secret c 1 0 1"),
    ):
        told = await v1.say(command, args)
        assert "NOT_AUTHORIZED|anonymous may not consume topic secret" in told, command
    assert (await v1.say("OFFSET", "team secret 0")).startswith("OK")
    told = await v1.say("LEAVE", "team secret c 1")
    assert "NOT_AUTHORIZED" not in told, "who may not stay may go"
    policy.missing = {(Operation.DESCRIBE, SECRET)}
    assert "NOT_AUTHORIZED" in await v1.say("OFFSET", "team secret 0")


CURSUS_GROUPS = (
    "REGISTER_GROUP topic=secret group=team",
    "JOIN_GROUP topic=secret group=team member=c",
    "SYNC_GROUP topic=secret group=team member=c generation=1",
    "HEARTBEAT topic=secret group=team member=c generation=1",
    "COMMIT_OFFSET topic=secret partition=0 group=team offset=1 member=c generation=1",
    "COMMIT_OFFSET topic=sec* partition=0 group=team offset=1 member=c generation=1",
    "BATCH_COMMIT topic=secret group=team member=c generation=1 P0:1",
)


async def test_members_of_cursus_must_be_allowed_to_read(node: LoneNode, policy: Without) -> None:
    cursus = await node.cursus()
    assert "REGISTER_GROUP" in COMMANDS
    policy.missing = {(Operation.CONSUME, SECRET)}
    for line in CURSUS_GROUPS:
        told = await cursus.say(line)
        assert "NOT_AUTHORIZED_FOR" in told, (line, told)
        assert policy.asked[-1] == (Operation.CONSUME, SECRET), line
    policy.missing = {(Operation.DESCRIBE, SECRET)}
    for topic in ("secret", "sec*"):
        told = await cursus.say(f"FETCH_OFFSET topic={topic} partition=0 group=team")
        assert "NOT_AUTHORIZED_FOR" in told, told
    told = await cursus.say("FETCH_OFFSET topic=orders partition=0 group=team")
    assert "NOT_AUTHORIZED" not in told, told


async def test_how_far_a_group_is_in_a_topic_that_may_not_be_seen(
    node: LoneNode, policy: Without
) -> None:
    native, kafka_client = await node.native(), await node.kafka()
    both = tuple(groups.OffsetToCommit(name, 0, 1) for name in ("orders", "secret"))
    while code := await native.code(
        NativeApi.COMMIT_OFFSETS, groups.CommitOffsets("team", -1, "", both)
    ):
        assert code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR), code
        await trio.sleep(0.1)
    policy.missing = {(Operation.DESCRIBE, SECRET)}

    async def of_native(*topics: str) -> list[tuple[str, int, int]]:
        named = tuple(groups.TopicPartitions(name, (0,)) for name in topics) or None
        asked = groups.FetchOffsets("team", topics=named)
        told = await native.ask(NativeApi.FETCH_OFFSETS, asked, groups.OffsetsFetched)
        return [(each.topic, each.error, each.offset) for each in told.partitions]

    async def of_kafka(*topics: str) -> list[tuple[str, int, int]]:
        named = tuple(
            offsets.OffsetFetchRequestTopic(name=name, partition_indexes=(0,)) for name in topics
        )
        asked = offsets.OffsetFetchRequest(group_id="team", topics=named or None)
        told = (await kafka_client.ask(asked, 7)).topics
        return [
            (topic.name, each.error_code, each.committed_offset)
            for topic in told
            for each in topic.partitions
        ]

    for ask, refused in ((of_native, 31), (of_kafka, 29)):
        assert await ask() == [("orders", 0, 1)]
        assert await ask("orders", "secret") == [("orders", 0, 1), ("secret", refused, -1)]


async def test_lists_leave_out_what_may_not_be_seen(node: LoneNode, policy: Without) -> None:
    v1, cursus = await node.v1(), await node.cursus()
    for line in ("LIST", "CLUSTER_STATUS"):
        assert "secret" in await cursus.say(line)
    assert "secret" in await v1.say("ADMIN_GET_METADATA")
    policy.missing = {(Operation.DESCRIBE, SECRET)}
    for line in ("LIST", "CLUSTER_STATUS"):
        told = await cursus.say(line)
        assert "secret" not in told, line
        assert "orders" in told, line
    told = await v1.say("ADMIN_GET_METADATA")
    assert "secret" not in told
    assert "orders" in told


async def test_what_is_set_for_a_topic_takes_its_own_right(node: LoneNode, policy: Without) -> None:
    """Whoever might describe a topic saw it in every protocol but Kafka's: whom its rules name,
    too."""
    native, cursus = await node.native(), await node.cursus()
    made = "CREATE topic=ruled partitions=1 auth_policy=acl read_acl=ann partitioner=round_robin"
    policy.missing = {(Operation.DESCRIBE_CONFIGS, Resource(ResourceKind.TOPIC, "ruled"))}
    assert await cursus.say(made) == "OK topic=ruled partitions=1 partitioner=round_robin"

    async def told(*names: str) -> list[dict[str, str] | None]:
        found = await native.ask(
            NativeApi.METADATA, data.MetadataRequest(names or None), data.MetadataReply
        )
        return [each.configs for each in found.topics if each.name == "ruled"]

    described = data.DescribeTopic("ruled", (), settings=True)
    for names in ((), ("ruled",)):
        assert await told(*names) == [None]
    found = await native.ask(NativeApi.DESCRIBE_TOPIC, described, data.TopicDescription)
    assert (found.configs, found.settings, len(found.partitions)) == (None, (), 1)
    line = await cursus.say("METADATA topic=ruled")
    assert line.startswith("OK topic=ruled partitions=1 ")
    # How keys go to partitions is no secret to who may write there.
    assert line.endswith(" epochs=0 partitioner=round_robin")
    assert '"policy":{"partitioner":"round_robin"}' in await cursus.say("DESCRIBE topic=ruled")

    policy.missing = set()
    [configs] = await told("ruled")
    assert configs is not None
    assert configs["access.readers"] == "ann"
    found = await native.ask(NativeApi.DESCRIBE_TOPIC, described, data.TopicDescription)
    assert found.configs == configs
    assert found.settings
    assert "read_acl=ann" in await cursus.say("METADATA topic=ruled")
    assert '"auth_policy":"acl"' in await cursus.say("DESCRIBE topic=ruled")


async def test_an_attempt_of_a_sink_is_the_sinks(node: LoneNode, policy: Without) -> None:
    native = await node.native()
    sink = Resource(ResourceKind.TRANSACTION, "shop/sink")
    begun = transactions.BeginAttempt("shop/sink", "q", "r", 0, 0, 0, 60_000)
    while code := await native.code(NativeApi.BEGIN_ATTEMPT, begun):
        assert code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR), code
        await trio.sleep(0.1)
    listed = await native.ask(
        NativeApi.LIST_TRANSACTIONS,
        transactions.ListTransactions(),
        transactions.TransactionsListed,
    )
    [name] = [each.transactional_id for each in listed.transactions]
    assert name.startswith("shop/sink/0/")
    policy.missing = {(Operation.DESCRIBE, sink)}
    look = transactions.DescribeTransaction(name, "sink")
    assert await native.code(NativeApi.DESCRIBE_TRANSACTION, look) == 31
    listed = await native.ask(
        NativeApi.LIST_TRANSACTIONS,
        transactions.ListTransactions(),
        transactions.TransactionsListed,
    )
    assert listed.transactions == ()
    policy.missing = {(Operation.TRANSACT, sink)}
    end = transactions.AbortTransaction(name, "sink")
    assert await native.code(NativeApi.ABORT_TRANSACTION, end) == 31


async def test_tables_are_called_as_streams_are(node: LoneNode, policy: Without) -> None:
    client = await node.pravega()
    policy.asked.clear()
    await client.ask(pravega.CreateTableSegment(9, "sc/rg_kvtable/0.#epoch.0", ""))
    assert policy.asked[-1] == (Operation.CREATE, Resource(ResourceKind.TOPIC, "sc_rg_kvtable"))


# --- rights that end ------------------------------------------------------------------------------


async def test_a_stream_ends_with_the_right_to_read(node: LoneNode, policy: Without) -> None:
    cursus, v1 = await node.cursus(), await node.v1()
    first = await cursus.ask(b"STREAM topic=orders partition=0 offset=0")
    while b"v" not in first:  # what keeps the stream alive until the record is committed
        first = await cursus.next()
    policy.missing = {(Operation.CONSUME, ORDERS)}
    assert (await v1.say("PRODUCE", "orders k:later acks=1")).startswith("OK")
    frames = [await cursus.next()]
    while not frames[-1].startswith(b"STREAM_CONTROL"):
        frames.append(await cursus.next())
    assert b"later" not in b"".join(frames)
    assert b"CLOSE" in frames[-1]


async def test_an_appender_ends_with_the_right_to_write(node: LoneNode, policy: Without) -> None:
    client, writer = await node.segment(), UUID(int=1)
    assert isinstance(await client.ask(segment.CreateSegment("sc/st/0")), segment.SegmentCreated)
    await client.ask(segment.SetupAppend(writer, "sc/st/0"))

    size = len(frame_events([b"hello"]))
    told = await client.ask(closed_block(writer, 0, [b"hello"]))
    assert isinstance(told, segment.DataAppended)
    policy.missing = {(Operation.PRODUCE, Resource(ResourceKind.TOPIC, "sc_st"))}
    told = await client.ask(closed_block(writer, size, [b"hello"]))
    assert not isinstance(told, segment.DataAppended), told
