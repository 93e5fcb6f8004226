"""``paceline top`` on three nodes: what it shows is what goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from paceline_cluster.cli import main as cli
from paceline_cluster.errors import Exit
from paceline_cluster.testing import BlockingPaceline

pytestmark = pytest.mark.paceline(nodes=3)
HANG_S = 120
_ON, _OFF = b"\x1b[?1049h", b"\x1b[?1049l"
"""A screen of its own, and the terminal's own again."""


@contextmanager
def written(paceline: BlockingPaceline, topic: str) -> Iterator[None]:
    """Records come all the time, and have begun to."""
    over, begun = threading.Event(), threading.Event()

    def write() -> None:
        with paceline.connect() as client, client.producer() as producer:
            while not over.is_set():
                producer.send(topic, b"x" * 100)
                begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert begun.wait(HANG_S)
        yield
    finally:
        over.set()
        writer.join(HANG_S)


def once(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str], *words: str
) -> dict[str, Any]:
    capsys.readouterr()
    bootstrap = ",".join(paceline.addresses("native"))
    given = ["--bootstrap", bootstrap, "--once", "--output", "json", *words]
    assert cli.main(["top", *given]) == Exit.OK
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_once_names_the_busiest(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("idle", "orders"):
        paceline.create_topic(name, partitions=1)
    with (
        paceline.connect() as client,
        client.group_consumer("orders", "tills") as reader,
        written(paceline, "orders"),
    ):
        next(iter(reader))
        reader.commit()
        found = once(paceline, capsys, "--interval", "1", "--rows", "2")
    assert found["healthy"] is True
    assert found["written_records"] > 0
    assert found["written_bytes"] > 100 * found["written_records"]
    assert found["read_records"] > 0
    assert found["write_p99_ms"] > 0
    assert [each["node"] for each in found["nodes"]] == [0, 1, 2]
    assert {each["state"] for each in found["nodes"]} == {"running"}
    topics = {each["name"]: each for each in found["topics"]}
    assert len(topics) == 2
    assert topics["orders"]["written_records"] > 0
    assert {each["topic"] for each in found["partitions"]} >= {"orders"}
    [group] = found["groups"]
    assert (group["group"], group["members"]) == ("tills", 1)
    assert group["lag"] > 0


def test_a_dead_node_is_shown_as_one(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    paceline.create_topic("orders", partitions=1)
    dead = paceline.kill("leader of orders/0")
    found = once(paceline, capsys, "--interval", "0.5")
    assert found["healthy"] is False
    nodes = {each["node"]: each for each in found["nodes"]}
    assert nodes[dead]["reason"]
    assert nodes[dead]["written_records"] is None
    assert nodes[dead]["state"] != "running"


def test_json_of_every_look_is_a_line(paceline: BlockingPaceline) -> None:
    paceline.create_topic("orders", partitions=1)
    command = [sys.executable, "-m", "paceline_cluster.cli.main", "top", "--interval", "0.2"]
    where = ["--bootstrap", paceline.addresses("native")[0], "--output", "json"]
    with subprocess.Popen([*command, *where], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        found = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG_S) == Exit.OK
    assert all(len(each["nodes"]) == 3 for each in found)


@pytest.mark.parametrize("lines", [40, 24])
def test_a_terminal_has_its_lines_back_at_the_end(paceline: BlockingPaceline, lines: int) -> None:
    """On a small one there is room for partitions, at the cost of their topics."""
    paceline.create_topic("orders", partitions=1)
    ours, theirs = os.openpty()
    environment = {**os.environ, "COLUMNS": "80", "LINES": str(lines), "TERM": "xterm"}
    command = [sys.executable, "-m", "paceline_cluster.cli.main", "top", "--interval", "0.2"]
    with subprocess.Popen(
        [*command, "--bootstrap", paceline.addresses("native")[0]],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        env=environment,
    ) as process:
        os.close(theirs)
        with open(ours, "rb", buffering=0) as screen:
            shown = b""
            while not (b"orders/0" in shown and b"healthy" in shown):
                shown += os.read(screen.fileno(), 65536)
            process.send_signal(signal.SIGINT)
            while _OFF not in shown:
                shown += os.read(screen.fileno(), 65536)
            # Its last words go to a terminal that is still there.
            assert process.wait(HANG_S) == Exit.OK
    assert shown.index(_ON) < shown.index(b"healthy")
    below = shown.partition(b"healthy")[2].decode().splitlines()
    assert all(len(line) <= 80 for line in below if "\x1b" not in line)
    assert (b"topic " in shown) == (lines > 24)
