"""The Kafka listener on a lone node: versions old and new, order, waiting, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from paceline.client import connect
from paceline.errors import ErrorCode
from paceline.types import Compression
from paceline.wire.batch import build_batch, iter_batches
from paceline.wire.kafka import cluster, groups, offsets, records, topics, transactions
from paceline.wire.kafka.message_set import read_message_set, write_message_set
from paceline.wire.records import Record, decode_records
from tests.integration.node.kafka_client import HANG_S, KafkaClient, coordinated
from tests.integration.node.nodes import RunningNode, V1Client, lone_node

pytestmark = pytest.mark.virtual_time

ONE = {
    "topics.partitions": "1",
    "topics.replication_factor": "1",
    "topics.min_insync_replicas": "1",
    "groups.initial_delay_ms": "0",
}
NOW = 1_700_000_000_000
TOPIC = "orders"


@asynccontextmanager
async def node_and_client(directory: Path) -> AsyncIterator[tuple[RunningNode, KafkaClient]]:
    async with (
        lone_node(directory, ONE) as node,
        KafkaClient(node.addresses["kafka"]) as client,
    ):
        await make_topic(client)
        yield node, client


async def make_topic(client: KafkaClient, name: str = TOPIC, *, replicas: int = 1) -> None:
    wanted = topics.CreateTopicsRequestTopic(
        name=name, num_partitions=1, replication_factor=replicas
    )
    [made] = (await client.ask(topics.CreateTopicsRequest(topics=(wanted,)), 5)).topics
    assert made.error_code == 0, made.error_message
    asked = records.ListOffsetsRequestTopicPartition(partition_index=0, timestamp=-1)
    topic = records.ListOffsetsRequestTopic(name=name, partitions=(asked,))
    with trio.fail_after(HANG_S):
        while True:  # as clients do: until it leads
            answer = await client.ask(records.ListOffsetsRequest(topics=(topic,)), 5)
            if answer.topics[0].partitions[0].error_code == 0:
                return
            await trio.sleep(0.01)


def produce(data: bytes | bytearray, acks: int = -1, topic: str = TOPIC) -> records.ProduceRequest:
    part = records.ProduceRequestTopicPartition(index=0, records=bytes(data))
    return records.ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=(records.ProduceRequestTopic(name=topic, partition_data=(part,)),),
    )


def one(response: records.ProduceResponse) -> records.ProduceResponseEntryPartition:
    [entry] = response.responses
    [part] = entry.partition_responses
    return part


def fetch(offset: int, *, wait_ms: int = 0, **more: Any) -> records.FetchRequest:
    part = records.FetchRequestTopicPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
    )
    return records.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        topics=(records.FetchRequestTopic(topic=TOPIC, partitions=(part,)),),
        **more,
    )


def fetched(response: records.FetchResponse) -> records.FetchResponseEntryPartition:
    assert response.error_code == 0
    [entry] = response.responses
    [part] = entry.partitions
    return part


def records_in(data: Any, version: int) -> list[Record]:
    if version < 4:
        return read_message_set(memoryview(data))
    return [each for at, _ in iter_batches(data) for each in decode_records(data, at)]


def data_of(version: int, count: int = 3) -> bytes:
    made = [Record(i, NOW + i, b"k%d" % i, b"v%d" % i) for i in range(count)]
    if version < 3:
        return write_message_set(made, magic=min(version, 1), max_bytes=1 << 20)
    return bytes(build_batch(made))


async def test_every_version_of_produce_is_read_by_every_version_of_fetch(tmp_path) -> None:
    async with node_and_client(tmp_path) as (_, client):
        for version in range(10):
            stored = one(await client.ask(produce(data_of(version)), version))
            assert (stored.error_code, stored.base_offset) == (0, 3 * version)
        for version in range(13):
            part = fetched(await client.ask(fetch(0), version))
            read = records_in(part.records, version)
            assert [each.key for each in read] == [b"k0", b"k1", b"k2"] * 10
            assert part.high_watermark == 30
            if version >= 4:
                assert [each.offset for each in read] == list(range(30))


async def test_old_readers_begin_in_the_middle_of_a_batch_and_get_whole_messages(tmp_path) -> None:
    async with node_and_client(tmp_path) as (_, client):
        await client.ask(
            produce(
                build_batch(
                    [Record(-1, NOW, None, b"x" * 100) for _ in range(50)],
                    compression=Compression.GZIP,
                )
            ),
            9,
        )
        part = records.FetchRequestTopicPartition(
            partition=0, fetch_offset=20, partition_max_bytes=1000
        )
        request = records.FetchRequest(
            min_bytes=1, topics=(records.FetchRequestTopic(topic=TOPIC, partitions=(part,)),)
        )
        got = fetched(await client.ask(request, 2)).records
        assert len(got) <= 1000
        assert int.from_bytes(got[:8], "big") == 20
        assert len(read_message_set(memoryview(got))) == 7


async def test_answers_come_in_order_and_acks_0_gets_none(tmp_path) -> None:
    async with node_and_client(tmp_path) as (_, client):
        sent = [await client.send(produce(data_of(9)), 9) for _ in range(20)]
        await client.send(produce(data_of(9), acks=0), 9)
        sent.append(await client.send(fetch(0, wait_ms=10_000), 12))
        answers = [await client.read(*each) for each in sent]
        assert [one(each).base_offset for each in answers[:-1]] == list(range(0, 60, 3))
        assert records_in(fetched(answers[-1]).records, 12)


async def test_a_fetch_waits_for_records_and_ends_with_its_client(tmp_path) -> None:
    async with node_and_client(tmp_path) as (node, client):
        waiting = await client.send(fetch(0, wait_ms=30_000), 12)
        async with KafkaClient(node.addresses["kafka"]) as gone:
            await gone.send(fetch(0, wait_ms=30_000), 12)
        async with KafkaClient(node.addresses["kafka"]) as other:
            await other.ask(produce(data_of(9)), 9)
        part = fetched(await client.read(*waiting))
        assert len(records_in(part.records, 12)) == 3


async def test_offsets_by_time_in_every_version(tmp_path) -> None:
    async with node_and_client(tmp_path) as (_, client):
        await client.ask(produce(data_of(9)), 9)
        for version in range(8):
            found = {}
            for time in (-1, -2, NOW + 1, NOW + 5):
                asked = records.ListOffsetsRequestTopicPartition(
                    partition_index=0, timestamp=time, max_num_offsets=5
                )
                topic = records.ListOffsetsRequestTopic(name=TOPIC, partitions=(asked,))
                request = records.ListOffsetsRequest(replica_id=-1, topics=(topic,))
                [answered] = (await client.ask(request, version)).topics
                [part] = answered.partitions
                assert part.error_code == 0
                found[time] = part.old_style_offsets if version == 0 else part.offset
            if version == 0:
                assert found == {-1: (3,), -2: (0,), NOW + 1: (0,), NOW + 5: ()}
            else:
                assert found == {-1: 3, -2: 0, NOW + 1: 1, NOW + 5: -1}


async def test_the_largest_timestamp_and_what_is_no_time_at_all(tmp_path) -> None:
    async with node_and_client(tmp_path) as (_, client):

        async def look_for(time: int, version: int = 7) -> tuple[int, int, int]:
            asked = records.ListOffsetsRequestTopicPartition(partition_index=0, timestamp=time)
            topic = records.ListOffsetsRequestTopic(name=TOPIC, partitions=(asked,))
            answer = await client.ask(records.ListOffsetsRequest(topics=(topic,)), version)
            part = answer.topics[0].partitions[0]
            return part.error_code, part.offset, part.timestamp

        assert await look_for(-3) == (0, -1, -1)
        for times in ((5, 9, 7), (8, 9, 1), (2, 3, 4)):
            made = [Record(-1, NOW + time, None, b"v") for time in times]
            await client.ask(produce(build_batch(made)), 9)
        assert await look_for(-3) == (0, 1, NOW + 9)
        for time, version in ((-3, 6), (-4, 7), (-101, 7)):
            assert (await look_for(time, version))[:2] == (ErrorCode.INVALID_REQUEST, -1)


async def test_other_protocols_read_it_and_are_read(tmp_path) -> None:
    async with node_and_client(tmp_path) as (node, client):
        await client.ask(produce(data_of(9, 1)), 9)
        answer = await V1Client.ask_once(node.v1, b"V1|1|PRODUCE|orders user:hello\n")
        assert "offset=1" in answer
        read = records_in(fetched(await client.ask(fetch(0), 12)).records, 12)
        assert [(each.key, each.value) for each in read] == [(b"k0", b"v0"), (b"user", b"hello")]
        answer = await V1Client.ask_once(node.v1, b"V1|1|CONSUME|orders 0 0\n")
        assert "v0" in answer


# --- metadata, administration ---------------------------------------------------------------------


async def test_metadata_in_every_version(tmp_path) -> None:
    async with node_and_client(tmp_path) as (node, client):
        for version in range(13):
            wanted = (cluster.MetadataRequestTopic(name=TOPIC),)
            found = await client.ask(cluster.MetadataRequest(topics=wanted), version)
            [broker] = found.brokers
            assert (broker.host, broker.port) == node.addresses["kafka"]
            [topic] = found.topics
            [part] = topic.partitions
            assert (topic.error_code, topic.name, part.leader_id) == (0, TOPIC, broker.node_id)
        everything = await client.ask(cluster.MetadataRequest(topics=None), 12)
        assert {TOPIC, "__groups"} <= {topic.name for topic in everything.topics}
        assert (await client.ask(cluster.MetadataRequest(topics=()), 12)).topics == ()
        assert len((await client.ask(cluster.MetadataRequest(topics=()), 0)).topics) > 1


async def test_topics_are_made_on_first_use_where_that_is_wanted(tmp_path) -> None:
    async with node_and_client(tmp_path) as (_, client):

        async def look_for(name: str, *, create: bool) -> int:
            wanted = (cluster.MetadataRequestTopic(name=name),)
            request = cluster.MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
            [topic] = (await client.ask(request, 12)).topics
            return int(topic.error_code)

        assert await look_for("fresh", create=False) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await look_for("fresh", create=True) == 0
        assert await look_for("fresh", create=False) == 0
        assert await look_for("no good", create=True) == ErrorCode.INVALID_TOPIC
        assert await look_for("__mine", create=True) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_topics_are_configured_grown_and_deleted(tmp_path) -> None:
    async with node_and_client(tmp_path) as (_, client):
        change = topics.IncrementalAlterConfigsRequestResourceConfig(
            name="retention.ms", config_operation=0, value="1000"
        )
        resource = topics.IncrementalAlterConfigsRequestResource(
            resource_type=2, resource_name=TOPIC, configs=(change,)
        )
        request = topics.IncrementalAlterConfigsRequest(resources=(resource,))
        [altered] = (await client.ask(request, 1)).responses
        assert altered.error_code == 0
        asked = topics.DescribeConfigsRequestResource(
            resource_type=2, resource_name=TOPIC, configuration_keys=("retention.ms", "no.such")
        )
        [told] = (await client.ask(topics.DescribeConfigsRequest(resources=(asked,)), 4)).results
        assert [(each.name, each.value, each.config_source) for each in told.configs] == [
            ("retention.ms", "1000", 1)
        ]
        more = topics.CreatePartitionsRequestTopic(name=TOPIC, count=3)
        [grown] = (await client.ask(topics.CreatePartitionsRequest(topics=(more,)), 3)).results
        assert grown.error_code == 0
        for error in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            request = topics.DeleteTopicsRequest(topic_names=(TOPIC,), timeout_ms=5000)
            [deleted] = (await client.ask(request, 5)).responses
            assert deleted.error_code == error


async def test_what_a_node_sets_for_its_topics_is_told(tmp_path) -> None:
    """It was told what the default would be, whatever the node's settings said."""
    async with (
        lone_node(tmp_path, {**ONE, "log.retention_ms": "3600000"}) as node,
        KafkaClient(node.addresses["kafka"]) as client,
    ):
        await make_topic(client)
        asked = topics.DescribeConfigsRequestResource(
            resource_type=2,
            resource_name=TOPIC,
            configuration_keys=("retention.ms", "segment.ms", "min.insync.replicas"),
        )
        [told] = (await client.ask(topics.DescribeConfigsRequest(resources=(asked,)), 4)).results
        assert [(each.name, each.value, each.config_source) for each in told.configs] == [
            ("min.insync.replicas", "1", 1),
            ("retention.ms", "3600000", 4),
            ("segment.ms", "604800000", 5),
        ]


