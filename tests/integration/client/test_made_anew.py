"""Readers outside groups whose topic is deleted and made anew under its name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from paceline.client import Client, Consumer, OutOfRange, Position
from paceline.errors import TopicAlreadyExists, UnknownTopicOrPartition
from paceline.types import TopicPartition
from tests.integration.node.machines import connect
from tests.integration.node.nodes import lone_node

pytestmark = pytest.mark.virtual_time

AT = TopicPartition("t", 0)
OLD = [b"old %d" % number for number in range(3)]
NEW = [b"new %d" % number for number in range(5)]


class Clients(NamedTuple):
    """One that reads, and one that does all else: the reader has no reason to look."""

    reading: Client
    other: Client


@pytest.fixture
async def clients(tmp_path: Path) -> AsyncIterator[Clients]:
    async with (
        lone_node(tmp_path) as node,
        connect(node.native) as reading,
        connect(node.native) as other,
    ):
        await make(other, OLD)
        yield Clients(reading, other)


async def make(client: Client, values: list[bytes]) -> None:
    await client.admin.create_topic("t", partitions=1, replication_factor=1)
    async with client.producer() as producer:
        for value in values:
            await producer.send("t", value, partition=0)


async def make_anew(client: Client) -> None:
    await client.admin.delete_topic("t")
    with trio.fail_after(60):
        while True:
            try:
                return await make(client, NEW)
            except TopicAlreadyExists:
                await trio.sleep(0.02)


async def take(consumer: Consumer, count: int) -> list[bytes | None]:
    with trio.fail_after(60):
        return [(await anext(consumer)).value for _ in range(count)]


@pytest.mark.parametrize("policy", [OutOfRange.EARLIEST, OutOfRange.LATEST])
async def test_all_of_the_new_one_is_read(clients: Clients, policy: OutOfRange) -> None:
    """It went on at its offset in the old one, and passed over what the new one has before it."""
    async with clients.reading.consumer("t", out_of_range=policy) as consumer:
        assert await take(consumer, 3) == OLD
        await make_anew(clients.other)
        assert await take(consumer, 5) == NEW


@pytest.mark.parametrize("stop", [None, Position.at(4)])
async def test_who_asked_for_an_error_gets_one(clients: Clients, stop: Position | None) -> None:
    """Also where a stop was given: what was to be read to there is gone."""
    policy = OutOfRange.FAIL if stop is None else OutOfRange.EARLIEST
    async with clients.reading.consumer("t", out_of_range=policy, stop=stop) as consumer:
        assert await take(consumer, 3) == OLD
        await make_anew(clients.other)
        with pytest.raises(UnknownTopicOrPartition, match="another one has its name; offset 3 was"):
            await take(consumer, 1)
        await consumer.seek(AT, Position.at(1))
        assert await take(consumer, 3) == NEW[1:4]


async def test_a_paused_reader_learns_of_it_when_it_goes_on(clients: Clients) -> None:
    async with clients.reading.consumer("t", out_of_range=OutOfRange.EARLIEST) as consumer:
        assert await take(consumer, 3) == OLD
        consumer.pause(AT)
        await make_anew(clients.other)
        consumer.resume(AT)
        assert await take(consumer, 5) == NEW
