"""``paceline disk`` on three nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paceline_cluster.cli import main as cli
from paceline_cluster.errors import Exit
from paceline_cluster.testing import BlockingPaceline

pytestmark = pytest.mark.paceline(nodes=3)
BIG, RECORDS = b"x" * 10_000, 50


def test_what_is_largest_comes_first_and_sums_agree(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("small", "large"):
        paceline.create_topic(name, partitions=2)
    with paceline.connect() as client, client.producer() as producer:
        producer.send("small", b"a", partition=0)
        for _ in range(RECORDS):
            producer.submit("large", BIG, partition=1)
    bootstrap = ",".join(paceline.addresses("native"))

    def told(*words: str) -> str:
        capsys.readouterr()
        assert cli.main(["disk", "--bootstrap", bootstrap, *words]) == Exit.OK
        return capsys.readouterr().out

    found: dict[str, Any] = json.loads(told("--output", "json"))
    assert found["topics"][0]["name"] == "large"
    assert found["topics"][0]["disk_bytes"] > 2 * RECORDS * len(BIG)
    [first, *others] = found["partitions"]
    assert (first["topic"], first["partition"]) == ("large", 1)
    assert sum(each["size_bytes"] for each in first["replicas"]) == first["disk_bytes"]
    nodes = found["nodes"]
    assert [each["node"] for each in nodes] == [0, 1, 2]
    for each in nodes:
        lies = sum(
            replica["size_bytes"]
            for partition in (first, *others)
            for replica in partition["replicas"]
            if replica["node"] == each["node"]
        )
        assert each["log_bytes"] == lies
        assert each["reason"] is None
    table = told("--rows", "1")
    assert "large/1" in table
    assert "small" not in table


def test_a_dead_node_tells_nothing_and_why(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    paceline.create_topic("orders", partitions=1)
    dead = paceline.kill("leader of orders/0")
    bootstrap = ",".join(paceline.addresses("native"))
    capsys.readouterr()
    assert cli.main(["disk", "--bootstrap", bootstrap, "--output", "json"]) == Exit.OK
    nodes = json.loads(capsys.readouterr().out)["nodes"]
    assert nodes[dead]["log_bytes"] is None
    assert nodes[dead]["reason"]
    assert all(each["reason"] is None for each in nodes if each["node"] != dead)