async def test_topics_that_cannot_be_made(tmp_path) -> None:
    async with node_and_client(tmp_path) as (_, client):
        bad = topics.CreateTopicsRequestTopicConfig(name="no.such", value="1")
        for name, configs, error in (
            (TOPIC, (), ErrorCode.TOPIC_ALREADY_EXISTS),
            ("no good", (), ErrorCode.INVALID_TOPIC),
            ("__mine", (), ErrorCode.POLICY_VIOLATION),
            ("fresh", (bad,), ErrorCode.INVALID_CONFIG),
        ):
            for validate_only in (True, False):
                wanted = topics.CreateTopicsRequestTopic(
                    name=name, num_partitions=1, replication_factor=1, configs=configs
                )
                request = topics.CreateTopicsRequest(topics=(wanted,), validate_only=validate_only)
                [made] = (await client.ask(request, 7)).topics
                assert made.error_code == error, (name, made.error_message)


async def test_producer_ids_differ(tmp_path) -> None:
    async with node_and_client(tmp_path) as (_, client):
        ids = set()
        for version in range(5):
            made = await client.ask(transactions.InitProducerIdRequest(), version)
            assert (made.error_code, made.producer_epoch) == (0, 0)
            ids.add(made.producer_id)
        assert len(ids) == 5


