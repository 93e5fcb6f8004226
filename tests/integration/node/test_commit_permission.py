"""Who may commit for a group may still not commit for topics that he may not read."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from paceline.errors import ErrorCode
from paceline.wire.kafka import offsets, topics
from paceline.wire.native import groups
from paceline.wire.native.api import NativeApi
from paceline_node.security.principals import Operation, Policy, Principal, Resource, refuse
from tests.integration.node.kafka_client import HANG_S, KafkaClient
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import lone_node

pytestmark = pytest.mark.virtual_time

ONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}
NAMES = ("open", "secret")


class Hides(Policy):
    """Nobody reads topic ``secret``."""

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> None:
        if operation is Operation.CONSUME and resource.name == "secret":
            refuse(principal, operation, resource)


async def test_commits_are_judged_by_topic_too(tmp_path: Path) -> None:
    async with (
        lone_node(tmp_path, ONE, policy=Hides()) as node,
        KafkaClient(node.addresses["kafka"]) as kafka,
        NativeConnection(node.addresses["native"]) as native,
    ):
        for name in NAMES:
            wanted = topics.CreateTopicsRequestTopic(
                name=name, num_partitions=1, replication_factor=1
            )
            await kafka.ask(topics.CreateTopicsRequest(topics=(wanted,)), 5)
        part = offsets.OffsetCommitRequestTopicPartition(partition_index=0, committed_offset=7)
        request = offsets.OffsetCommitRequest(
            group_id="g",
            topics=tuple(
                offsets.OffsetCommitRequestTopic(name=name, partitions=(part,)) for name in NAMES
            ),
        )
        expected = [ErrorCode.NONE, 29]
        with trio.fail_after(HANG_S):
            while True:  # until the group has its coordinator
                answer = await kafka.ask(request, 2)
                found = [topic.partitions[0].error_code for topic in answer.topics]
                if found[0] == ErrorCode.NONE:
                    break
                await trio.sleep(0.02)
        assert found == expected
        told = await native.call(
            NativeApi.COMMIT_OFFSETS,
            groups.CommitOffsets(
                "g", -1, "", tuple(groups.OffsetToCommit(name, 0, 8) for name in NAMES)
            ),
            groups.OffsetResults,
        )
        refused = ErrorCode.AUTHORIZATION_FAILED
        assert [each.error for each in told.partitions] == [ErrorCode.NONE, refused]
        delete = offsets.OffsetDeleteRequestTopicPartition(partition_index=0)
        forget = offsets.OffsetDeleteRequest(
            group_id="g",
            topics=tuple(
                offsets.OffsetDeleteRequestTopic(name=name, partitions=(delete,)) for name in NAMES
            ),
        )
        forgotten = await kafka.ask(forget, 0)
        assert [each.partitions[0].error_code for each in forgotten.topics] == expected
        await kafka.ask(request, 2)  # a group without offsets is none
        told = await native.call(
            NativeApi.DELETE_OFFSETS,
            groups.DeleteOffsets("g", tuple(groups.TopicPartitions(name, (0,)) for name in NAMES)),
            groups.OffsetResults,
        )
        assert [each.error for each in told.partitions] == [ErrorCode.NONE, refused]
