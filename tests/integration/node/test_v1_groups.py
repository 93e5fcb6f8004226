"""V1 groups on three nodes: any node serves them, and they outlive their coordinator.

:class:`SeedConsumer` is written from the words of the protocol's published page alone: it knows
lines, the commands' arguments and payloads, and the error codes, and nothing else of Paceline.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trio

from paceline_node.app.node import Node
from paceline_node.groups.keys import GROUPS_TOPIC, partition_of
from paceline_node.groups.v1_files import GROUPS_FILE, OFFSETS_FILE, BadFile
from paceline_node.groups.v1_groups import v1_key
from paceline_node.storage.disk import RealDisk
from tests.integration.faults.faulty import FaultyDisk
from tests.integration.node.machines import data_dir, free_ports
from tests.integration.node.nodes import (
    GROUP_PARTITIONS,
    HANG_S,
    Cluster,
    V1Client,
    cluster,
    format_nodes,
    listener_ports,
    make_node,
    refusal,
    running,
)

NODES = (0, 1, 2)
LOOPS_MAX = 200


class SeedConsumer:
    """One endpoint for life; joins again whenever GENERATION_MISMATCH says so."""

    def __init__(self, client: V1Client, group: str, topic: str, name: str) -> None:
        self._client = client
        self._group, self._topic, self._name = group, topic, name
        self.generation = 0
        self.assigned: tuple[int, ...] = ()
        self.seen: list[tuple[int, int, str]] = []

    async def _request(self, command: str, args: str) -> dict[str, str] | None:
        """The payload's fields; None when the membership is stale."""
        for _ in range(LOOPS_MAX):
            reply = await self._client.call(command, args)
            if reply.startswith("OK"):
                payload = reply.removeprefix("OK").removeprefix("|")
                found = dict.fromkeys(("assigned",), "")
                if "[" in payload:
                    inside = payload[payload.index("[") + 1 : payload.index("]")]
                    found["assigned"] = inside
                for word in payload.split(" "):
                    name, _, value = word.partition("=")
                    found.setdefault(name, value)
                found["payload"] = payload
                return found
            code = reply.split("|")[1]
            if code == "GENERATION_MISMATCH":
                return None
            # Anything else may pass; the document knows no other code for group commands.
            await trio.sleep(0.05)
        raise AssertionError(f"{command} {args}: never answered")

    @property
    def _me(self) -> str:
        return f"{self._group} {self._topic} {self._name}"

    async def join(self) -> None:
        for _ in range(LOOPS_MAX):
            joined = await self._request("JOIN", f"{self._me} assignor=round_robin")
            assert joined is not None, "JOIN knows no generation"
            synced = await self._request("SYNC", f"{self._me} {joined['generation']}")
            if synced is not None:
                self.generation = int(synced["generation"])
                self.assigned = tuple(int(each) for each in synced["assigned"].split())
                return
        raise AssertionError("never in sync")

    async def round(self) -> None:
        """One turn of the loop: heartbeat, then read and commit what is assigned."""
        beat = await self._request("HEARTBEAT", f"{self._me} {self.generation}")
        if beat is None:
            await self.join()
            return
        assert beat["payload"] == "heartbeat=ok"
        for partition in self.assigned:
            if not await self._read(partition):
                await self.join()
                return

    async def _read(self, partition: int) -> bool:
        at = await self._request("OFFSET", f"{self._group} {self._topic} {partition}")
        assert at is not None
        found = await self._request("CONSUME", f"{self._topic} {partition} {at['offset']}")
        assert found is not None
        messages = found["payload"].removeprefix("messages=").rpartition(" hw=")[0]
        last = -1
        for item in filter(None, messages.split(",")):
            offset, _, value = item.partition(":")
            self.seen.append((partition, int(offset), value))
            last = int(offset)
        if last < 0:
            return True
        args = f"{self._me} {self.generation} {partition} {last + 1}"
        committed = await self._request("COMMIT", args)
        return committed is not None

    async def leave(self) -> None:
        assert await self._request("LEAVE", f"{self._me} {self.generation}") is not None


async def coordinator_of(nodes: Cluster, group: str) -> int:
    return await nodes.leader(GROUPS_TOPIC, partition_of(v1_key(group), GROUP_PARTITIONS))


