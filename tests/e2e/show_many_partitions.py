"""``scripts/show-many-partitions``: what happens to a topic of thousands of partitions.

Real nodes; the topic has two replicas of each partition. Beside it a producer writes to a topic of
one partition and three replicas with ``acks=all``. Reported is how long each step takes, how late
the nodes' loops were, the longest steps on them, and the longest that the producer waited. Nobody
may lose the session with the controller, or the controller its leadership.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import click

from paceline.client.blocking import connect
from tests.e2e.cluster import Cluster, wait_until
from tests.e2e.show_repair import Loops

WIDE, BESIDE = "wide", "beside"
STEP = 2000
"""Partitions that one request may add."""
PATIENCE_S = 1800.0
LOST = ("session expired", "stopped being the active controller")
"""What a node's log says of what must not happen."""


class Writer:
    """Writes one record after the other until it is stopped."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._end = Event()
        self._thread = Thread(target=self._run)
        self.count = 0
        self.longest_s = 0.0

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        with connect(self._address) as client, client.producer() as producer:
            while not self._end.wait(0.01):
                asked = time.monotonic()
                producer.send(BESIDE, b"x" * 100, partition=0)
                self.longest_s = max(self.longest_s, time.monotonic() - asked)
                self.count += 1


@contextmanager
def step(what: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    click.echo(f"{what}: {time.monotonic() - began:.1f} s")


def is_healthy(cluster: Cluster) -> bool:
    return cluster.run("health", exit_code=None).returncode == 0


def directories(cluster: Cluster) -> int:
    return sum(1 for _ in cluster.dir.glob(f"node-*/topics/{WIDE}-*"))


def lost(cluster: Cluster) -> list[str]:
    """Lines of the nodes' logs that tell of a session, or a leadership, that was lost."""
    found = []
    for path in sorted(cluster.dir.glob("node-*/node.log")):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        found += [f"{path.parent.name}: {line}" for line in lines if any(x in line for x in LOST)]
    return found


def make(cluster: Cluster, partitions: int) -> None:
    words = ("--partitions", str(min(STEP, partitions)), "--replication-factor", "2")
    cluster.run("topic", "create", WIDE, *words)
    for have in range(STEP, partitions, STEP):
        cluster.run("topic", "add-partitions", WIDE, str(min(have + STEP, partitions)))
    replicas = 2 * partitions
    wait_until(
        "all logs made", lambda: directories(cluster) == replicas, timeout_s=PATIENCE_S, every_s=1
    )
    wait_until("healthy", lambda: is_healthy(cluster), timeout_s=PATIENCE_S, every_s=1)


def story(cluster: Cluster, partitions: int, loops: Loops) -> None:
    def whole() -> None:
        wait_until("healthy", lambda: is_healthy(cluster), timeout_s=PATIENCE_S, every_s=0.5)

    def led() -> bool:
        return all(partition["leader"] not in (-1, 2) for partition in cluster.describe(WIDE))

    with step(f"{partitions:,} partitions made, two replicas of each in sync"):
        make(cluster, partitions)
        loops.look()
    with step("min.insync.replicas lowered, retention changed"):
        cluster.run("topic", "alter", WIDE, "--config", "min.insync.replicas=1")
        cluster.run("topic", "alter", WIDE, "--config", "retention.ms=86400000")
        whole()
        loops.look()
    with step("a node killed, and all its partitions led by others"):
        cluster.run("node", "kill", "2")
        wait_until("led by others", led, timeout_s=PATIENCE_S)
    with step("the node started again, and all in sync"):
        patience = ("--timeout", "600")
        cluster.run("up", "--detach", "--dir", str(cluster.dir), *patience, timeout_s=700)
        whole()
        loops.look()
    with step("the topic deleted, and its directories gone"):
        cluster.run("topic", "delete", WIDE, "--yes")
        wait_until("gone", lambda: not directories(cluster), timeout_s=PATIENCE_S, every_s=0.5)
        loops.look()


@click.command()
@click.argument("partitions", type=click.IntRange(min=2, max=10_000), default=10_000)
def main(partitions: int) -> None:
    """The story of a topic of PARTITIONS partitions."""
    base = Path(tempfile.mkdtemp(prefix="paceline-many-"))
    cluster = Cluster(base)
    try:
        cluster.up("--nodes", "3", "--set", "metrics.slice_clock=cpu")
        cluster.run("topic", "create", BESIDE, "--partitions", "1", "--replication-factor", "3")
        loops = Loops(cluster)
        host, port = cluster.address(0, "native")
        with Writer(f"{host}:{port}") as writer:
            story(cluster, partitions, loops)
        click.echo(
            f"producer: {writer.count:,} records, longest wait {writer.longest_s * 1000:.0f} ms"
        )
        loops.report()
        found = lost(cluster)
        for line in found:
            click.echo(line)
        sys.exit("verdict: sessions were lost" if found else None)
    finally:
        cluster.purge()
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
