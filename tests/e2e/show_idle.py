"""``scripts/show-idle``: connections that say nothing for ten minutes work as before afterwards.

The Java producer never opens a partition's connection again, so a node must not end one because it
is silent (listeners/DESIGN 5.1). Of the page's own client: a connection that has never said
anything, one that has said a command, one that has produced, and one that streams and gets nothing
but keepalives. Of the published client for Python: a producer and a streaming consumer.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import trio
from cursus import Acks, Consumer, ConsumerConfig, ConsumerMode, Producer, ProducerConfig

from tests.e2e.cluster import Cluster, wait_until
from tests.e2e.cursus import brokers
from tests.e2e.seed_client import SeedClient, batch, records_of

TOPIC, THEIRS = "quiet", "quiet-too"
CLIENT_TIMEOUT_S = 5.0
"""Clients give a stream up that says nothing for so long."""


@dataclass
class Streaming:
    """What a stream brought. ``longest_s`` is the longest silence."""

    keepalives: int = 0
    longest_s: float = 0.0
    payload: bytes = b""

    async def run(self, client: SeedClient, task_status: trio.TaskStatus[None]) -> None:
        """Until a record comes."""
        await client.send(f"STREAM {TOPIC} 0 1".encode())
        task_status.started()
        last = time.monotonic()
        while not (body := await client.receive()):
            now = time.monotonic()
            self.keepalives += 1
            self.longest_s = max(self.longest_s, now - last)
            last = now
        [record] = records_of(body)
        self.payload = record.payload


async def page_clients(cluster: Cluster, idle_s: float) -> None:
    """Connections of the client that knows the protocol page only."""
    address = cluster.address(0, "cursus")
    stream = Streaming()
    async with (
        SeedClient(address) as mute,
        SeedClient(address) as asking,
        SeedClient(address) as writing,
        SeedClient(address) as reading,
        trio.open_nursery() as nursery,
    ):
        assert (await asking.say(f"CREATE {TOPIC} 1")).startswith("OK")
        assert (await writing.produce(batch(TOPIC, 0, "p", [1])))["status"] == "OK"
        await nursery.start(lambda task_status: stream.run(reading, task_status))
        await trio.sleep(idle_s)
        ack = await writing.produce(batch(TOPIC, 0, "p", [2]))
        assert (ack["status"], ack["last_offset"]) == ("OK", 1), ack
        for client in (mute, asking):
            told = await client.say("LIST")
            assert told == f"OK count=2 topics={TOPIC},{THEIRS}", told
    assert stream.payload == b"0:2"
    assert stream.longest_s < CLIENT_TIMEOUT_S, stream
    assert stream.keepalives > idle_s / CLIENT_TIMEOUT_S, stream
    click.echo(f"page: {stream.keepalives} keepalives, {stream.longest_s:.2f} s apart at most")


@asynccontextmanager
async def producer(cluster: Cluster) -> AsyncIterator[Producer]:
    config = ProducerConfig(
        THEIRS, brokers(cluster, 0), partitions=1, acks=Acks.ALL, idempotent=True, linger_ms=5
    )
    made = await trio.to_thread.run_sync(Producer, config)
    try:
        yield made
    finally:
        await trio.to_thread.run_sync(made.close)


async def published_client(cluster: Cluster, idle_s: float) -> None:
    """The client from the package index, as it is."""
    seen: list[str] = []
    mode = ConsumerMode.STREAMING
    config = ConsumerConfig(THEIRS, brokers(cluster, 0), group_id="idlers", mode=mode)

    async def send(writer: Producer, payload: str, count: int) -> None:
        writer.send(payload)
        await trio.to_thread.run_sync(writer.flush)
        assert writer.unique_ack_count == count, (payload, writer.unique_ack_count)

    def all_seen(wanted: list[str]) -> None:
        wait_until(f"{wanted} read", lambda: seen == wanted, timeout_s=30)

    async with producer(cluster) as writer, trio.open_nursery() as nursery:
        await send(writer, "before", 1)
        consumer = Consumer(config)
        read = trio.to_thread.run_sync
        nursery.start_soon(read, consumer.start, lambda message: seen.append(message.payload))
        try:
            await read(all_seen, ["before"])
            await trio.sleep(idle_s)
            await send(writer, "after", 2)
            await read(all_seen, ["before", "after"])
        finally:
            consumer.close()
    click.echo("cursus-client: produced and consumed as before")


async def run(cluster: Cluster, idle_s: float) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(page_clients, cluster, idle_s)
        nursery.start_soon(published_client, cluster, idle_s)


@click.command()
@click.argument("minutes", type=click.FloatRange(min=0), default=10.0)
def main(minutes: float) -> None:
    """Let connections be silent for MINUTES and use them again."""
    base = Path(tempfile.mkdtemp(prefix="paceline-idle-"))
    cluster = Cluster(base)
    try:
        cluster.up("--nodes", "1")
        trio.run(run, cluster, minutes * 60)
        sys.stdout.write(f"verdict: ok; silent for {minutes:g} minutes\n")
    finally:
        cluster.purge()
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