@pytest.mark.virtual_time
async def test_the_consumer_loop_of_the_seed_on_every_node(tmp_path) -> None:
    async with (
        cluster(tmp_path) as nodes,
        nodes.v1(0) as first,
        nodes.v1(1) as second,
        nodes.v1(2) as third,
    ):
        for number in range(30):
            await third.ok("PRODUCE", f"orders key{number}:{number} acks=all")
        one = SeedConsumer(first, "team", "orders", "one")
        two = SeedConsumer(second, "team", "orders", "two")
        await one.join()
        assert (one.generation, one.assigned) == (2, (0, 1, 2))
        await two.join()
        assert (two.generation, two.assigned) == (3, (1,))
        await one.round()  # learns that its generation is over
        assert (one.generation, one.assigned) == (3, (0, 2))
        for _ in range(3):
            await one.round()
            await two.round()
        seen = one.seen + two.seen
        assert sorted(int(value) for _, _, value in seen) == list(range(30))
        await two.leave()
        await one.round()
        assert (one.generation, one.assigned) == (4, (0, 1, 2))
        # Progress is seen from anywhere, without membership.
        for client in (first, second, third):
            offsets = [
                int((await client.ok("OFFSET", f"team orders {partition}"))["offset"])
                for partition in range(3)
            ]
            assert sum(offsets) == 30


