"""Bytes that the disk of one real node cannot read (EIO), under load.

They are damage of a range: others have those records, so readers get them, the range is repaired,
and the node goes on. Only what nobody else has waits, and the operator is told of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.bad_sectors import BadSectors
from tests.e2e.cluster import Cluster, wait_until
from tests.e2e.conftest import clusters
from tests.e2e.load import Load

SEGMENT = 32768
SCRUBBED = ("--set", "log.scrub_interval_ms=3000")
"""Every closed segment is read once in this time: nobody else reads a follower's."""


@pytest.fixture
def bad(tmp_path: Path) -> BadSectors:
    return BadSectors(tmp_path)


@pytest.fixture(scope="module")
def scrubbed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    makers = clusters(request, tmp_path_factory.mktemp("scrubbed"))
    yield next(makers)(*SCRUBBED)
    next(makers, None)


def _create(cluster: Cluster, topic: str, *words: str, replicas: int = 3) -> None:
    small = ("--config", f"segment.bytes={SEGMENT}")
    cluster.run("topic", "create", topic, "--replication-factor", str(replicas), *small, *words)


def _leader(cluster: Cluster, topic: str) -> int:
    return int(cluster.describe(topic)[0]["leader"])


def _lead(cluster: Cluster, topic: str, node: int) -> None:
    def leads() -> bool:
        words = ("role", "set", topic, "0", "leader", "--node", str(node))
        cluster.run(*words, exit_code=None)
        return _leader(cluster, topic) == node

    wait_until(f"node {node} leads {topic}", leads)


def _segments(cluster: Cluster, node: int, topic: str) -> list[Path]:
    return sorted(cluster.partition_dir(node, topic, 0).glob("*.log"))


def _fill(load: Load, cluster: Cluster, node: int, topic: str) -> Path:
    """Write until a node has closed segments; its first."""
    while len(_segments(cluster, node, topic)) < 3:
        load.more()
    return _segments(cluster, node, topic)[0]


def _said(cluster: Cluster, node: int) -> str:
    return (Path(cluster.node(node)["dir"]) / "node.log").read_text(errors="replace")


def _reasons(cluster: Cluster) -> str:
    seen = cluster.run("health", "--output", "json", exit_code=None).stdout
    return " ".join(json.loads(seen)["reasons"])


def _repaired(cluster: Cluster, bad: BadSectors, topic: str, segment: Path) -> None:
    """The file was written anew, and everybody is in sync."""
    wait_until(f"{segment.name} repaired", lambda: not bad.is_struck(segment))
    wait_until("all in sync", lambda: len(cluster.describe(topic)[0]["isr"]) == 3)
    cluster.run("health", "--exit-when-healthy")


def _require_equal(cluster: Cluster, topic: str) -> None:
    """All replicas hold the same, and every byte of them is sound."""
    wait_until("equal replicas", lambda: len(set(_contents(cluster, topic))) == 1)
    directories = [str(cluster.partition_dir(node, topic, 0)) for node in range(3)]
    cluster.run("log", "verify", *directories)


def _contents(cluster: Cluster, topic: str) -> Iterator[bytes]:
    for node in range(3):
        yield b"".join(path.read_bytes() for path in _segments(cluster, node, topic))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_old_segment_of_the_leader(cluster: Cluster, bad: BadSectors, tmp_path: Path) -> None:
    """A consumer that comes upon it gets everything: somebody else leads, and the range is
    fetched from there."""
    _create(cluster, "old")
    victim = _leader(cluster, "old")
    bad.load_into(cluster, victim)
    process = cluster.node(victim)["pid"]
    _lead(cluster, "old", victim)
    with Load(cluster, "old", tmp_path) as load:
        segment = _fill(load, cluster, victim, "old")
        written = load.acked_count()
        bad.strike_middle(segment)
        seen = cluster.run("consume", "old", "--exit-at-end", "--output", "json").stdout
        assert seen.count(b"\n") >= written
        load.more()
        _repaired(cluster, bad, "old", segment)
    load.require_complete()
    assert "unreadable bytes" in _said(cluster, victim)
    assert "replica repaired" in _said(cluster, victim)
    assert cluster.node(victim)["pid"] == process
    assert _alive(process)
    _require_equal(cluster, "old")


@pytest.mark.slow
def test_segment_of_a_follower(scrubbed: Cluster, bad: BadSectors, tmp_path: Path) -> None:
    _create(scrubbed, "follower")
    victim = (_leader(scrubbed, "follower") + 1) % 3
    bad.load_into(scrubbed, victim)
    process = scrubbed.node(victim)["pid"]
    with Load(scrubbed, "follower", tmp_path) as load:
        segment = _fill(load, scrubbed, victim, "follower")
        bad.strike_middle(segment)
        load.more()
        _repaired(scrubbed, bad, "follower", segment)
        load.more()
    load.require_complete()
    assert "cannot be read (Input/output error)" in _said(scrubbed, victim)
    assert scrubbed.node(victim)["pid"] == process
    assert _alive(process)
    _require_equal(scrubbed, "follower")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "which"),
    [
        pytest.param("stop", 0, id="stop-oldest"),
        pytest.param("stop", -1, id="stop-newest"),
        pytest.param("kill", 0, id="kill-oldest"),
        pytest.param("kill", -1, id="kill-newest"),
    ],
)
def test_at_a_restart(
    scrubbed: Cluster, bad: BadSectors, tmp_path: Path, end: str, which: int
) -> None:
    topic = f"restart-{end}{which}"
    _create(scrubbed, topic)
    victim = _leader(scrubbed, topic)
    with Load(scrubbed, topic, tmp_path) as load:
        _fill(load, scrubbed, victim, topic)
        scrubbed.run("node", end, str(victim))
        segment = next(p for p in _segments(scrubbed, victim, topic)[which:] if p.stat().st_size)
        bad.strike_middle(segment)
        load.more()
        bad.load_into(scrubbed, victim)
        load.more(1000)  # the newest segment is closed by then
        _repaired(scrubbed, bad, topic, segment)
    load.require_complete()
    assert "cannot be read (Input/output error)" in _said(scrubbed, victim)
    _require_equal(scrubbed, topic)


def test_what_nobody_else_has_waits_and_is_named(
    make_cluster: Callable[..., Cluster], bad: BadSectors, tmp_path: Path
) -> None:
    """The other replica is down: readers stop at the range and health names it, while all else
    goes on. With the other one back, everything is read and the range is repaired."""
    cluster = make_cluster()
    _create(cluster, "pair", "--config", "min.insync.replicas=1", replicas=2)
    victim = _leader(cluster, "pair")
    [other] = (node for node in cluster.describe("pair")[0]["replicas"] if node != victim)
    bad.load_into(cluster, victim)
    _lead(cluster, "pair", victim)
    with Load(cluster, "pair", tmp_path) as load:
        segment = _fill(load, cluster, victim, "pair")
        cluster.run("node", "kill", str(other))
        load.more()
        bad.strike_middle(segment)
        words = ("consume", "pair", "--exit-at-end", "--output", "json")
        short = cluster.run(*words, exit_code=None)
        assert short.returncode, "a consumer was told that this is all"
        wait_until("named", lambda: "cannot be read" in _reasons(cluster))
        told = _reasons(cluster)
        assert "pair/0 offsets " in told
        assert "paceline topic trim pair --partition 0 --before" in told
        load.more()
        cluster.run("node", "restart", str(other))
        wait_until("repaired", lambda: not bad.is_struck(segment))
        load.more()
    load.require_complete()
    cluster.run("health", "--exit-when-healthy")
