"""Sick clusters, each made real: what ``paceline health``, ``paceline status`` and every node's
``/ready`` and ``/api/health`` say of them is one judgement (``paceline.health``)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from paceline.documents.survey import health_document
from paceline.health import OF_NODE, SERVING
from paceline_cluster import node_calls
from paceline_cluster.cli.survey_report import status_data
from paceline_cluster.survey import survey_addresses
from paceline_node.storage.memory_disk import MemoryDisk
from tests.integration.node import machines
from tests.integration.node.machines import LOOPBACK, MemoryMachines, connect
from tests.integration.node.nodes import Cluster, cluster
from tests.integration.node.test_metrics import get
from tests.integration.node.test_tls import Site

pytestmark = [pytest.mark.timeout(300), pytest.mark.virtual_time]

Finding = tuple[str, str, int | None]
"""The name of a check, its level, and whose it is."""
SOON_S = 300.0
"""Of virtual time, in which anything here is found."""
SLOW_S = 1.1


@asynccontextmanager
async def nodes_at(directory: Path, **flags: str) -> AsyncIterator[Cluster]:
    settings = {key.replace("__", "."): value for key, value in flags.items()}
    async with cluster(directory, flags=settings) as nodes:
        yield nodes


@pytest.fixture(autouse=True)
def _asked_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands reach the nodes where they are."""
    monkeypatch.setattr(node_calls, "dial_tcp", machines._dial)


def disk_of(nodes: Cluster, number: int) -> MemoryDisk:
    assert isinstance(nodes.machines, MemoryMachines)
    return nodes.machines.disks[number]


def findings(checks: Iterable[dict[str, Any]]) -> set[Finding]:
    """What of checks fails."""
    return {(each["name"], each["level"], each["node"]) for each in checks if each["level"] != "ok"}


async def judged(nodes: Cluster) -> set[Finding]:
    """What all say at about the same moment. Raises AssertionError where they do not agree."""
    health = health_document(await survey_addresses(nodes.bootstrap_native))
    status = status_data(None, await survey_addresses(nodes.bootstrap_native))
    row = findings(health["checks"])
    assert findings(status["checks"]) == row
    assert status["healthy"] is health["healthy"] is (not row)
    assert status["reasons"] == health["reasons"]
    for number, up in sorted(nodes.up.items()):
        status_code, _, body = await get(up.addresses["http"], "/ready")
        ready = json.loads(body)
        told = findings(ready["checks"])
        own = {each for each in told if each[0] in OF_NODE}
        assert own == {each for each in row if each[2] == number and each[0] in OF_NODE}
        assert told - own <= row
        serves = not any(name in SERVING and level == "critical" for name, level, _ in own)
        assert (status_code, ready["ready"]) == (200 if serves else 503, serves)
        reasons = {each["reason"] for each in ready["checks"] if each["name"] in SERVING}
        assert set(ready["failed"]) == reasons - {""}
        status_code, _, body = await get(up.addresses["http"], "/api/health")
        assert status_code == 200
        over_http = json.loads(body)
        assert over_http.keys() == health.keys()
        assert findings(over_http["checks"]) == row
        assert over_http["healthy"] is health["healthy"]
    return row


async def agreed(nodes: Cluster, *expected: Finding) -> None:
    """Wait until all say that, and nothing else."""
    seen: object = None
    with trio.move_on_after(SOON_S):
        while True:
            try:
                seen = await judged(nodes)
            except AssertionError as error:  # it changed in between
                seen = error
            if seen == set(expected):
                return
            await trio.sleep(0.5)
    raise AssertionError(f"expected {expected}, seen last: {seen}")


async def topic(nodes: Cluster, name: str, replicas: int, **configs: str) -> int:
    """A topic of one partition with ten records; which node leads it."""
    more = {key.replace("_", "."): value for key, value in configs.items()}
    async with connect(nodes.up[min(nodes.up)].native) as client:
        await client.admin.create_topic(
            name, partitions=1, replication_factor=replicas, configs=more
        )
        async with client.producer() as producer:
            for number in range(10):
                await producer.send(name, b"value %d" % number, partition=0)
    return await nodes.leader(name, 0)


@pytest.mark.slow
async def test_disks(tmp_path: Path) -> None:
    async with nodes_at(tmp_path, replication__lag_max_ms="5000") as nodes:
        leader = await topic(nodes, "t", 3)
        await agreed(nodes)
        sick = (leader + 1) % 3
        full, slow = ("disk-space", "critical", sick), ("disk-speed", "critical", sick)
        disk = disk_of(nodes, sick)
        disk.sync_delay_s = lambda: SLOW_S
        async with connect(nodes.up[leader].native) as client, client.producer() as producer:

            async def write() -> None:
                while True:
                    await producer.send("t", b"more", partition=0)
                    await trio.sleep(0.1)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(write)
                await agreed(nodes, slow)
                disk.sync_delay_s = None
                await agreed(nodes)
                nursery.cancel_scope.cancel()
        # A floor that the file system cannot reach: a setting that is wrong.
        await nodes.restart(sick, disk__min_free_bytes=str(1 << 60))
        await agreed(nodes, full)
        await nodes.restart(sick)
        await agreed(nodes)


