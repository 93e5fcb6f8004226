"""A voter's metadata is damaged while a topic is known to it and the dead leader only.

One voter is down when a topic is made; all processes are killed; the metadata of one of the two
that know the topic is lost or rotten; and the nodes start again, one by one, in every order. If the
damaged voter voted as if it were new, the one that was down would lead, and the topic were gone.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, wait_until

RECORDS = 300
AWAY, DAMAGED, THIRD = 2, 1, 0
ORDERS = tuple(itertools.permutations((AWAY, DAMAGED, THIRD)))


def _lose(directory: Path, *names: str) -> None:
    for name in names:
        shutil.rmtree(directory / name, ignore_errors=True)


def _rot(directory: Path) -> None:
    """Every file of one copy has a wrong byte."""
    for path in (directory / "metadata").iterdir():
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0x20
        path.write_bytes(content)


class Nodes:
    """The cluster's nodes as processes of this test, started and killed one by one."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self.dirs = {number: Path(cluster.node(number)["dir"]) for number in range(3)}

    def start(self, number: int) -> None:
        directory = self.dirs[number]
        with (directory / "node.log").open("ab") as log:
            self._running[number] = subprocess.Popen(
                [sys.executable, "-m", "paceline_node", "--config", str(directory / "node.toml")],
                stdout=log,
                stderr=log,
                env=self._cluster.env,
            )

    def kill(self, *numbers: int) -> None:
        """All at once: nobody sees another one die."""
        for number in numbers:
            if number in self._running:
                os.kill(self._running[number].pid, signal.SIGKILL)
        for number in numbers:
            if number in self._running:
                self._running.pop(number).wait()

    def log(self, number: int) -> str:
        return (self.dirs[number] / "node.log").read_text(errors="replace")

    def ask(self, number: int, *words: str) -> Any:
        """What a command prints that asks this node, or None where it fails."""
        host, port = self._cluster.address(number, "native")
        where = ("--bootstrap", f"{host}:{port}", "--output", "json")
        result = self._cluster.run(*words, *where, exit_code=None)
        return json.loads(result.stdout) if result.returncode == 0 else None

    def listens(self, number: int) -> bool:
        with socket.socket() as asking:
            return asking.connect_ex(self._cluster.address(number, "native")) == 0

    def has_three_voters(self) -> bool:
        return bool(self.ask(THIRD, "quorum", "describe")["voters"] == [0, 1, 2])

    def wait_healthy(self) -> None:
        wait_until("healthy", lambda: all(self.ask(n, "health") is not None for n in range(3)))


@contextmanager
def nodes_of(cluster: Cluster) -> Iterator[Nodes]:
    cluster.run("down")
    nodes = Nodes(cluster)
    try:
        for number in range(3):
            nodes.start(number)
        nodes.wait_healthy()
        yield nodes
    finally:
        nodes.kill(*range(3))


def _make_known_to_two(cluster: Cluster, nodes: Nodes, topic: str) -> None:
    nodes.kill(AWAY)
    words = ("topic", "create", topic, "--partitions", "1", "--replication-factor", "3")
    wait_until("topic made", lambda: cluster.run(*words, exit_code=None).returncode == 0)
    lines = b"".join(b"%d\n" % number for number in range(RECORDS))
    cluster.run("produce", topic, "--acks", "all", stdin=lines)


def _values(cluster: Cluster, topic: str) -> list[int]:
    seen = cluster.run("consume", topic, "--exit-at-end", "--output", "json").stdout
    return [int(json.loads(line)["value"]) for line in seen.splitlines()]


def _start_one_by_one(nodes: Nodes, order: tuple[int, ...]) -> None:
    """The last one starts when the two before have had time to elect somebody, if they can: each is
    asked twice, and who follows no quorum leaves the command waiting for three seconds."""
    first, second = order[:2]
    nodes.start(first)
    nodes.start(second)
    wait_until("both listen", lambda: nodes.listens(first) and nodes.listens(second))
    for number in (first, second, first, second):
        status = nodes.ask(number, "status")
        if status is not None and status["controller"] in order[:2]:
            break
    nodes.start(order[2])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "orders"),
    [
        pytest.param("one copy lost", ORDERS[:2]),
        pytest.param("one copy rotten", ORDERS[2:3]),
        pytest.param("one copy rotten", ORDERS[3:4]),
        ("both copies lost", ORDERS[:1]),
        pytest.param("both copies lost", ORDERS[2:3]),
    ],
)
def test_a_damaged_voter_forgets_nothing(
    make_cluster: Callable[..., Cluster], damage: str, orders: tuple[tuple[int, ...], ...]
) -> None:
    cluster = make_cluster()
    with nodes_of(cluster) as nodes:
        for number, order in enumerate(orders):
            topic = f"t{number}"
            _make_known_to_two(cluster, nodes, topic)
            nodes.kill(THIRD, DAMAGED)
            if damage == "one copy lost":
                copies = ("metadata", "metadata.copy")
                _lose(nodes.dirs[DAMAGED], copies[number % 2])
            elif damage == "one copy rotten":
                _rot(nodes.dirs[DAMAGED])
            else:
                _lose(nodes.dirs[DAMAGED], "metadata", "metadata.copy")
            _start_one_by_one(nodes, order)
            nodes.wait_healthy()
            assert _values(cluster, topic) == list(range(RECORDS))
            wait_until("three voters", nodes.has_three_voters)
        told = nodes.log(DAMAGED)
        if damage == "both copies lost":
            assert "does not know what it promised" in told
        else:
            assert "metadata mended from its copy" in told