@pytest.mark.virtual_time
async def test_a_group_outlives_its_coordinator(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        async with nodes.v1(0) as client:
            await in_time(nodes, client, "PRODUCE", "orders k:v acks=all")
            await client.ok("JOIN", "team orders c")
            await client.ok("COMMIT", "team orders c 2 1 77")
        dead = await coordinator_of(nodes, "team")
        alive = next(number for number in NODES if number != dead)
        await nodes.crash(dead)
        async with nodes.v1(alive) as client:
            # The member is still the member, in its generation, at the new coordinator.
            consumer = SeedConsumer(client, "team", "orders", "c")
            consumer.generation, consumer.assigned = 2, ()
            await consumer.round()
            assert consumer.generation == 2
            assert (await client.ok("OFFSET", "team orders 1"))["offset"] == "77"
            committed = await client.ok("COMMIT", "team orders c 2 1 78")
            assert committed == {"committed": "true"}
            joined = await client.ok("JOIN", "team orders d")
            assert joined["generation"] == "3"


@pytest.mark.virtual_time
async def test_without_a_coordinator_it_is_unavailable_and_never_not_leader(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        async with nodes.v1(0) as client:
            await in_time(nodes, client, "PRODUCE", "orders k:v acks=all")
            await client.ok("JOIN", "team orders c")
        alive = await coordinator_of(nodes, "team")
        await nodes.crash(*[number for number in NODES if number != alive])
        async with nodes.v1(alive) as client:
            # Changes cannot be committed. What changes nothing is served until the session with
            # the controller is over.
            for line in (
                "LEAVE|team orders c 2",
                "JOIN|team orders d",
                "HEARTBEAT|team orders c 2",
            ):
                reply = await client.call(*line.split("|"))
                assert reply.split("|")[1] in ("UNAVAILABLE", "REPLICATION_TIMEOUT"), (line, reply)


def files(directory: Path, number: int) -> tuple[Any, Any] | None:
    """What both files of a node say; None while one is missing."""
    paths = [data_dir(directory, number) / name for name in (GROUPS_FILE, OFFSETS_FILE)]
    if not all(path.exists() for path in paths):
        return None
    texts = [path.read_text(encoding="utf-8") for path in paths]
    assert all(text.endswith("}\n") for text in texts)
    return json.loads(texts[0]), json.loads(texts[1])


async def shows_offset(directory: Path, group: str, offset: int) -> None:
    """Wait until node 0's file has ``offset`` for partition 0 of topic orders."""
    for _ in range(LOOPS_MAX):
        found = files(directory, 0)
        if found is not None and found[1][group]["orders"]["0"] == offset:
            return
        await trio.sleep(0.05)
    raise AssertionError(f"{OFFSETS_FILE} never showed {offset}: {found}")


async def test_every_node_shows_the_files_of_the_seed(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        async with nodes.v1(0) as client:
            await in_time(nodes, client, "PRODUCE", "orders k:v acks=all")
            await client.ok("JOIN", "team orders b assignor=range")
            await client.ok("JOIN", "team orders a")
            await client.ok("COMMIT", "team orders a 3 1 5")
            await client.ok("COMMIT", "team orders b 3 2 6")
        for number in NODES:

            async def shown(number: int = number) -> object:
                found = files(tmp_path, number)
                if found is None or found[1] != {"team": {"orders": {"1": 5, "2": 6}}}:
                    return None
                return found[0]

            groups = await nodes.wait_for(f"node {number} shows the commits", shown)
            assert isinstance(groups, dict)
            members = groups["team"].pop("members")
            assert groups == {
                "team": {
                    "topic": "orders",
                    "generation": 3,
                    "assignor": "range",
                    "member_order": ["b", "a"],
                    "assignments": {"a": [0, 1], "b": [2]},
                }
            }
            assert [each["consumer_id"] for each in members] == ["b", "a"]
            assert all(each["last_heartbeat_unix_ms"] > 1_700_000_000_000 for each in members)


OLD_GROUPS = (
    '{"g1":{"topic":"orders","generation":7,"assignor":"range","member_order":["c1"],'
    '"assignments":{"c1":[0,1,2]},"members":[{"consumer_id":"c1","last_heartbeat_unix_ms":1}]},'
    '"idle":{"topic":"t","generation":0,"member_order":null,"assignments":null,"members":null}}\n'
)
OLD_OFFSETS = '{"g1":{"orders":{"0":11,"2":13}},"g2":{"t":{"0":1}}}\n'


def leave_old_files(directory: Path) -> Path:
    """What an older broker left where node 0 will be; the place."""
    place = data_dir(directory, 0)
    place.mkdir(parents=True, exist_ok=True)
    (place / GROUPS_FILE).write_text(OLD_GROUPS)
    (place / OFFSETS_FILE).write_text(OLD_OFFSETS)
    return place


async def test_files_of_an_older_broker_are_taken_over_once(tmp_path) -> None:
    directory = leave_old_files(tmp_path)
    (port,) = free_ports(1)
    await format_nodes(tmp_path, [port])

    def node() -> Node:
        return make_node(tmp_path, 0, listener_ports(port), {})

    async with running(node(), tmp_path) as up, V1Client(up.v1) as client:
        assert (await client.ok("OFFSET", "g1 orders 0"))["offset"] == "11"
        assert (await client.ok("OFFSET", "g1 orders 2"))["offset"] == "13"
        assert (await client.ok("OFFSET", "g2 t 0"))["offset"] == "1"
        assert await client.call("HEARTBEAT", "g1 orders c1 7") == "OK|heartbeat=ok"
        assert (await client.ok("JOIN", "idle t c"))["generation"] == "2"
        await client.ok("COMMIT", "g1 orders c1 7 0 12")
        await shows_offset(tmp_path, "g1", 12)
        assert (directory / (GROUPS_FILE + ".imported")).read_text() == OLD_GROUPS
    # What the files say later does not matter: the log is the truth.
    (directory / OFFSETS_FILE).write_text('{"g1":{"orders":{"0":1}}}\n')
    async with running(node(), tmp_path) as up, V1Client(up.v1) as client:
        assert (await client.ok("OFFSET", "g1 orders 0"))["offset"] == "12"


@pytest.mark.slow
async def test_files_are_kept_until_each_partition_has_taken_its_part(tmp_path) -> None:
    """There was no room for one of the logs: what belongs there was said to be left, and both files
    were put aside and written over without it."""
    place = leave_old_files(tmp_path)
    (port,) = free_ports(1)
    await format_nodes(tmp_path, [port])
    late = partition_of(v1_key("g1"), GROUP_PARTITIONS)
    assert late != partition_of(v1_key("g2"), GROUP_PARTITIONS)
    plain = make_node(tmp_path, 0, listener_ports(port), {})
    assert isinstance(plain._env.disk, RealDisk)
    disk = FaultyDisk(plain._env.disk)
    disk.broken = lambda path: path.startswith(f"topics/{GROUPS_TOPIC}-{late}.")
    disk.write_error = errno.ENOSPC
    node = Node(plain._settings, dataclasses.replace(plain._env, disk=disk))
    with structlog.testing.capture_logs() as logs:
        async with running(node, tmp_path) as up, V1Client(up.v1) as client:
            assert (await client.ok("OFFSET", "g2 t 0"))["offset"] == "1"
            with trio.fail_after(HANG_S):
                # It is tried once a second, as often as the files are looked after.
                while len(disk.refused_writes) < 5:  # noqa: ASYNC110  a disk tells nobody
                    await trio.sleep(0.05)
            assert (place / (GROUPS_FILE + ".importing")).read_text() == OLD_GROUPS
            assert (place / (OFFSETS_FILE + ".importing")).read_text() == OLD_OFFSETS
            disk.write_error = 0
            assert (await client.ok("OFFSET", "g1 orders 0"))["offset"] == "11"
            assert await client.call("HEARTBEAT", "g1 orders c1 7") == "OK|heartbeat=ok"
            await client.ok("COMMIT", "g1 orders c1 7 0 12")
            await shows_offset(tmp_path, "g1", 12)
            assert (place / (OFFSETS_FILE + ".imported")).read_text() == OLD_OFFSETS
    assert not [each for each in logs if "not taken over" in each["event"]]


async def test_a_node_that_stops_before_all_is_taken_over_goes_on_when_it_is_back(tmp_path) -> None:
    """One log was not there. All that were had begun, so the files counted as the node's own."""
    place = leave_old_files(tmp_path)
    (port,) = free_ports(1)
    await format_nodes(tmp_path, [port])
    late = partition_of(v1_key("g1"), GROUP_PARTITIONS)
    plain = make_node(tmp_path, 0, listener_ports(port), {})
    assert isinstance(plain._env.disk, RealDisk)
    disk = FaultyDisk(plain._env.disk)
    disk.broken = lambda path: path.startswith(f"topics/{GROUPS_TOPIC}-{late}.")
    disk.write_error = errno.ENOSPC
    node = Node(plain._settings, dataclasses.replace(plain._env, disk=disk))
    async with running(node, tmp_path) as up, V1Client(up.v1) as client:
        with trio.fail_after(HANG_S):
            for group in (f"other-{number}" for number in range(200)):
                if partition_of(v1_key(group), GROUP_PARTITIONS) != late:
                    await client.ok("OFFSET", f"{group} t 0")  # its partition has begun
            while not disk.refused_writes:  # noqa: ASYNC110  a disk tells nobody
                await trio.sleep(0.05)
    node = make_node(tmp_path, 0, listener_ports(port), {})
    async with running(node, tmp_path) as up, V1Client(up.v1) as client:
        assert (await client.ok("OFFSET", "g1 orders 0"))["offset"] == "11"
        assert (await client.ok("OFFSET", "g2 t 0"))["offset"] == "1"
        await client.ok("COMMIT", "g1 orders c1 7 0 12")
        await shows_offset(tmp_path, "g1", 12)
        assert (place / (GROUPS_FILE + ".imported")).read_text() == OLD_GROUPS


async def in_time(nodes: Cluster, client: V1Client, command: str, args: str) -> dict[str, str]:
    """What is answered once the groups are served."""

    async def answered() -> dict[str, str] | None:
        try:
            return await client.ok(command, args)
        except AssertionError:
            return None

    return await nodes.wait_for(f"{command} {args}", answered)


async def shown_offset(directory: Path, offset: int) -> bool | None:
    """Whether node 0's file has ``offset``; None: not yet."""
    found = files(directory, 0)
    return (found is not None and found[1].get("team") == {"orders": {"0": offset}}) or None


@pytest.mark.parametrize("lost", [pytest.param("*/*.log", marks=pytest.mark.slow), "*"])
async def test_files_that_only_show_groups_keep_no_node_from_starting(tmp_path, lost: str) -> None:
    """Both lie on one disk, and go bad together: logs of groups, and what shows the groups. Without
    its logs a node looked there for the groups of an older broker, and did not start."""
    node, place = 0, data_dir(tmp_path, 0)
    async with cluster(tmp_path) as nodes:
        async with nodes.v1(node) as client:
            generation = (await in_time(nodes, client, "JOIN", "team orders c"))["generation"]
            await in_time(nodes, client, "COMMIT", f"team orders c {generation} 0 77")
        await nodes.wait_for("the file", partial(shown_offset, tmp_path, 77))
        await nodes.crash(node)
        for path in (place / "topics").glob(lost):
            if path.is_dir():
                shutil.rmtree(path)
            elif path.parent.name.startswith(GROUPS_TOPIC):
                path.unlink()
        for name in (GROUPS_FILE, OFFSETS_FILE):
            (place / name).write_text("{rotten")
        await nodes.start(node)
        for number in range(GROUP_PARTITIONS):
            await nodes.in_sync(GROUPS_TOPIC, number, *NODES)
        assert (place / (GROUPS_FILE + ".unreadable")).read_text() == "{rotten"
        async with nodes.v1(node) as client:
            assert (await in_time(nodes, client, "OFFSET", "team orders 0"))["offset"] == "77"
            generation = (await in_time(nodes, client, "JOIN", "team orders c"))["generation"]
            await in_time(nodes, client, "COMMIT", f"team orders c {generation} 0 78")
        await nodes.wait_for("the file", partial(shown_offset, tmp_path, 78))


async def test_a_bad_file_of_an_older_broker_is_refused(tmp_path) -> None:
    """Nobody else has what stands there: the node says so, and takes nothing over by halves."""
    place = data_dir(tmp_path, 0)
    place.mkdir(parents=True, exist_ok=True)
    (place / GROUPS_FILE).write_text("{rotten")
    (port,) = free_ports(1)
    await format_nodes(tmp_path, [port])
    error = await refusal(make_node(tmp_path, 0, listener_ports(port), {}))
    assert isinstance(error, BadFile)
    assert (place / GROUPS_FILE).read_text() == "{rotten"
