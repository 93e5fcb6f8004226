"""Transactions as operators see them: ``paceline transaction`` and the metrics."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from paceline.errors import ProducerFenced
from paceline.types import TopicPartition
from tests.integration.node.cursus_client import CursusClient
from tests.integration.node.machines import connect
from tests.integration.node.nodes import RunningNode, lone_node
from tests.integration.node.test_metrics import scrape

pytestmark = pytest.mark.virtual_time

ONE = {
    "topics.partitions": "3",
    "topics.replication_factor": "1",
    "topics.min_insync_replicas": "1",
}


async def paceline(node: RunningNode, *words: str, exit_code: int = 0, output: str = "json") -> Any:
    """What ``paceline transaction`` prints, or the error it ends with."""
    command = [sys.executable, "-m", "paceline_cluster.cli.main", "transaction", *words]
    done = await trio.run_process(
        [*command, "--bootstrap", node.native, "--output", output],
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    assert done.returncode == exit_code, (words, done.stderr)
    return json.loads(done.stdout) if done.stdout and output == "json" else done


@pytest.mark.virtual_time(False)  # commands are processes
async def test_commands_and_metrics(tmp_path: Path) -> None:
    async with lone_node(tmp_path, ONE) as node, connect(node.native) as client:
        await client.admin.create_topic("out", partitions=3)
        async with (
            CursusClient(node.addresses["cursus"]) as keeper,
            client.transactional_producer("writer") as producer,
        ):
            who = await keeper.ok("INIT_PRODUCER_ID transactional_id=keeper")
            for commits in (True, True, False):
                await producer.begin()
                await producer.send("out", b"x", partition=0)
                await (producer.commit() if commits else producer.abort())
            named = " ".join(f"{name}={value}" for name, value in who.items())
            await keeper.ok(f"BEGIN_TXN {named}")
            await keeper.ok(f"TXN_PUBLISH {named} topic=out seqNum=1 message=m")
            await producer.begin()
            await producer.send("out", b"open", partition=2)
            await producer.send_offsets({TopicPartition("out", 0): 7}, "team")
            await _look(node)
            aborted = await paceline(node, "abort", "writer")
            assert aborted == {
                "id": "writer", "family": "kafka", "aborted": True, "complete": True,
            }  # fmt: skip
            with pytest.raises(ProducerFenced):
                await producer.commit()
            refused = await paceline(node, "abort", "writer", exit_code=69, output="table")
            assert b"no transaction is open" in refused.stderr
            page = await scrape(node.addresses["http"])
            assert page.one("transactions_ended_total", result="abort") == 2
            assert page.one("transactions", family="kafka", state="complete_abort") == 1
            assert page.find("transactions", family="kafka", state="ongoing") == []


async def _look(node: RunningNode) -> None:
    """One transaction of each family is open."""
    listed = (await paceline(node, "list"))["transactions"]
    assert [(each["id"], each["family"], each["state"]) for each in listed] == [
        ("keeper", "cursus", "ongoing"),
        ("writer", "kafka", "ongoing"),
    ]
    assert (await paceline(node, "list", "--state", "empty")) == {"transactions": []}
    told = await paceline(node, "describe", "writer")
    assert told["written"] == [{"topic": "out", "partition": 2}]
    assert (told["groups"], told["timeout_ms"]) == (["team"], 60_000)
    staged = await paceline(node, "describe", "keeper", "--family", "cursus")
    assert (staged["staged"], staged["written"]) == (1, [])
    page = await scrape(node.addresses["http"])
    assert page.one("transactions", family="kafka", state="ongoing") == 1
    assert page.one("transactions", family="cursus", state="ongoing") == 1
    assert page.one("transactions_ended_total", result="commit") == 2
    assert page.one("transactions_ended_total", result="abort") == 1
    assert page.one("transaction_oldest_open_seconds") > 0
