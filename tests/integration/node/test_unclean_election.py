"""An operator lets a replica lead that is not complete: ``paceline role elect --unclean``."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from paceline.client import Position
from tests.integration.node.machines import connect, data_dir
from tests.integration.node.nodes import Cluster, cluster

ONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}
PARTITION = ("t", "0")


async def paceline(
    nodes: Cluster, *words: str, exit_code: int | None = 0
) -> subprocess.CompletedProcess[bytes]:
    address = nodes.bootstrap_native[0]
    command = [sys.executable, "-m", "paceline_cluster.cli.main", *words, "--bootstrap", address]
    done = await trio.run_process(
        [*command, "--output", "json"],
        stdin=b"",
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    assert exit_code in (None, done.returncode), (words, done.stdout, done.stderr)
    return done


async def test_a_sole_replica_that_lost_records_leads_on_by_an_operators_word(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, 1, ONE) as nodes:
        async with connect(nodes.up[0].native) as client:
            await client.admin.create_topic("t", partitions=1)
            async with client.producer() as producer:
                for number in range(10):
                    await producer.send("t", b"value %d" % number, partition=0)
        await paceline(nodes, "role", "elect", *PARTITION, "--node", "0", exit_code=69)
        led = ("role", "elect", *PARTITION, "--node", "0", "--unclean", "--yes")
        refused = await paceline(nodes, *led, exit_code=69)
        assert b"nothing to recover" in refused.stderr

        await nodes.crash(0)
        [log] = data_dir(tmp_path, 0).glob("topics/t-0.*/*.log")
        content = bytearray(log.read_bytes())
        content[content.index(b"value 3")] ^= 1
        log.write_bytes(content)
        await nodes.start(0)

        told = await paceline(nodes, "health", exit_code=69)
        said = json.loads(told.stdout)
        assert "paceline role elect t 0 --node 0 --unclean" in " ".join(said["reasons"])
        [lost] = said["ranges"]
        assert (lost["node"], lost["topic"], lost["state"]) == (0, "t", "damaged")
        clean = await paceline(nodes, "role", "elect", *PARTITION, "--node", "0", exit_code=69)
        assert b"node 0: replica is damaged" in clean.stderr
        unsure = await paceline(nodes, *led[:-1], exit_code=64)
        assert b"are lost for good" in unsure.stderr
        assert b"confirm it with --yes" in unsure.stderr
        done = json.loads((await paceline(nodes, *led)).stdout)
        assert (done["leader"], done["unclean"]) == (0, True)
        async with (
            connect(nodes.up[0].native) as client,
            client.consumer("t", start=Position.at(4), stop=Position.LATEST) as consumer,
        ):
            read = [record.value async for record in consumer]
        assert read == [b"value %d" % number for number in range(4, 10)]


@pytest.mark.slow
async def test_two_lost_logs_and_a_stale_replica_are_told_and_given_up(tmp_path: Path) -> None:
    """Health said "1 of 18 partitions without leader" before, and nothing after the election."""
    async with cluster(tmp_path, 3) as nodes:
        async with connect(nodes.up[0].native) as client:
            await client.admin.create_topic("t", partitions=1)
            [described] = (await client.admin.describe_topic("t")).partitions
            first, second, stale = described.replicas
            async with client.producer() as producer:
                await producer.send("t", b"early", partition=0)
        await nodes.crash(stale)
        async with connect(nodes.up[first].native) as client, client.producer() as producer:
            for number in range(9):
                await producer.send("t", b"%d" % number, partition=0)
        await nodes.crash(first, second)
        for number in (first, second):
            [log] = data_dir(tmp_path, number).glob("topics/t-0.*")
            shutil.rmtree(log)
        await nodes.start_all([0, 1, 2])
        said = await told(nodes, lambda said: len(said["ranges"]) == 3)
        elect = f"paceline role elect t 0 --node {stale} --unclean"
        kinds = {
            each["node"]: (each["state"], each["start"], each["end"]) for each in said["ranges"]
        }
        lost = ("damaged", 0, 10)
        assert kinds == {first: lost, second: lost, stale: ("incomplete", 1, -1)}
        assert all(elect in each["reason"] for each in said["ranges"])
        reasons = " ".join(said["reasons"])
        assert f"node {first}: t/0 offsets 0..9: the whole log is missing; no replica" in reasons
        assert f"node {stale}: t/0 offsets 1 and on: this replica was not in sync" in reasons
        await paceline(nodes, *elect.split()[1:], "--yes")
        said = await told(nodes, lambda said: said["healthy"])
        [given_up] = said["ranges"]
        assert (given_up["node"], given_up["state"], given_up["start"]) == (stale, "given-up", 1)


async def told(nodes: Cluster, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """What ``paceline health`` says, once it says that."""
    with trio.fail_after(60):
        while True:
            done = await paceline(nodes, "health", exit_code=None)
            said: dict[str, Any] = json.loads(done.stdout)
            if until(said):
                return said
            await trio.sleep(0.1)
