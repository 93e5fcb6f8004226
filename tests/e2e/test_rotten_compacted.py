"""A follower's compacted log rots while everything runs; others write on, fetch, and the leader
dies. A replica that has to be filled anew counts for nothing until it is: nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, wait_until

KEYS = 400
VALUE = "v" * 200


class Topic:
    """A compacted topic of one partition, and the last value of each key that was acknowledged."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self.name = name
        self._round = 0
        cluster.run(
            *("topic", "create", name, "--replication-factor", "3", "--partitions", "1"),
            *("--config", "cleanup.policy=compact", "--config", "segment.bytes=32768"),
            *("--config", "min.insync.replicas=2", "--config", "min.cleanable.dirty.ratio=0.9"),
        )

    def write(self) -> None:
        """Every key gets a new value; all are acknowledged when this returns."""
        self._round += 1
        lines = "".join(f"k{key}:{self._round}-{VALUE}\n" for key in range(KEYS))
        words = ("produce", self.name, "--acks", "all", "--key-delimiter", ":")
        self._cluster.run(*words, stdin=lines.encode())

    @property
    def now(self) -> dict[str, object]:
        [partition] = self._cluster.describe(self.name)
        found: dict[str, object] = partition
        return found

    @property
    def leader(self) -> int:
        return int(str(self.now["leader"]))

    @property
    def isr(self) -> set[int]:
        members = self.now["isr"]
        assert isinstance(members, list)
        return set(members)

    def segments(self, node: int) -> list[Path]:
        return sorted(self._cluster.partition_dir(node, self.name, 0).glob("*.log"))

    def require_all(self) -> None:
        words = ("consume", self.name, "--exit-at-end", "--output", "json")
        seen = {}
        for line in self._cluster.run(*words).stdout.splitlines():
            record = json.loads(line)
            seen[record["key"]] = record["value"]
        assert seen == {f"k{key}": f"{self._round}-{VALUE}" for key in range(KEYS)}


def _rot(path: Path) -> None:
    with path.open("r+b") as file:
        for part in range(1, 8):
            position = path.stat().st_size * part // 8
            file.seek(position)
            [byte] = file.read(1)
            file.seek(position)
            file.write(bytes([byte ^ 0x10]))


@pytest.fixture
def scrubbed(make_cluster: Callable[..., Cluster]) -> Cluster:
    return make_cluster("--set", "log.scrub_interval_ms=2000")


def _said(cluster: Cluster, node: int) -> str:
    return (Path(cluster.node(node)["dir"]) / "node.log").read_text(errors="replace")


@pytest.mark.slow
@pytest.mark.parametrize("when", ["running", "stopped"])
def test_rotten_follower_is_not_elected(scrubbed: Cluster, when: str) -> None:
    """Running: the other follower is out of the ISR meanwhile and fetches its way back. Stopped:
    the rotten one comes back with damage. Whether it is repaired or not when the leader dies: only
    who has everything may lead."""
    cluster = scrubbed
    topic = Topic(cluster, "table")
    for _ in range(3):
        topic.write()
    leader = topic.leader
    rotten, other = (node for node in range(3) if node != leader)
    wait_until("all in sync", lambda: len(topic.isr) == 3)

    if when == "stopped":
        cluster.run("node", "kill", str(rotten))
        topic.write()
    else:
        cluster.run("node", "kill", str(other))
        topic.write()
    for segment in topic.segments(rotten)[:-1]:
        _rot(segment)
    cluster.run("node", "restart", str(rotten if when == "stopped" else other))
    wait_until("found", lambda: "replica is damaged" in _said(cluster, rotten))
    topic.write()
    cluster.run("node", "kill", str(leader))
    wait_until("another leads", lambda: topic.leader not in (-1, leader))
    topic.require_all()
    topic.write()
    cluster.run("node", "restart", str(leader))
    wait_until("all in sync", lambda: len(topic.isr) == 3)
    assert "replica repaired" in _said(cluster, rotten)
    for node in range(3):
        words = ("role", "set", "table", "0", "leader", "--node", str(node))
        wait_until(
            f"node {node} leads",
            lambda words=words, node=node: (  # type: ignore[misc]
                cluster.run(*words, exit_code=None).returncode == 0 or topic.leader == node
            ),
        )
        topic.require_all()
    cluster.run("log", "verify", *(str(cluster.partition_dir(n, "table", 0)) for n in range(3)))
