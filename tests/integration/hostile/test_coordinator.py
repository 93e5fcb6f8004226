"""What strangers may send as consumers that their coordinator drives, and the others go on."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from paceline.wire.coordinator.codec import Ask
from paceline.wire.coordinator.messages import RegisterRequest, TopicCount
from tests.hostile.slices import nobody_holds_the_loop
from tests.integration.node.consumer import ScriptedConsumer, registration
from tests.integration.node.kafka_client import KafkaClient
from tests.integration.node.nodes import HANG_S, V1Client
from tests.integration.node.test_coordinator import make_topic, node_with, produce

_RNG = random.Random(9)
TOPICS = ["".join(_RNG.choices("ab", k=240)) for _ in range(16)]
SLOW = ["(a|b)*a" + "(a|b)" * _RNG.randrange(20, 40) + ".*" for _ in range(8)]
"""Patterns that know more sets than are remembered: each character is thought about anew."""
MANY_STREAMS = [".*"] * 100
"""So many consumers, whose 1,000 streams each were all named and sorted for each topic."""
CROWDS = {"slow": SLOW, "streams": MANY_STREAMS}


def crowd_of_one(name: str, pattern: str) -> RegisterRequest:
    return RegisterRequest(
        group_id="crowd",
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
        address = node.addresses["coordinator"]
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
