"""Event sourcing over Cursus: versions, snapshots, restarts, other nodes, other protocols."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from paceline.wire.cursus.batch import CursusRecord, encode_batch, parse_batch
from tests.integration.node.cursus_client import ONE, CursusClient, batch, numbered
from tests.integration.node.machines import free_ports
from tests.integration.node.nodes import (
    RunningNode,
    V1Client,
    cluster,
    format_nodes,
    listener_ports,
    lone_node,
    make_node,
    running,
)

pytestmark = pytest.mark.virtual_time

THREE = {"topics.replication_factor": "3", "topics.min_insync_replicas": "2"}
EVENTS = "topic=t partitions=1 event_sourcing=true"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RunningNode]:
    async with lone_node(tmp_path, ONE) as up:
        yield up


@pytest.fixture
async def client(node: RunningNode) -> AsyncIterator[CursusClient]:
    async with CursusClient(node.addresses["cursus"]) as connection:
        await connection.create(EVENTS)
        yield connection


async def read_stream(
    client: CursusClient, line: str
) -> tuple[dict[str, object], list[CursusRecord]]:
    await client.send(f"READ_STREAM {line}".encode())
    head = json.loads(await client.receive())
    assert head["status"] == "OK", head
    records = parse_batch(await client.receive()).records
    assert len(records) == head["count"]
    return head, records


async def append(client: CursusClient, key: str, version: int, more: str = "") -> str:
    return await client.say(
        f"APPEND_STREAM topic=t key={key} version={version}{more} message=e{version}"
    )


async def test_versions_and_snapshots(client: CursusClient) -> None:
    assert await client.say("STREAM_VERSION topic=t key=k") == "OK version=0"
    assert await client.say("READ_SNAPSHOT topic=t key=k") == "OK snapshot=null"
    more = ' event_type=Made schema_version=2 producerId=p metadata={"a": 1}'
    assert await append(client, "k", 1, more) == "OK version=1 offset=0 partition=0"
    assert await append(client, "k", 1) == "ERROR: version_conflict current=1 expected=1"
    assert await append(client, "k", 3) == "ERROR: version_conflict current=1 expected=3"
    assert await append(client, "other", 1) == "OK version=1 offset=1 partition=0"
    assert await append(client, "k", 2) == "OK version=2 offset=2 partition=0"
    assert await client.say("STREAM_VERSION topic=t key=k") == "OK version=2"
    head, events = await read_stream(client, "topic=t key=k")
    assert head == {"status": "OK", "topic": "t", "key": "k", "partition": 0, "count": 2}
    assert events[0] == CursusRecord(0, 0, b"p", b"k", 0, b"e1", b"Made", 2, 1, b'{"a": 1}')
    assert [event.aggregate_version for event in events] == [1, 2]
    assert await client.say("SAVE_SNAPSHOT topic=t key=k version=9 message=s") == (
        "ERROR: snapshot_version_exceeds_stream version=9 current=2"
    )
    assert await client.say("SAVE_SNAPSHOT topic=t key=k version=1 message=sum 1") == (
        "OK version=1 partition=0"
    )
    assert await client.say("READ_SNAPSHOT topic=t key=k") == (
        'OK snapshot={"version":1,"payload":"sum 1"}'
    )
    head, events = await read_stream(client, "topic=t key=k")
    assert head["snapshot"] == {"version": 1, "payload": "sum 1"}
    assert [event.payload for event in events] == [b"e2"]
    head, events = await read_stream(client, "topic=t key=k from_version=2")
    assert "snapshot" not in head
    assert [event.payload for event in events] == [b"e2"]


async def test_refusals(client: CursusClient) -> None:
    await client.create("topic=plain partitions=1")
    for line, answer in [
        ("APPEND_STREAM topic=plain key=k version=1 message=m",
         "ERROR: event_sourcing_not_enabled topic=plain"),
        ("APPEND_STREAM topic=none key=k version=1 message=m", "ERROR: topic_not_found topic=none"),
        ("APPEND_STREAM topic=t key= version=1 message=m",
         "ERROR: missing_key command=APPEND_STREAM"),
        ("SAVE_SNAPSHOT topic=t key= version=1 message=m",
         "ERROR: missing_key command=SAVE_SNAPSHOT"),
        ("STREAM_VERSION topic=t", "ERROR: missing_key command=STREAM_VERSION"),
        ("READ_STREAM topic=none key=k",
         '{"error":"topic_not_found topic=none","status":"ERROR"}'),
        ("READ_STREAM topic=plain key=k",
         '{"error":"event_sourcing_not_enabled topic=plain","status":"ERROR"}'),
    ]:  # fmt: skip
        assert await client.say(line) == answer
    refused = json.loads(await client.say("READ_STREAM topic=t key=k from_version=0"))
    assert refused["error"].startswith("invalid_from_version")
    # Nothing but events may be written there.
    await client.send(b"PUBLISH topic=t partition=0 message=m")
    assert (await client.receive()).startswith(b"ERROR: unsupported_topic_policy")
    await client.send(encode_batch(batch("t", numbered(1, 1))))
    assert (await client.receive()).startswith(b"ERROR: unsupported_topic_policy")


async def test_one_of_many_writers_wins_each_version(
    node: RunningNode, client: CursusClient
) -> None:
    wins: list[int] = []

    async def write(number: int) -> None:
        async with CursusClient(node.addresses["cursus"]) as writer:
            for version in range(1, 11):
                if (await append(writer, "k", version)).startswith("OK"):
                    wins.append(version)

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(write, number)
    assert sorted(wins) == list(range(1, 11))
    _, events = await read_stream(client, "topic=t key=k")
    assert [event.aggregate_version for event in events] == list(range(1, 11))


async def test_readers_of_records_see_events_and_no_snapshots(
    node: RunningNode, client: CursusClient
) -> None:
    await append(client, "k", 1)
    await client.ok("SAVE_SNAPSHOT topic=t key=k version=1 message=secret")
    await append(client, "k", 2)
    assert [each.payload for each in await client.read("CONSUME t 0 0")] == [b"e1", b"e2"]
    async with V1Client(node.v1) as v1:
        told = await v1.ok("CONSUME", "t 0 0")
        assert told["messages"] == "0:e1,2:e2"


@pytest.mark.virtual_time(False)  # it has a directory of its own
async def test_a_restart_rebuilds_the_index_from_the_log(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    await format_nodes(tmp_path, [port])
    for life in (1, 2):
        node = make_node(tmp_path, 0, listener_ports(port), ONE)
        async with (
            running(node, tmp_path) as up,
            CursusClient(up.addresses["cursus"]) as client,
        ):
            await client.create(EVENTS)
            if life == 1:
                for version in (1, 2, 3):
                    await append(client, "k", version)
                await client.ok("SAVE_SNAPSHOT topic=t key=k version=2 message=s")
                continue
            assert await append(client, "k", 3) == "ERROR: version_conflict current=3 expected=3"
            assert await append(client, "k", 4) == "OK version=4 offset=4 partition=0"
            head, events = await read_stream(client, "topic=t key=k")
            assert head["snapshot"] == {"version": 2, "payload": "s"}
            assert [event.payload for event in events] == [b"e3", b"e4"]


async def test_streams_survive_their_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3, THREE) as nodes:
        async with CursusClient(nodes.up[0].addresses["cursus"]) as client:
            await client.create(EVENTS)
        await nodes.in_sync("t", 0, 0, 1, 2)
        leader = await nodes.leader("t", 0)
        other = (leader + 1) % 3
        async with CursusClient(nodes.up[other].addresses["cursus"]) as away:
            for version in (1, 2):
                assert (await append(away, "k", version)).startswith(f"OK version={version} ")
            await away.ok("SAVE_SNAPSHOT topic=t key=k version=1 message=s")
            assert await away.say("READ_SNAPSHOT topic=t key=k") == (
                'OK snapshot={"version":1,"payload":"s"}'
            )
            host, port = nodes.up[leader].addresses["cursus"]
            assert json.loads(await away.say("READ_STREAM topic=t key=k")) == {
                "error": f"NOT_LEADER LEADER_IS {host}:{port}", "status": "ERROR",
            }  # fmt: skip
            await nodes.crash(leader)
            with trio.fail_after(60):
                while (answer := await append(away, "k", 3)) != "OK version=3 offset=3 partition=0":
                    assert answer.startswith("ERROR: "), answer
                    if "version_conflict current=3" in answer:
                        break  # the first try did it, but could not say so
            assert await away.say("STREAM_VERSION topic=t key=k") == "OK version=3"
        now = await nodes.leader("t", 0)
        async with CursusClient(nodes.up[now].addresses["cursus"]) as home:
            head, events = await read_stream(home, "topic=t key=k")
            assert head["snapshot"] == {"version": 1, "payload": "s"}
            assert [event.aggregate_version for event in events] == [2, 3]
