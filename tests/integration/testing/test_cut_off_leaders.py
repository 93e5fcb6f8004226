"""A leader that is cut off from all other nodes is still reached by clients. It tells them that it
does not know who leads, whatever their protocol, so that they ask another node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from paceline.errors import ErrorCode
from paceline.wire.kafka import cluster
from paceline_cluster.node_calls import ask_metadata
from paceline_cluster.testing import Paceline
from tests.integration.node.cursus_client import CursusClient
from tests.integration.node.kafka_client import KafkaClient

TOPIC = "orders"
Ask = Callable[[Paceline, int], Awaitable[tuple[int, int]]]
NOBODY = (int(ErrorCode.LEADER_NOT_AVAILABLE), -1)


def place(paceline: Paceline, listener: str, node: int) -> tuple[str, int]:
    host, _, port = paceline.addresses(listener)[node].rpartition(":")
    return host, int(port)


async def told_natively(paceline: Paceline, node: int) -> tuple[int, int]:
    reply = await ask_metadata(paceline.addresses("native")[node], TOPIC)
    found = reply.topics[0].partitions[0]
    return found.error, found.leader


async def told_by_kafka(paceline: Paceline, node: int) -> tuple[int, int]:
    wanted = (cluster.MetadataRequestTopic(name=TOPIC),)
    async with KafkaClient(place(paceline, "kafka", node)) as client:
        reply = await client.ask(cluster.MetadataRequest(topics=wanted), 12)
    found = reply.topics[0].partitions[0]
    return found.error_code, found.leader_id


async def told_by_cursus(paceline: Paceline, node: int) -> str:
    async with CursusClient(place(paceline, "cursus", node)) as client:
        return await client.say(f"METADATA topic={TOPIC}")


async def until(ask: Ask, paceline: Paceline, node: int, told: tuple[int, int]) -> None:
    while await ask(paceline, node) != told:  # noqa: ASYNC110  no event tells
        await trio.sleep(0.05)


async def test_who_is_cut_off_sends_no_clients_to_itself(paceline: Paceline) -> None:
    await paceline.create_topic(TOPIC)
    cut_off = await paceline.isolate(f"leader of {TOPIC}/0")
    leader = await paceline.wait_for_leader(TOPIC, other_than=cut_off)
    await until(told_natively, paceline, cut_off, NOBODY)
    assert await told_by_kafka(paceline, cut_off) == NOBODY
    assert "leaders= " in await told_by_cursus(paceline, cut_off)
    assert await told_natively(paceline, leader) == (0, leader)
    assert await told_by_kafka(paceline, leader) == (0, leader)
    await paceline.heal()
    await until(told_by_kafka, paceline, cut_off, (0, leader))
