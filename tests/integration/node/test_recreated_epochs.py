"""A topic whose leader had moved is deleted and made anew under its name.

Clients of Kafka's kind believe no metadata whose leader epoch is below one that they know of a
partition of that name: they went on with the leader of the old topic, and read nothing of the new
one (controller/DESIGN 9.6).
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import confluent_kafka
import trio

from paceline.client import Client
from paceline.errors import TopicAlreadyExists
from paceline.types import NodeId
from tests.integration.node.machines import connect
from tests.integration.node.nodes import HANG_S, lone_node

_TOPIC = "orders"
_PARTITIONS = 2
_FLAGS = {
    "topics.partitions": str(_PARTITIONS),
    "topics.replication_factor": "1",
    "topics.min_insync_replicas": "1",
}


class Reader:
    """A member of a group that reads all the time, in a thread: one instance from first to last."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        self._ended = threading.Event()
        self.values: set[bytes] = set()
        self.errors: list[object] = []

    def _read(self) -> None:
        self._consumer.subscribe([_TOPIC])
        while not self._ended.is_set():
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            if message.error():
                self.errors.append(message.error())
            else:
                self.values.add(message.value() or b"")
        self._consumer.close()

    async def has(self, values: set[bytes]) -> None:
        """Wait until all of these are read."""
        with trio.move_on_after(HANG_S):
            while not values <= self.values:  # noqa: ASYNC110  a thread reads
                await trio.sleep(0.02)
        assert values <= self.values, f"not read: {values - self.values}, errors: {self.errors}"

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, self._read)
            try:
                yield
            finally:
                self._ended.set()


async def put(client: Client, label: str) -> set[bytes]:
    """A record to every partition."""
    values = {number: f"{label} {number}".encode() for number in range(_PARTITIONS)}
    async with client.producer() as producer:
        for number, value in values.items():
            await producer.send(_TOPIC, value, partition=number)
    return set(values.values())


async def raise_epochs(client: Client) -> None:
    """The only replica gives up its place and takes it again: two epochs more each time."""
    for role in ("follower", "auto", "follower", "auto"):
        for number in range(_PARTITIONS):
            await client.admin.set_role(_TOPIC, number, NodeId(0), role)


async def make_anew(client: Client) -> None:
    await client.admin.delete_topic(_TOPIC)
    with trio.fail_after(HANG_S):
        while True:
            try:
                await client.admin.create_topic(_TOPIC, partitions=_PARTITIONS)
                return
            except TopicAlreadyExists:
                await trio.sleep(0.02)


async def test_a_group_reads_the_new_topic(tmp_path: Path) -> None:
    async with lone_node(tmp_path, _FLAGS) as node, connect(node.native) as client:
        await client.admin.create_topic(_TOPIC, partitions=_PARTITIONS)
        host, port = node.addresses["kafka"]
        reader = Reader(f"{host}:{port}")
        async with reader.reading():
            await reader.has(await put(client, "old"))
            await raise_epochs(client)
            await reader.has(await put(client, "moved"))
            for count in range(2):
                await make_anew(client)
                await reader.has(await put(client, f"anew {count}"))
