"""A client that writes on through faults, and the check that nothing it was promised is missing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from tests.integration.node.nodes import HANG_S, Cluster, V1Client
from tests.integration.node.v1_client import fields

_PAUSE_S = 0.01
"""The nodes share the loop with whoever writes."""


class Writer:
    """Writes distinct values with acks=all through one node, one after another.

    ``acked`` is by offset what was answered with OK; ``refused`` are the other answers, ``denied``
    the values of those that say that nothing was stored, ``last`` is the newest value. A value
    without an OK is never written again, so every value stands in the log at most once.
    """

    def __init__(self, nodes: Cluster, topic: str, via: int) -> None:
        self.topic = topic
        self.acked: dict[int, str] = {}
        self.refused: list[str] = []
        self.denied: set[str] = set()
        self.last = ""
        self._address = nodes.up[via].v1
        self._name = f"from-{via}"
        self._count = 0
        self._progress = trio.Event()

    async def run(self) -> None:
        async with V1Client(self._address) as client:
            while True:
                await self.write(client)
                await trio.sleep(_PAUSE_S)

    async def write(self, client: V1Client) -> str:
        """Write one value; the answer."""
        value = self.last = f"{self._name}-{self._count}"
        self._count += 1
        answer = await client.call("PRODUCE", f"{self.topic} key:{value} acks=all")
        if answer.startswith("OK|"):
            offset = int(fields(answer.removeprefix("OK|"))["offset"])
            assert offset not in self.acked, f"{offset} acknowledged twice"
            self.acked[offset] = value
        else:
            self.refused.append(answer)
            if answer.startswith("ERR|NOT_LEADER|"):
                self.denied.add(value)
        self._progress.set()
        self._progress = trio.Event()
        return answer

    async def more(self, count: int = 20) -> None:
        """Return once ``count`` further values were acknowledged."""
        goal = len(self.acked) + count
        with trio.fail_after(HANG_S):
            while len(self.acked) < goal:
                await self._progress.wait()


@asynccontextmanager
async def writing(nodes: Cluster, topic: str, *, via: int) -> AsyncIterator[Writer]:
    """A writer at work for the length of a block."""
    writer = Writer(nodes, topic, via)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        await writer.more(1)
        yield writer
        nursery.cancel_scope.cancel()


async def create(nodes: Cluster, topic: str) -> int:
    """A topic with one partition on three nodes, all in sync; its leader."""
    async with nodes.v1(min(nodes.up)) as client:
        await client.ok("ADMIN_CREATE_TOPIC", f"{topic} 1 3")
    await nodes.in_sync(topic, 0, 0, 1, 2)
    return await nodes.leader(topic, 0)


async def lead(nodes: Cluster, topic: str, node: int) -> None:
    """Let ``node`` lead the topic's partition, as soon as it may: it must be in sync, which a slow
    moment of the disk can end."""

    async def told() -> bool:
        async with nodes.v1(node) as client:
            answer = await client.call("SET_PARTITION_ROLE", f"{topic} 0 leader")
        return answer.startswith("OK|")

    await nodes.wait_for(f"node {node} leads {topic}/0", told)
    assert await nodes.leader(topic, 0) == node


async def stored(client: V1Client, topic: str) -> dict[int, str]:
    """All committed records by offset, as one node serves them."""
    found: dict[int, str] = {}
    offset = 0
    while True:
        read = await client.ok("CONSUME", f"{topic} 0 {offset}")
        if not read["messages"]:
            return found
        for message in read["messages"].split(","):
            at, _, value = message.partition(":")
            assert int(at) >= offset, f"offset {at} served twice"
            found[int(at)] = value
            offset = int(at) + 1


async def assert_complete(nodes: Cluster, writer: Writer) -> None:
    """Every acknowledged value is served at its offset, no value twice, none that was denied."""

    async def all_of_it() -> dict[int, str] | None:
        leader = await nodes.leader(writer.topic, 0)
        async with nodes.v1(leader) as client:
            found = await stored(client, writer.topic)
        return found if len(found) > max(writer.acked) else None

    found = await nodes.wait_for("everything acknowledged is committed", all_of_it)
    assert {offset: found[offset] for offset in writer.acked} == writer.acked
    assert len(set(found.values())) == len(found), "a value was stored twice"
    assert not writer.denied & set(found.values()), "NOT_LEADER, and it was stored"
    assert sorted(found) == list(range(len(found)))
