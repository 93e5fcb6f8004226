"""Cursus groups on one node and on three, by the bytes that clients see."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from tests.integration.node.cursus_client import ONE, CursusClient, batch, numbered, payloads
from tests.integration.node.nodes import HANG_S, RunningNode, cluster, lone_node

pytestmark = pytest.mark.virtual_time

THREE = {"topics.replication_factor": "3", "topics.min_insync_replicas": "2"}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RunningNode]:
    async with lone_node(tmp_path, ONE) as up:
        yield up


@pytest.fixture
async def client(node: RunningNode) -> AsyncIterator[CursusClient]:
    async with CursusClient(node.addresses["cursus"]) as connection:
        await connection.create("t 3")
        yield connection


async def join(client: CursusClient, name: str, group: str = "g") -> tuple[str, str, list[int]]:
    answer = await client.say(f"JOIN_GROUP topic=t group={group} member={name}")
    word, generation, member, rest = answer.split(" ", 3)
    assert (word, rest[:13], rest[-1]) == ("OK", "assignments=[", "]"), answer
    partitions = [int(each) for each in rest[13:-1].split()]
    return generation.removeprefix("generation="), member.removeprefix("member="), partitions


async def test_joining_leaving_and_what_members_are_told(client: CursusClient) -> None:
    found = await client.ok("FIND_COORDINATOR group=g")
    assert (found["coordinator_id"], found["coordinator_type"]) == ("0", "group")
    assert await client.say("FETCH_OFFSET topic=t partition=0 group=g") == (
        "ERROR: group_not_found group=g"
    )
    assert await client.say("SUBSCRIBE t g") == "OK group=g topic=t registered=true"
    assert await client.say("FETCH_OFFSET topic=t partition=0 group=g") == "OK offset=0"
    generation, first, partitions = await join(client, "a")
    assert (generation, first[:2], len(first), partitions) == ("1", "a-", 6, [0, 1, 2])
    generation, second, _ = await join(client, "b")
    assert generation == "2"
    stale = await client.say(f"HEARTBEAT topic=t group=g member={first} generation=1")
    assert stale == (
        f"ERROR: GEN_MISMATCH current=2 requested=1 group=g member={first}"
        " reason=REBALANCE_REQUIRED"
    )
    # Joining again with what it is called, or with its id, makes no new generation. The first may
    # be another process of that name, so it gets an id of its own.
    generation, taken, partitions = await join(client, "a")
    assert (generation, taken != first, partitions) == ("2", True, [0, 1])
    assert await client.say(f"HEARTBEAT topic=t group=g member={first} generation=2") == (
        f"ERROR: member_not_found member={first} group=g reason=REBALANCE_REQUIRED"
    )
    first = taken
    assert (await join(client, second)) == ("2", second, [2])
    assert await client.say(f"SYNC_GROUP t g {second} 2") == (
        f"OK generation=2 member={second} assignments=[2]"
    )
    assert await client.say(f"HEARTBEAT t g b {second} 2") == f"OK member={second} generation=2"
    assert await client.say(f"JOIN_GROUP topic=t group=g member={second} generation=2") == (
        f"OK generation=2 member={second} assignments=[2] resumed=true"
    )
    status = json.loads(await client.say("GROUP_STATUS group=g"))
    assert (status["state"], status["member_count"], status["generation"]) == ("Stable", 2, 2)
    assert [each["assignments"] for each in status["members"]] == [[0, 1], [2]]
    assert status["members"][0]["last_heartbeat"].endswith("Z")
    assert await client.say("LIST_GROUPS") == "OK count=1 groups=g"
    assert await client.say("LEAVE_GROUP t g a") == f"OK group=g member={first} left=true"
    assert await client.say(f"LEAVE_GROUP topic=t group=g member={second}") == (
        f"OK group=g member={second} left=true"
    )
    assert await client.say(f"HEARTBEAT topic=t group=g member={second} generation=4") == (
        f"ERROR: member_not_found member={second} group=g reason=REBALANCE_REQUIRED"
    )
    assert json.loads(await client.say("GROUP_STATUS group=g"))["state"] == "Dead"
    assert await client.say("JOIN_GROUP topic=none group=g member=a") == (
        "ERROR: topic_not_found topic=none"
    )


async def test_commits_only_go_forwards_and_all_or_none(client: CursusClient) -> None:
    _, first, _ = await join(client, "a")
    line = f"topic=t group=g member={first} generation=1"
    assert await client.say(f"COMMIT_OFFSET {line} partition=0 offset=3") == "OK"
    assert await client.say(f"COMMIT_OFFSET {line} partition=0 offset=3") == "OK"
    regression = (
        'ERROR: offset_regression reason="offset regression group=g topic=t partition=0'
        ' current=3 got=1"'
    )
    assert await client.say(f"COMMIT_OFFSET {line} partition=0 offset=1") == regression
    assert await client.say(f"BATCH_COMMIT {line} P1:5,P0:1") == regression
    assert await client.say("FETCH_OFFSET topic=t partition=1 group=g") == "OK offset=0"
    assert await client.say(f"BATCH_COMMIT {line} P0:10,P1:20") == "OK batched=2"
    assert await client.say(f"BATCH_COMMIT t g {first} 1 2:30") == "OK batched=1"
    assert await client.say("FETCH_OFFSET topic=t* partition=2 group=g") == "OK offset=30"
    assert await client.say("COMMIT t g 2 29") == regression.replace(
        "partition=0 current=3 got=1", "partition=2 current=30 got=29"
    )
    assert await client.say("COMMIT t other 0 7") == "OK"
    assert await client.say("FETCH_OFFSET topic=t partition=0 group=other") == "OK offset=7"
    # What a member had it may still move forwards; what it never had is another's.
    _, second, partitions = await join(client, "b")
    await join(client, first)
    assert partitions == [2]
    line = f"topic=t group=g member={first} generation=2"
    assert await client.say(f"COMMIT_OFFSET {line} partition=2 offset=31") == "OK"
    assert await client.say(f"COMMIT_OFFSET {line} partition=2 offset=5") == "OK"
    assert await client.say("FETCH_OFFSET topic=t partition=2 group=g") == "OK offset=31"
    line = f"topic=t group=g member={second} generation=2"
    assert await client.say(f"COMMIT_OFFSET {line} partition=0 offset=50") == (
        f"ERROR: NOT_OWNER partition=0 member={second} group=g generation=2"
    )


async def test_a_deleted_topic_takes_its_groups_along(client: CursusClient) -> None:
    _, first, _ = await join(client, "a")
    line = f"topic=t group=g member={first} generation=1"
    assert await client.say(f"COMMIT_OFFSET {line} partition=0 offset=3") == "OK"
    await client.ok("DELETE topic=t")
    assert await client.say("GROUP_STATUS group=g") == "ERROR: group_not_found group=g"
    await client.create("topic=t partitions=3")
    told, second, _ = await join(client, "a")
    assert (told, second != first) == ("1", True)
    assert await client.say("FETCH_OFFSET topic=t partition=0 group=g") == "OK offset=0"


async def test_readers_begin_at_the_commit_and_old_generations_end(client: CursusClient) -> None:
    await client.produce(batch("t", numbered(1, 5)))
    _, first, _ = await join(client, "a")
    await client.ok(
        f"COMMIT_OFFSET topic=t partition=0 group=g offset=3 member={first} generation=1"
    )
    line = f"CONSUME topic=t partition=0 member={first} group=g"
    assert payloads(await client.read(f"{line} generation=1")) == [b"4", b"5"]
    assert payloads(await client.read(f"{line} generation=1 offset=1")) == [b"4", b"5"]
    assert payloads(await client.read(f"{line} generation=1 offset=4")) == [b"5"]
    assert len(await client.read("CONSUME t 0 0")) == 5
    await join(client, "b")
    assert (await client.say(f"{line} generation=1")).startswith("ERROR: GEN_MISMATCH current=2")
    assert (
        await client.say(f"STREAM topic=t partition=0 member={first} group=g generation=1")
    ) == (
        f"ERROR: GEN_MISMATCH current=2 requested=1 group=g member={first}"
        " reason=REBALANCE_REQUIRED"
    )


@pytest.mark.slow
async def test_silent_members_go_in_one_generation(tmp_path: Path) -> None:
    flags = {**ONE, "cursus.session_timeout_ms": "3000"}
    async with (
        lone_node(tmp_path, flags) as node,
        CursusClient(node.addresses["cursus"]) as client,
    ):
        await client.create("t 3")
        for name in ("a", "b", "c"):
            await join(client, name)
        with trio.fail_after(30):
            while (status := json.loads(await client.say("GROUP_STATUS group=g")))["member_count"]:
                pass
        assert (status["state"], status["generation"]) == ("Dead", 4)


async def test_rejoining_members_do_not_storm(client: CursusClient) -> None:
    """Clients that join with what they call themselves whenever they are refused settle down."""
    members = {}
    for name in ("a", "b", "c"):
        generation, member, _ = await join(client, name)
        members[name] = (member, generation)
    for _ in range(2):
        for name, (member, generation) in list(members.items()):
            line = f"HEARTBEAT topic=t group=g member={member} generation={generation}"
            if not (await client.say(line)).startswith("OK"):
                generation, member, _ = await join(client, name)
                members[name] = (member, generation)
    assert {generation for _, generation in members.values()} == {"3"}
    status = json.loads(await client.say("GROUP_STATUS group=g"))
    assert (status["generation"], status["member_count"]) == (3, 3)


async def test_coordinators_of_a_cluster(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3, THREE) as nodes:
        addresses = {n: up.addresses["cursus"] for n, up in nodes.up.items()}
        async with CursusClient(addresses[0]) as client:
            await client.create("t 3")
            found = await client.ok("FIND_COORDINATOR group=g")
        coordinator = int(found["coordinator_id"])
        other = (coordinator + 1) % 3
        async with CursusClient(addresses[other]) as away:
            host, port = addresses[coordinator]
            assert await away.say("JOIN_GROUP topic=t group=g member=a") == (
                f"ERROR: NOT_COORDINATOR host={host} port={port}"
            )
            # The page's commands are carried out from anywhere.
            joined = await away.ok("JOIN_GROUP t g a")
            assert joined["generation"] == "1"
            assert await away.say(f"BATCH_COMMIT t g {joined['member']} 1 0:5") == "OK batched=1"
            assert await away.say("LIST_GROUPS") == "OK count=1 groups=g"
            await nodes.crash(coordinator)
            with trio.fail_after(60):
                while (answer := await away.say("COMMIT t g 0 6")) != "OK":
                    assert answer.startswith("ERROR: "), answer
                while True:
                    found = await away.ok("FIND_COORDINATOR group=g")
                    if int(found["coordinator_id"]) != coordinator:
                        break
            async with CursusClient((found["host"], int(found["port"]))) as survivor:
                line = "FETCH_OFFSET topic=t partition=0 group=g"
                assert await survivor.say(line) == "OK offset=6"
                # The member's place survived with its coordinator's successor.
                assert (await join(survivor, joined["member"]))[:2] == ("1", joined["member"])


async def test_a_reader_of_an_old_generation_is_refused_by_every_leader(tmp_path: Path) -> None:
    """Also by one that has no replica of the group's state: of four nodes the one with least to do
    leads something."""
    async with cluster(tmp_path, 4, THREE) as nodes:
        addresses = {n: up.addresses["cursus"] for n, up in nodes.up.items()}
        async with CursusClient(addresses[0]) as client:
            await client.create("t 8")
            leaders = (await client.ok("METADATA topic=t"))["leaders"].split(",")
            found = await client.ok("FIND_COORDINATOR group=g")
        async with CursusClient((found["host"], int(found["port"]))) as keeper:
            generation, old, _ = await join(keeper, "a")
            assert (generation, (await join(keeper, "b"))[0]) == ("1", "2")
            for number, leader in enumerate(leaders):
                host, _, port = leader.rpartition(":")
                async with CursusClient((host, int(port))) as client:
                    for offset in (0, 1, 3):
                        await refused(client, number, offset, old)


async def refused(client: CursusClient, partition: int, offset: int, member: str) -> None:
    """A reader of generation 1 is, at the latest when this node has heard of generation 2."""
    line = f"CONSUME topic=t partition={partition} offset={offset}"
    with trio.fail_after(HANG_S):
        while True:
            await client.send(f"{line} group=g member={member} generation=1".encode())
            answer = await client.receive()
            if answer.startswith(b"ERROR: "):
                break
    assert answer.decode() == (
        f"ERROR: GEN_MISMATCH current=2 requested=1 group=g member={member}"
        " reason=REBALANCE_REQUIRED"
    )