# --- groups ---------------------------------------------------------------------------------------


@pytest.mark.virtual_time(False)  # it is told its address
async def test_a_group_from_joining_to_leaving(tmp_path) -> None:
    async with node_and_client(tmp_path) as (node, client):
        await coordinated(node.addresses["kafka"], "g")
        for version in range(5):
            asked = cluster.FindCoordinatorRequest(key="g", coordinator_keys=("g",))
            found = await client.ask(asked, version)
            answer = found if version < 4 else found.coordinators[0]
            assert (answer.host, answer.port) == node.addresses["kafka"]
        join = groups.JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(groups.JoinGroupRequestProtocol(name="range", metadata=b"me"),),
        )
        first = await client.ask(join, 7)
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        member = first.member_id
        joined = await client.ask(_with_member(join, member), 7)
        assert (joined.error_code, joined.leader, joined.protocol_name) == (0, member, "range")
        given = groups.SyncGroupRequestAssignment(member_id=member, assignment=b"all of it")
        sync = groups.SyncGroupRequest(
            group_id="g", generation_id=joined.generation_id, member_id=member, assignments=(given,)
        )
        for version in range(6):
            synced = await client.ask(sync, version)
            assert (synced.error_code, bytes(synced.assignment)) == (0, b"all of it")
        for version in range(5):
            beat = groups.HeartbeatRequest(
                group_id="g", generation_id=joined.generation_id, member_id=member
            )
            assert (await client.ask(beat, version)).error_code == 0
        await _commit_and_fetch(client, joined.generation_id, member)
        [told] = (await client.ask(groups.DescribeGroupsRequest(groups=("g",)), 5)).groups
        assert (told.group_state, len(told.members)) == ("Stable", 1)
        assert bytes(told.members[0].member_assignment) == b"all of it"
        assert (told.members[0].client_id, told.members[0].client_host) == ("c1", "/127.0.0.1")
        async with connect("{}:{}".format(*node.addresses["native"])) as native:
            [seen] = (await native.admin.groups.describe("g")).members
        assert (seen.client_id, seen.host) == ("c1", "127.0.0.1")
        leave = groups.LeaveGroupRequest(group_id="g", member_id=member)
        assert (await client.ask(leave, 2)).error_code == 0
        [listed] = (await client.ask(groups.ListGroupsRequest(), 4)).groups
        assert (listed.group_id, listed.group_state) == ("g", "Empty")
        [deleted] = (await client.ask(groups.DeleteGroupsRequest(groups_names=("g",)), 2)).results
        assert deleted.error_code == 0


