"""An operator lets a replica lead that is not complete: ``paceline role elect --unclean``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import trio

from paceline.client import Position, connect
from tests.integration.node.nodes import Cluster, cluster, data_dir

ONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}
PARTITION = ("t", "0")


async def paceline(
    nodes: Cluster, *words: str, exit_code: int = 0
) -> subprocess.CompletedProcess[bytes]:
    (address,) = nodes.bootstrap_native
    command = [sys.executable, "-m", "paceline_cluster.cli.main", *words, "--bootstrap", address]
    done = await trio.run_process(
        [*command, "--output", "json"],
        stdin=b"",
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    assert done.returncode == exit_code, (words, done.stdout, done.stderr)
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
        assert b"are lost for good; confirm it with --yes" in unsure.stderr
        done = json.loads((await paceline(nodes, *led)).stdout)
        assert (done["leader"], done["unclean"]) == (0, True)
        async with (
            connect(nodes.up[0].native) as client,
            client.consumer("t", start=Position.at(4), stop=Position.LATEST) as consumer,
        ):
            read = [record.value async for record in consumer]
        assert read == [b"value %d" % number for number in range(4, 10)]
