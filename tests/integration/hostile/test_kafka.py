"""What strangers may send to the Kafka listener, and the others go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from paceline.errors import ErrorCode
from paceline_node.groups.keys import GroupKey
from paceline_node.groups.offset_pieces import PIECE_OFFSETS
from paceline_node.state_machines.machine import Entry, Scope
from paceline_node.state_machines.replica import MachineReplica
from tests.hostile import kafka as attacks
from tests.hostile.slices import nobody_holds_the_loop
from tests.integration.node.cursus_client import CursusClient
from tests.integration.node.kafka_client import KafkaClient
from tests.integration.node.nodes import HANG_S, V1Client, lone_node

pytestmark = pytest.mark.virtual_time

ONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}


async def test_requests_that_name_a_partition_again_and_again(tmp_path: Path) -> None:
    """As native's: a long poll of 512 KB kept the loop for 45 s when it ended."""
    async with (
        lone_node(tmp_path, ONE) as node,
        KafkaClient(node.addresses["kafka"]) as client,
        V1Client(node.v1) as writer,
    ):
        await writer.ok("PRODUCE", "orders k:0")
        with nobody_holds_the_loop(0.1):
            found = await client.ask(attacks.repeated_fetch("orders", 1, times=10_000), 9)
            assert len(found.responses[0].partitions) == 10_000
            found = await client.ask(attacks.repeated_queries("orders", times=10_000), 5)
            assert len(found.topics[0].partitions) == 10_000


@pytest.mark.slow
async def test_produces_of_much(tmp_path: Path) -> None:
    """All of a request was read, checked and appended in one step: 10,000 partitions in 0.26 s."""
    async with (
        lone_node(tmp_path, ONE) as node,
        KafkaClient(node.addresses["kafka"]) as client,
        V1Client(node.v1) as writer,
    ):
        await writer.ok("PRODUCE", "orders k:0")
        for made, code in (
            (attacks.crowd_of_batches("orders", batches=800_000), ErrorCode.MESSAGE_TOO_LARGE),
            (attacks.crowd_of_batches("orders", batches=200_000), ErrorCode.INVALID_RECORD),
            (attacks.great_batch("orders", megabytes=60), ErrorCode.MESSAGE_TOO_LARGE),
            (attacks.many_partitions_produced("orders", parts=10_000), 0),
            (attacks.great_produce("orders", megabytes=60), 0),
        ):
            with nobody_holds_the_loop(0.1):
                found = await client.ask(made, 8)
            answers = found.responses[0].partition_responses
            assert len(answers) == len(made.topic_data[0].partition_data)
            assert {each.error_code for each in answers} == {code}, answers[0]


@pytest.mark.slow
async def test_commits_of_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a request was one batch, written and folded in one step: 576 KB that named a partition
    32,000 times kept the coordinator for half a second, and each follower for a quarter."""
    batches: list[int] = []
    write = MachineReplica.write

    def counted(self: MachineReplica, scope: Scope, entries: Sequence[Entry]) -> None:
        if isinstance(scope, GroupKey):
            batches.append(len(entries))
        write(self, scope, entries)

    async with (
        lone_node(tmp_path, ONE) as node,
        KafkaClient(node.addresses["kafka"]) as client,
        CursusClient(node.addresses["cursus"]) as maker,
    ):
        await maker.create("topic=wide partitions=600")

        async def commit(parts: Sequence[int]) -> None:
            with trio.fail_after(HANG_S):
                while True:
                    found = await client.ask(attacks.commits("g", "wide", parts), 8)
                    codes = {each.error_code for each in found.topics[0].partitions}
                    if codes == {0}:
                        assert len(found.topics[0].partitions) == len(parts)
                        return
                    await trio.sleep(0.05)

        await commit([0])
        monkeypatch.setattr(MachineReplica, "write", counted)
        await commit([0] * 10_000)
        assert batches == [1]
        await commit(range(600))
        assert sum(batches) == 601
        assert max(batches) <= PIECE_OFFSETS
