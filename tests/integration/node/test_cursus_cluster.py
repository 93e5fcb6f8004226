"""Three nodes over Cursus: any of them serves a client, through the death of a leader."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from paceline.types import Acks
from paceline.wire.cursus.batch import CursusRecord, Dialect, encode_batch, parse_batch
from tests.integration.node.cursus_client import CursusClient, batch, numbered, payloads
from tests.integration.node.nodes import Cluster, cluster

pytestmark = pytest.mark.virtual_time
THREE = {"topics.replication_factor": "3", "topics.min_insync_replicas": "2"}


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path, 3, THREE) as made:
        yield made


def client(nodes: Cluster, number: int) -> CursusClient:
    return CursusClient(nodes.up[number].addresses["cursus"])


def address(nodes: Cluster, number: int) -> str:
    host, port = nodes.up[number].addresses["cursus"]
    return f"{host}:{port}"


async def test_any_node_serves(nodes: Cluster) -> None:
    async with client(nodes, 0) as maker:
        await maker.create("topic=t partitions=3")
        leaders = (await maker.ok("METADATA topic=t"))["leaders"].split(",")
    await nodes.in_sync("t", 0, 0, 1, 2)
    leader = await nodes.leader("t", 0)
    other = (leader + 1) % 3
    assert leaders[0] == address(nodes, leader)
    async with client(nodes, other) as away, client(nodes, leader) as home:
        # Writes are forwarded, in both dialects, compressed or not, and as text.
        sent = batch("t", numbered(1, 2), acks=Acks.ALL)
        assert (await away.produce(sent))["leader"] == address(nodes, leader)
        ack = await away.produce(sent._replace(dialect=Dialect.SEED, idempotent=True))
        assert (ack["status"], ack["last_offset"]) == ("OK", 3)
        assert (await away.produce(sent._replace(idempotent=True)))["last_offset"] == 3
        text = await away.acked(b"PUBLISH topic=t partition=0 acks=-1 message=text")
        assert text["last_offset"] == 4
        large = [CursusRecord(0, n, b"q", payload=bytes(1_000_000)) for n in range(1, 21)]
        ack = await away.produce(batch("t", large, idempotent=True, acks=Acks.ALL))
        assert (ack["status"], ack["last_offset"]) == ("OK", 24)
        # Reads are redirected, positional ones carried out.
        moved = await away.say("CONSUME topic=t partition=0 offset=0 member=m")
        assert moved == f"ERROR: NOT_LEADER LEADER_IS {address(nodes, leader)}"
        assert (await away.say("STREAM topic=t partition=0 member=m")) == moved
        assert payloads(await away.read("CONSUME t 0 0"))[:5] == [b"1", b"2", b"1", b"2", b"text"]
        await away.send(b"STREAM t 0 3")
        frame = parse_batch(await away.receive())
        assert (frame.dialect, payloads(frame.records)[:2]) == (Dialect.SEED, [b"2", b"text"])
        # Ends are those of the leaders, wherever one asks.
        told = await home.ok("LIST_OFFSETS topic=t")
        async with client(nodes, (leader + 2) % 3) as third:
            assert await third.ok("LIST_OFFSETS topic=t") == told
            described = json.loads(await third.say("DESCRIBE topic=t"))
        assert [p["leo"] for p in described["partitions"]] == [25, 0, 0]
        moved = await home.ok(f"ELECT_LEADER topic=t partition=0 broker={other}")
        assert (moved["leader"], moved["changed"]) == (str(other), "true")
        assert (await home.produce(sent))["leader"] == address(nodes, other)


async def test_a_read_on_its_way_to_a_leader_that_dies_is_read_from_the_next(
    nodes: Cluster,
) -> None:
    async with client(nodes, 0) as maker:
        await maker.create("t 1")
        await maker.produce(batch("t", numbered(1, 2), acks=Acks.ALL))
    leader = await nodes.leader("t", 0)
    known = (leader + 1) % 3
    network = await nodes.restart_on_stalling_network(known)
    await nodes.in_sync("t", 0, 0, 1, 2)
    assert await nodes.leader("t", 0) == leader
    async with client(nodes, known) as reader:
        assert payloads(await reader.read("CONSUME t 0 0")) == [b"1", b"2"]  # the link is up
        network.stall(nodes.ports(leader)["peer"])
        await reader.send(b"CONSUME t 0 0")
        with trio.move_on_after(0.5):  # no answer can come: it is on its way
            await reader.receive()
            raise AssertionError("an answer from a leader that cannot be reached")
        await nodes.crash(leader)
        network.stall()
        while (answer := await reader.receive()).startswith(b"ERROR: leader_not_available"):
            await reader.send(b"CONSUME t 0 0")  # the election took longer than an answer may
        assert payloads(parse_batch(answer).records) == [b"1", b"2"], answer


async def test_a_client_of_the_page_alone_goes_on_through_a_leaders_death(nodes: Cluster) -> None:
    """The client of the protocol's page: positional commands, its own batch header, one node that
    it knows."""
    async with client(nodes, 0) as maker:
        await maker.create("t 1")
    await nodes.in_sync("t", 0, 0, 1, 2)
    leader = await nodes.leader("t", 0)
    known = (leader + 1) % 3
    acked: list[int] = []
    done, underway = trio.Event(), trio.Event()
    streamed: list[bytes] = []

    async def produce() -> None:
        async with client(nodes, known) as producer:
            number = 1
            while number <= 300:
                sent = batch(
                    "t", numbered(number, 5), acks=Acks.ALL, idempotent=True, dialect=Dialect.SEED
                )
                ack = await producer.acked(encode_batch(sent))
                if ack["status"] == "OK":
                    acked.extend(range(number, number + 5))
                    number += 5
                if len(acked) >= 60:
                    underway.set()
        done.set()

    async def stream() -> None:
        async with client(nodes, known) as consumer:
            await consumer.send(b"STREAM t 0 0")
            while not (done.is_set() and len(streamed) >= len(acked)):
                frame = await consumer.receive()
                if frame:
                    streamed.extend(payloads(parse_batch(frame).records))

    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            nursery.start_soon(stream)
            await underway.wait()
            killed_at = len(acked)
            await nodes.crash(leader)
    assert killed_at < 300
    # Idempotent: exactly once, in order, although retries crossed the failover.
    assert streamed == [b"%d" % number for number in range(1, 301)]
    assert acked == list(range(1, 301))
    assert await nodes.leader("t", 0) != leader
