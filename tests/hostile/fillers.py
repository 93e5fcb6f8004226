"""Whatever may be made in any number: what each protocol says to make one more of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID, uuid4

import trio

from paceline.errors import PacelineError
from paceline.types import Acks
from paceline.wire.batch import build_batch
from paceline.wire.kafka import groups, offsets, records, topics, transactions
from paceline.wire.native import admin
from paceline.wire.native.api import NativeApi
from paceline.wire.native.transactions import AttemptBegun, BeginAttempt
from paceline.wire.pravega import controller
from paceline.wire.pravega.protobuf import ProtoMessage
from paceline.wire.records import Record
from paceline.wire.segment import messages as seed
from paceline.wire.segment import pravega_messages as pravega
from paceline.wire.segment.fields import TableKey
from paceline_node.settings import counts
from paceline_node.settings.counts import Count
from tests.integration.node.cursus_client import CursusClient, batch, numbered
from tests.integration.node.kafka_client import KafkaClient
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import RunningNode, V1Client
from tests.integration.node.v1_client import fields
from tests.integration.segment import client as segments
from tests.integration.segment.controller_client import CallRefused, ControllerClient
from tests.integration.segment.test_pravega import connected

TOPIC = "orders"
TABLE = "sc/rg_kvtable/0.#epoch.0"
Maker = Callable[[RunningNode, int], Awaitable[str]]
"""Makes the thing of that number; empty, or how it was refused."""


def _v1(line: str) -> Maker:
    async def make(node: RunningNode, number: int) -> str:
        async with V1Client(node.v1) as client:
            command, _, args = line.format(number).partition(" ")
            answer = await client.call(command, args)
            return "" if answer.startswith("OK") else answer

    return make


def _cursus(line: str) -> Maker:
    async def make(node: RunningNode, number: int) -> str:
        async with CursusClient(node.addresses["cursus"]) as client:
            answer = await client.say(line.format(number))
            return "" if answer.startswith("OK") else answer

    return make


def _native(call: Callable[[NativeConnection, int], Awaitable[object]]) -> Maker:
    async def make(node: RunningNode, number: int) -> str:
        async with NativeConnection(node.addresses["native"]) as client:
            try:
                code = await call(client, number)
            except PacelineError as error:
                return type(error).__name__
            return str(code) if isinstance(code, int) and code else ""

    return make


def _kafka(ask: Callable[[KafkaClient, int], Awaitable[int]]) -> Maker:
    async def make(node: RunningNode, number: int) -> str:
        async with KafkaClient(node.addresses["kafka"]) as client:
            code = await ask(client, number)
            return f"code {code}" if code else ""

    return make


# --- topics and segments --------------------------------------------------------------------------


async def _native_topic(client: NativeConnection, number: int) -> object:
    wanted = admin.CreateTopic(f"native{number}", 3, 1)
    return await client.call(NativeApi.CREATE_TOPIC, wanted, admin.TopicCreated)


async def _kafka_topic(client: KafkaClient, number: int) -> int:
    wanted = topics.CreateTopicsRequestTopic(
        name=f"kafka{number}", num_partitions=3, replication_factor=1
    )
    [made] = (await client.ask(topics.CreateTopicsRequest(topics=(wanted,)), 5)).topics
    return int(made.error_code)


async def _segment(node: RunningNode, number: int) -> str:
    async with segments.connect(node.addresses["segment"]) as raw:
        await raw.send(seed.CreateSegment(f"sc/st/{number}"))
        reply = await raw.reply()
        return "" if isinstance(reply, seed.SegmentCreated) else str(reply)


# --- groups and transactions ----------------------------------------------------------------------


async def _kafka_commit(client: KafkaClient, number: int) -> int:
    part = offsets.OffsetCommitRequestTopicPartition(partition_index=0, committed_offset=0)
    topic = offsets.OffsetCommitRequestTopic(name=TOPIC, partitions=(part,))
    commit = offsets.OffsetCommitRequest(group_id=f"kafka{number}", topics=(topic,))
    [answered] = (await client.ask(commit, 8)).topics
    return int(answered.partitions[0].error_code)


async def _v1_offset(node: RunningNode, number: int) -> str:
    """Of a group of its own."""
    async with V1Client(node.v1) as client:
        joined = fields(await client.call("JOIN", f"v1-{number} {TOPIC} c"))
        generation = joined.get("generation", "0")
        answer = await client.call("COMMIT", f"v1-{number} {TOPIC} c {generation} 0 0")
        return "" if answer.startswith("OK") else answer


async def _cursus_offset(node: RunningNode, number: int) -> str:
    async with CursusClient(node.addresses["cursus"]) as client:
        where = f"topic={TOPIC} group=offset{number}"
        joined = await client.say(f"JOIN_GROUP {where} member=a")
        if not joined.startswith("OK"):
            return joined
        told = dict(word.partition("=")[::2] for word in joined.split()[1:])
        who = f"member={told['member']} generation={told['generation']}"
        answer = await client.say(f"COMMIT_OFFSET {where} partition=0 offset=0 {who}")
        return "" if answer.startswith("OK") else answer


async def _kafka_join(client: KafkaClient, number: int) -> int:
    join = groups.JoinGroupRequest(
        group_id="team",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(groups.JoinGroupRequestProtocol(name="range", metadata=b"%d" % number),),
    )
    with trio.move_on_after(0.5):
        return int((await client.ask(join, 3)).error_code)
    return 0  # a member, which waits for the others


async def _kafka_id(client: KafkaClient, number: int) -> int:
    wanted = transactions.InitProducerIdRequest(
        transactional_id=f"kafka{number}", transaction_timeout_ms=60_000
    )
    return int((await client.ask(wanted, 4)).error_code)


async def _native_sink(client: NativeConnection, number: int) -> object:
    asked = BeginAttempt(f"sink{number}", "q", "r", 0, 0, 0, 60_000)
    return await client.call(NativeApi.BEGIN_ATTEMPT, asked, AttemptBegun)


async def _native_list(client: NativeConnection, number: int) -> object:
    listed = admin.AlterGroup(f"listed{number}", (TOPIC,))
    return await client.call(NativeApi.ALTER_GROUP, listed, admin.Done)


# --- producers ------------------------------------------------------------------------------------


def _batch_of(producer: int) -> bytes:
    record = Record(value=b"v", timestamp_ms=1)
    return bytes(build_batch([record], producer_id=producer, producer_epoch=0, base_sequence=0))


async def _native_producer(client: NativeConnection, number: int) -> object:
    told = await client.produce(TOPIC, 0, _batch_of(1_000_000 + number), acks=Acks.ALL)
    return int(told.error)


async def _kafka_producer(client: KafkaClient, number: int) -> int:
    part = records.ProduceRequestTopicPartition(index=0, records=_batch_of(2_000_000 + number))
    topic = records.ProduceRequestTopic(name=TOPIC, partition_data=(part,))
    request = records.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=(topic,))
    [entry] = (await client.ask(request, 9)).responses
    return int(entry.partition_responses[0].error_code)


async def _cursus_producer(node: RunningNode, number: int) -> str:
    async with CursusClient(node.addresses["cursus"]) as client:
        sent = batch("numbered", numbered(1, 1, producer=f"p{number}"), idempotent=True)
        told = await client.produce(sent)
        return "" if told["status"] == "OK" else str(told)


# --- tables, appenders ----------------------------------------------------------------------------


async def _ask_segment_store(node: RunningNode, request: pravega.SegmentMessage, made: type) -> str:
    async with connected(node) as raw:
        await raw.send(request)
        reply = await raw.reply()
        return "" if isinstance(reply, made) else f"answered {reply}"


async def _table(node: RunningNode, number: int) -> str:
    name = f"sc{number}/rg_kvtable/0.#epoch.0"
    return await _ask_segment_store(
        node, pravega.CreateTableSegment(1, name, ""), pravega.SegmentCreated
    )


async def _table_key(node: RunningNode, number: int) -> str:
    await _ask_segment_store(node, pravega.CreateTableSegment(1, TABLE, ""), pravega.SegmentCreated)
    entries = ((TableKey(b"k%d" % number, pravega.NOT_THERE), b"v"),)
    update = pravega.UpdateTableEntries(2, TABLE, "", entries, pravega.ANY_POSITION)
    return await _ask_segment_store(node, update, pravega.TableEntriesUpdated)


async def _ask_controller(node: RunningNode, call: str, request: ProtoMessage) -> str:
    async with ControllerClient(node.addresses["pravega"]) as client:
        try:
            told = await client.call(call, request, controller.Status)
        except CallRefused as error:
            return str(error)
        return f"status {told.status}" if told.status else ""


async def make_scope(node: RunningNode, number: int) -> str:
    """As a Maker. A scope is a key of the register of streams."""
    return await _ask_controller(node, "createScope", controller.ScopeInfo(f"scope{number}"))


async def _stream(node: RunningNode, number: int) -> str:
    await _ask_controller(node, "createScope", controller.ScopeInfo("scope"))
    name = controller.StreamInfo("scope", f"stream{number}")
    one = controller.ScalingPolicy(0, 0, 0, 1)
    return await _ask_controller(node, "createStream", controller.StreamConfig(name, one))


async def _seed_appenders(node: RunningNode, number: int) -> str:
    """So many appenders on one connection."""
    async with segments.connect(node.addresses["segment"]) as raw:
        await raw.send(seed.CreateSegment("sc/st/0"))
        await raw.reply()
        for writer in _writers(number):
            await raw.send(seed.SetupAppend(writer, "sc/st/0"))
            reply = await raw.reply()
            if not isinstance(reply, seed.AppendSetup):
                return f"answered {reply}"
    return ""


async def _pravega_appenders(node: RunningNode, number: int) -> str:
    async with connected(node) as raw:
        await raw.send(pravega.CreateSegment(1, "sc/st/1.#epoch.0", 0, 0, ""))
        await raw.reply()
        for writer in _writers(number):
            await raw.send(pravega.SetupAppend(2, writer, "sc/st/1.#epoch.0", ""))
            reply = await raw.reply()
            if not isinstance(reply, pravega.AppendSetup):
                return f"answered {reply}"
    return ""


def _writers(number: int) -> list[UUID]:
    return [uuid4() for _ in range(number + 1)]


MAKERS: Mapping[Count, Mapping[str, Maker]] = {
    counts.PARTITIONS: {
        "v1": _v1("ADMIN_CREATE_TOPIC v1-{0} 3 1"),
        "native": _native(_native_topic),
        "kafka": _kafka(_kafka_topic),
        "cursus": _cursus("CREATE topic=cursus{0} partitions=3"),
        "segment": _segment,
    },
    counts.GROUPS: {
        "v1": _v1(f"JOIN g{{0}} {TOPIC} c"),
        "kafka": _kafka(_kafka_commit),
        "cursus": _cursus(f"JOIN_GROUP topic={TOPIC} group=g{{0}} member=a"),
    },
    counts.MEMBERS: {
        "v1": _v1(f"JOIN team {TOPIC} c{{0}}"),
        "kafka": _kafka(_kafka_join),
        "cursus": _cursus(f"JOIN_GROUP topic={TOPIC} group=team member=m{{0}}"),
    },
    counts.OFFSETS: {"kafka": _kafka(_kafka_commit), "cursus": _cursus_offset, "v1": _v1_offset},
    counts.LISTED_GROUPS: {"native": _native(_native_list)},
    counts.IDS: {
        "kafka": _kafka(_kafka_id),
        "cursus": _cursus("INIT_PRODUCER_ID transactional_id=x{0}"),
        "native": _native(_native_sink),
    },
    counts.PARTITION_PRODUCERS: {
        "native": _native(_native_producer),
        "kafka": _kafka(_kafka_producer),
        "cursus": _cursus_producer,
    },
    counts.CLIENT_PRODUCERS: {
        "native": _native(_native_producer),
        "kafka": _kafka(_kafka_producer),
        "cursus": _cursus_producer,
    },
    counts.EVENT_STREAMS: {
        "cursus": _cursus("APPEND_STREAM topic=events key=k{0} version=1 message=m")
    },
    counts.EXTERNAL_BROKERS: {"v1": _v1("ADMIN_REGISTER_BROKER 10{0} elsewhere.example 1")},
    counts.TABLES: {"segment": _table},
    counts.TABLE_KEYS: {
        "segment": _table_key,
        "pravega": _stream,
        "pravega, scopes": make_scope,
    },
    counts.APPENDERS: {"segment": _seed_appenders, "segment, pravega": _pravega_appenders},
}
"""Rows of the table of counts that one node shows, and who can fill them."""