def _with_member(join: groups.JoinGroupRequest, member: str) -> groups.JoinGroupRequest:
    return groups.JoinGroupRequest(
        group_id=join.group_id,
        session_timeout_ms=join.session_timeout_ms,
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        member_id=member,
        protocol_type=join.protocol_type,
        protocols=join.protocols,
    )


async def _commit_and_fetch(client: KafkaClient, generation: int, member: str) -> None:
    for version in range(1, 9):
        part = offsets.OffsetCommitRequestTopicPartition(
            partition_index=0, committed_offset=version, committed_metadata="m"
        )
        topic = offsets.OffsetCommitRequestTopic(name=TOPIC, partitions=(part,))
        commit = offsets.OffsetCommitRequest(
            group_id="g", generation_id=generation, member_id=member, topics=(topic,)
        )
        [answered] = (await client.ask(commit, version)).topics
        assert answered.partitions[0].error_code == 0
    for version in range(9):
        wanted = offsets.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=(0,))
        inner = offsets.OffsetFetchRequestGroupTopic(name=TOPIC, partition_indexes=(0,))
        group = offsets.OffsetFetchRequestGroup(group_id="g", topics=(inner,))
        request = offsets.OffsetFetchRequest(group_id="g", topics=(wanted,), groups=(group,))
        answer = await client.ask(request, version)
        [found] = answer.topics if version < 8 else answer.groups[0].topics
        assert found.partitions[0].committed_offset == 8
        assert found.partitions[0].metadata == "m"


async def test_commits_of_strangers_are_refused(tmp_path) -> None:
    async with node_and_client(tmp_path) as (node, client):
        await coordinated(node.addresses["kafka"], "g")
        part = offsets.OffsetCommitRequestTopicPartition(partition_index=0, committed_offset=1)
        topic = offsets.OffsetCommitRequestTopic(name=TOPIC, partitions=(part,))
        commit = offsets.OffsetCommitRequest(
            group_id="g", generation_id=1, member_id="nobody", topics=(topic,)
        )
        [answered] = (await client.ask(commit, 8)).topics
        assert answered.partitions[0].error_code == ErrorCode.ILLEGAL_GENERATION