async def test_nodes_that_are_away(tmp_path: Path) -> None:
    async with nodes_at(tmp_path) as nodes:
        leader = await topic(nodes, "t", 3)
        gone, other = (leader + 1) % 3, (leader + 2) % 3
        away, lacking = ("nodes", "critical", gone), ("replicas", "warning", None)
        await nodes.crash(gone)
        await agreed(nodes, away, lacking)
        async with connect(nodes.up[leader].native) as client:
            configs = {"min.insync.replicas": "3"}
            await client.admin.alter_topic("t", configs)
        strict = ("min-isr", "critical", None)
        await agreed(nodes, away, lacking, strict)
        # Two of three: no quorum.
        await nodes.crash(other)
        await agreed(
            nodes,
            away,
            lacking,
            strict,
            ("nodes", "critical", other),
            ("quorum", "critical", None),
            ("controller", "critical", leader),
            ("session", "critical", leader),
        )
        await nodes.start_all([gone, other])
        await agreed(nodes)


async def test_a_node_that_waits_for_room_before_it_serves(tmp_path: Path) -> None:
    async with nodes_at(tmp_path) as nodes, trio.open_nursery() as nursery:
        await nodes.crash(2)
        disk_of(nodes, 2).capacity_bytes = 1
        nursery.start_soon(nodes.start, 2)
        http = (LOOPBACK, nodes.ports(2)["http"])

        async def told() -> bool:
            status, _, body = await get(http, "/ready")
            row = findings(json.loads(body)["checks"])
            return (status, row) == (503, {("state", "critical", None)})

        await nodes.wait_for("it says that it starts", told)
        await agreed(nodes, ("nodes", "critical", 2), ("replicas", "warning", None))
        disk_of(nodes, 2).capacity_bytes = None
        await agreed(nodes)


async def test_a_sole_replica(tmp_path: Path) -> None:
    async with nodes_at(tmp_path) as nodes:
        owner = await topic(nodes, "alone", 1, min_insync_replicas="1")
        await nodes.crash(owner)
        unled = (
            ("replicas", "warning", None),
            ("leaders", "critical", None),
            ("min-isr", "critical", None),  # nobody is in sync any more
        )
        await agreed(nodes, ("nodes", "critical", owner), *unled)
        disk = disk_of(nodes, owner)
        [log] = [path for path, _ in disk.files() if "/alone-0." in path and path.endswith(".log")]
        content = bytearray(disk.content(log))
        content[content.index(b"value 3")] ^= 1
        disk.overwrite(log, bytes(content))
        await nodes.start(owner)
        await agreed(nodes, ("damage", "critical", owner), *unled)


@pytest.mark.slow
async def test_a_process_that_stood_still(tmp_path: Path) -> None:
    async with nodes_at(tmp_path) as nodes:
        await agreed(nodes)
        broker = nodes.up[1].node.broker
        assert broker is not None
        broker._watchdog.measured(1.5)  # virtual time does not pass while a task computes
        health = health_document(await survey_addresses(nodes.bootstrap_native))
        assert findings(health["checks"]) == {("event-loop", "warning", 1)}
        assert (health["healthy"], health["reasons"]) == (True, [])
        status, _, body = await get(nodes.up[1].addresses["http"], "/ready")
        assert status == 200
        assert findings(json.loads(body)["checks"]) == {("event-loop", "warning", 1)}
        await agreed(nodes)  # it is forgotten within a minute


async def test_certificates(tmp_path: Path) -> None:
    site = Site(tmp_path)
    flags = {}
    for number in range(3):
        name = f"node-{number}.paceline"
        pair = site.authority.issue(name, good_days=3 if number == 1 else 30)
        flags[number] = {
            "tls.certificate": pair.certificate,
            "tls.key": pair.key,
            "tls.peer_authority": site.authority.path,
        }
    async with cluster(tmp_path, peer_tls=flags.__getitem__) as nodes:
        soon = ("certificates", "warning", 1)
        await agreed(nodes, soon)
        await trio.Path(flags[0]["tls.certificate"]).write_text("no certificate")
        await nodes.up[0].node.reload_certificates()
        await agreed(nodes, soon, ("certificates", "warning", 0))
