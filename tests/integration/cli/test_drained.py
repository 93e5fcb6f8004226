"""A drained node is seen as one, wherever somebody looks."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from paceline_cluster.cli import main as cli
from paceline_cluster.errors import Exit
from paceline_cluster.testing import BlockingPaceline

pytestmark = pytest.mark.paceline(nodes=3)
HANG_S = 60.0
DRAINED = "node 1 is drained, and leads nothing: 'paceline node revive 1' lets it lead again"


def page(paceline: BlockingPaceline, path: str) -> list[Any]:
    """What each node answers."""
    found = []
    for address in paceline.addresses("http"):
        with urllib.request.urlopen(f"http://{address}{path}", timeout=HANG_S) as answer:
            found.append(json.load(answer))
    return found


def until(holds: Callable[[], bool]) -> None:
    """Nodes learn of it one after the other, and any of them may be asked."""
    deadline = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_drained_node_is_named_by_all_that_look(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing said so: it was running, and healthy."""
    paceline.create_topic("orders", partitions=3)
    bootstrap = ",".join(paceline.addresses("native"))

    def text(*words: str) -> str:
        capsys.readouterr()
        assert cli.main([*words, "--bootstrap", bootstrap]) == Exit.OK
        return capsys.readouterr().out

    def data(*words: str) -> Any:
        return json.loads(text(*words, "--output", "json"))

    def states() -> list[list[str]]:
        """As commands and each node's pages show them."""
        told = [data("status")["nodes"], data("quorum", "describe")["nodes"]]
        told += [answer["nodes"] for answer in page(paceline, "/api/nodes")]
        told += [answer["nodes"] for answer in page(paceline, "/api/quorum")]
        return [[each["state"] for each in nodes] for nodes in told]

    def ready() -> list[list[str]]:
        answers = page(paceline, "/ready")
        assert all(each["ready"] for each in answers)
        return [
            [each["reason"] for each in answer["checks"] if each["name"] == "drained"]
            for answer in answers
        ]

    data("node", "drain", "1")
    until(lambda: states() == [["running", "drained", "running"]] * 8)
    until(lambda: ready() == [[DRAINED]] * 3)
    rows = [line.split() for line in text("status").splitlines()]
    assert ["1", "drained"] in [row[:2] for row in rows]
    found = data("health")
    assert (found["healthy"], found["reasons"]) == (True, [])
    [told] = [each for each in found["checks"] if each["level"] != "ok"]
    assert (told["name"], told["level"], told["node"]) == ("drained", "warning", 1)
    assert text("health").splitlines() == ["HEALTH", "healthy", "", "REMARKS", DRAINED]
    assert text("check", "health") == "OK health: the cluster is healthy\n"

    data("node", "revive", "1")
    until(lambda: states() == [["running"] * 3] * 8)
    until(lambda: ready() == [[""]] * 3)
    assert text("health").splitlines() == ["HEALTH", "healthy"]
