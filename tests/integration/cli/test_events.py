"""``paceline events`` on three nodes: a leader dies, and everything about it is told."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import pytest

from paceline_cluster.cli import main as cli
from paceline_cluster.errors import Exit
from paceline_cluster.testing import BlockingPaceline

pytestmark = pytest.mark.paceline(nodes=3)
HANG_S = 120


@contextmanager
def followed(paceline: BlockingPaceline) -> Iterator[IO[str]]:
    """What is told from now on; it ends without complaint at Ctrl-C."""
    command = [sys.executable, "-m", "paceline_cluster.cli.main", "events", "-f"]
    where = ["--bootstrap", ",".join(paceline.addresses("native")), "--output", "json"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, *where], stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline() == "watching\n"
        yield process.stdout
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG_S) == Exit.OK


def until(lines: IO[str], **said: object) -> dict[str, Any]:
    """The next event of which that is true; a test that waits for another one is ended."""
    for line in lines:
        found: dict[str, Any] = json.loads(line)
        if said.items() <= found.items():
            return found
    raise AssertionError(f"the end, without {said}")


@pytest.mark.timeout(HANG_S)
def test_the_death_of_a_leader_and_its_return_are_told(paceline: BlockingPaceline) -> None:
    paceline.create_topic("orders", partitions=1)
    at = {"topic": "orders", "partition": 0}
    with followed(paceline) as lines:
        paceline.create_topic("new", partitions=2)
        assert until(lines, kind="topic")["text"] == "new: 2 partitions new"
        dead = paceline.kill("leader of orders/0")
        assert until(lines, kind="node", node=dead)["level"] == "critical"
        while at not in until(lines, kind="election")["partitions"]:
            pass
        paceline.restart(dead)
        while at not in until(lines, kind="isr", node=dead, level="ok")["partitions"]:
            pass


def test_without_follow_it_ends_by_itself(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap = ",".join(paceline.addresses("native"))
    given = ["--bootstrap", bootstrap, "--for", "0.5", "--output", "json"]
    assert cli.main(["events", *given]) == Exit.OK
    assert "watching" in capsys.readouterr().err
