"""What strangers may send to the Kafka listener, and the others go on."""

from __future__ import annotations

from pathlib import Path

from paceline.errors import ErrorCode
from tests.hostile import kafka as attacks
from tests.hostile.slices import nobody_holds_the_loop
from tests.integration.node.kafka_client import KafkaClient
from tests.integration.node.nodes import V1Client, lone_node

ONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}


async def test_requests_that_name_a_partition_again_and_again(tmp_path: Path) -> None:
    """As native's: a long poll of 512 KB kept the loop for 45 s when it ended."""
    async with (
        lone_node(tmp_path, ONE) as node,
        KafkaClient(node.addresses["coordinator"]) as client,
        V1Client(node.v1) as writer,
    ):
        await writer.ok("PRODUCE", "orders k:0")
        with nobody_holds_the_loop(0.1):
            found = await client.ask(attacks.repeated_fetch("orders", 1, times=10_000), 9)
            assert len(found.responses[0].partitions) == 10_000
            found = await client.ask(attacks.repeated_queries("orders", times=10_000), 5)
            assert len(found.topics[0].partitions) == 10_000


async def test_produces_of_much(tmp_path: Path) -> None:
    """All of a request was read, checked and appended in one step: 10,000 partitions in 0.26 s."""
    async with (
        lone_node(tmp_path, ONE) as node,
        KafkaClient(node.addresses["coordinator"]) as client,
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
