"""What no Kafka client should send: the protocol's own answer or a clean close, at bounded cost."""

from __future__ import annotations

import pytest
import trio

from paceline.errors import ErrorCode
from paceline.wire.kafka import apis, cluster, groups, records, topics
from paceline.wire.kafka.apis import API_VERSIONS, APIS, RequestHeader
from tests.integration.node.kafka_client import KafkaClient
from tests.integration.node.test_kafka import TOPIC, data_of, node_and_client, one, produce


async def test_unknown_versions_of_api_versions_are_answered(tmp_path) -> None:
    async with node_and_client(tmp_path) as (_, client):
        await client.stream.send_all(
            bytes.fromhex("0000000a 0012 0063 00000001 0000".replace(" ", ""))
        )
        assert await client.read_frame() == apis.version_unknown_response(1)[4:]
        told = await client.ask(cluster.ApiVersionsRequest(), 3)
        served = {each.api_key for each in told.api_keys}
        assert {0, 1, 3, 11, API_VERSIONS} <= served <= APIS.keys()


@pytest.mark.parametrize(
    "frame",
    [
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"\0\0\0\1\0",
        b"\0\0\0\2\0\0",
        b"\0\0\0\x0a\x27\x0f\0\0\0\0\0\1\xff\xff",
        b"\0\0\0\x0a\0\3\0\x63\0\0\0\1\xff\xff",
        b"\0\0\0\x0e\0\3\0\1\0\0\0\1\xff\xff\x7f\xff\xff\xff",
        b"\0\0\0\x0e\0\x1b\0\1\0\0\0\1\xff\xff\0\0\0\0",
        b"\0\x60\0\x0e\0\0\0\x09\0\0\0\1\xff\xff\0\0"
        + bytes(6)
        + b"\x81\x80\x80\x01"
        + b"\1\1\0" * 0x20_0000,
        b"\0\x50\0\0\0\3\0\x01\0\0\0\1\xff\xff\0\x20\0\0" + bytes(0x50_0000 - 14),
    ],
    ids=[
        "huge",
        "negative",
        "one byte",
        "no header",
        "api",
        "version",
        "count",
        "write markers",
        "empty topics",
        "large",
    ],
)
async def test_frames_that_close_the_connection_and_harm_nobody(tmp_path, frame: bytes) -> None:
    async with node_and_client(tmp_path) as (node, client):
        async with KafkaClient(node.addresses["kafka"]) as hostile:
            await hostile.stream.send_all(frame)
            assert await hostile.read_frame() is None
        assert one(await client.ask(produce(data_of(9)), 9)).error_code == 0


async def test_a_client_that_sends_a_frame_in_pieces(tmp_path) -> None:
    async with (
        node_and_client(tmp_path) as (node, _),
        KafkaClient(node.addresses["kafka"]) as slow,
    ):
        frame = apis.request_frame(RequestHeader(0, 9, 1, "c"), produce(data_of(9)))
        for byte in frame:
            await slow.stream.send_all(bytes([byte]))
            await trio.lowlevel.checkpoint()
        assert one(await slow.read(0, 9, 1)).base_offset == 0


@pytest.mark.slow
async def test_names_of_any_length_are_told_back_in_part(tmp_path) -> None:
    """Whatever the partitions of one long name are refused for, its answer is no multiple of it;
    and in version 8 a text has 32 KiB of room."""
    part = records.ProduceRequestTopicPartition(index=0, records=data_of(9))
    async with node_and_client(tmp_path) as (_, client):
        for version, of_create, name in ((8, 4, "n" * 32_767), (9, 5, "n" * 1_000_000)):
            topic = records.ProduceRequestTopic(name=name, partition_data=(part,) * 1_000)
            request = records.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=(topic,))
            [entry] = (await client.ask(request, version)).responses
            assert entry.name == name
            assert {each.error_code for each in entry.partition_responses} == {
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            }
            assert all(len(each.error_message) <= 1001 for each in entry.partition_responses)
            wanted = topics.CreateTopicsRequestTopic(
                name=name, num_partitions=1, replication_factor=1
            )
            create = topics.CreateTopicsRequest(topics=(wanted,))
            [made] = (await client.ask(create, of_create)).topics
            assert made.error_code == ErrorCode.INVALID_TOPIC


async def test_what_is_asked_for_twice_is_answered_once(tmp_path) -> None:
    """Where an answer may be far longer than the question."""
    async with node_and_client(tmp_path) as (_, client):
        named = cluster.MetadataRequestTopic(name=TOPIC)
        told = await client.ask(cluster.MetadataRequest(topics=(named,) * 10_000), 12)
        assert [each.name for each in told.topics] == [TOPIC]
        found = await client.ask(groups.DescribeGroupsRequest(groups=("g",) * 10_000), 5)
        assert [each.group_id for each in found.groups] == ["g"]
        asked = topics.DescribeConfigsRequestResource(resource_type=2, resource_name=TOPIC)
        known = await client.ask(topics.DescribeConfigsRequest(resources=(asked,) * 10_000), 4)
        assert [each.resource_name for each in known.results] == [TOPIC]
