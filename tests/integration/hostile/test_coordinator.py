"""What strangers may send as consumers that their coordinator drives, and the others go on."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from paceline.wire.coordinator.codec import Ask, read_header, read_request
from paceline.wire.coordinator.messages import RegisterRequest, TopicCount
from tests.hostile.slices import nobody_holds_the_loop
from tests.integration.hostile.test_memory import MIB, SMALL, held_bytes
from tests.integration.node.consumer import ScriptedConsumer, registration
from tests.integration.node.kafka_client import KafkaClient
from tests.integration.node.nodes import HANG_S, V1Client, lone_node
from tests.integration.node.test_coordinator import coordinates, make_topic, node_with, produce
from tests.integration.node.test_metrics import scrape

pytestmark = pytest.mark.virtual_time

_RNG = random.Random(9)
TOPICS = ["".join(_RNG.choices("ab", k=240)) for _ in range(16)]
SLOW = ["(a|b)*a" + "(a|b)" * _RNG.randrange(20, 40) + ".*" for _ in range(8)]
"""Patterns that know more sets than are remembered: each character is thought about anew."""
MANY_STREAMS = [".*"] * 100
"""So many consumers, whose 1,000 streams each were all named and sorted for each topic."""
CROWDS = {"slow": SLOW, "streams": MANY_STREAMS}


def crowd_of_one(name: str, pattern: str, group: str = "crowd") -> RegisterRequest:
    return RegisterRequest(
        group_id=group,
        consumer_id=name,
        auto_commit=1,
        auto_offset_rest="smallest",
        heartbeat_interval_ms=100_000,
        max_heartbeat_retries=1,
        topic_count=(TopicCount(topic=pattern, streams=1000),),
        pattern_kind=1,
    )


@pytest.mark.parametrize("kind", CROWDS)
async def test_patterns_of_a_crowd(tmp_path: Path, kind: str) -> None:
    """20 registrations of 200 bytes kept a node with 300 topics for 3 s: its controller lost its
    session. Now whoever asks for much waits for it, and nobody else."""
    async with node_with(tmp_path, orders=1) as node, AsyncExitStack() as stack:
        address = node.addresses["kafka"]
        async with KafkaClient(address) as client:
            for topic in TOPICS:
                await make_topic(client, topic, 1)
            await produce(client, TOPICS[0], 0, 1)
        crowd = [await stack.enter_async_context(ScriptedConsumer(address)) for _ in CROWDS[kind]]
        owned: dict[tuple[str, int], int] = {}

        async def take_part(consumer: ScriptedConsumer) -> None:
            while await consumer.until(Ask.START):
                for at in consumer.positions:
                    owned[at] = consumer.generation

        with trio.fail_after(2 * HANG_S), nobody_holds_the_loop():
            async with trio.open_nursery() as nursery:
                for number, (consumer, pattern) in enumerate(zip(crowd, CROWDS[kind], strict=True)):
                    told = await consumer.register(crowd_of_one(f"c{number}", pattern))
                    assert told is not None
                    assert told.error == 0
                    nursery.start_soon(take_part, consumer)
                async with ScriptedConsumer(address) as honest, V1Client(node.v1) as writer:
                    await writer.ok("PRODUCE", "orders k:1")
                    await honest.register(registration("a", "orders", group="honest"))
                    await honest.until(Ask.START)
                    assert honest.positions == {("orders", 0): 0}
                while not owned.keys() >= {(topic, 0) for topic in TOPICS}:  # noqa: ASYNC110
                    await trio.sleep(0.02)
                nursery.cancel_scope.cancel("judged")


async def obey(consumer: ScriptedConsumer) -> None:
    """Answer all that the coordinator asks until it closes the channel."""
    while (frame := await consumer.read_frame()) is not None:
        header, start = read_header(memoryview(frame))
        await consumer.answer(header, read_request(header, memoryview(frame), start))


async def stays(consumer: ScriptedConsumer) -> None:
    await obey(consumer)
    raise AssertionError("an honest consumer was closed")


@pytest.mark.slow
async def test_positions_of_strangers_share_the_account_of_memory(tmp_path: Path) -> None:
    """80 bytes make a coordinator keep where a group of its own is in all partitions that there
    are: 100 of them held 50 MiB that nobody counted."""
    # Else the page of 1,000 partitions is what is held most.
    flags = {**SMALL, "metrics.per_partition": "false"}
    async with lone_node(tmp_path, flags) as node, AsyncExitStack() as stack:
        address, http = node.addresses["kafka"], node.addresses["http"]
        async with KafkaClient(address) as client:
            await make_topic(client, "orders", 1)
            await produce(client, "orders", 0, 1)
            await make_topic(client, "wide", 1_000)
        await coordinates(node)
        honest = await stack.enter_async_context(ScriptedConsumer(address))
        await honest.register(registration("a", "orders", group="honest"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stays, honest)
            for number in range(100):
                consumer = await stack.enter_async_context(ScriptedConsumer(address))
                told = await consumer.register(crowd_of_one("c", "wide", f"g{number}"))
                assert told is not None
                nursery.start_soon(obey, consumer)
            with trio.fail_after(2 * HANG_S):
                while (await scrape(http)).total("clients_ended_total") < 20:
                    assert await held_bytes(http) <= 36 * MIB  # with those that are being ended
                    await trio.sleep(0.05)
            assert honest.positions == {("orders", 0): 0}
            nursery.cancel_scope.cancel("judged")
