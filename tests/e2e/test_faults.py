"""Faults made real: processes killed, frozen and stopped, disks wiped, filled and damaged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, wait_until
from tests.e2e.load import Load
from tests.e2e.v1 import V1Client, V1Error


def _create(cluster: Cluster, topic: str) -> None:
    cluster.run("topic", "create", topic, "--partitions", "3", "--replication-factor", "3")


def _all_in_sync(cluster: Cluster, topic: str) -> bool:
    return all(len(partition["isr"]) == 3 for partition in cluster.describe(topic))


def _lead(cluster: Cluster, topic: str, node: int) -> None:
    """Have a node lead partition 0, as soon as it may: only a replica in sync is elected, and any
    may fall out for a moment on a machine that has much to do."""

    def leads() -> bool:
        words = ("role", "set", topic, "0", "leader", "--node", str(node))
        result = cluster.run(*words, exit_code=None)
        if result.returncode:
            said = result.stderr.decode()
            assert "not in sync" in said or "is fenced" in said, said
            return False
        return bool(cluster.describe(topic)[0]["leader"] == node)

    wait_until(f"node {node} leads {topic}/0", leads)


def test_stopping_the_leader_under_load_fails_no_write(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    _create(shared_cluster, "drain")
    with Load(shared_cluster, "drain", tmp_path) as load:
        load.more()
        stopped = shared_cluster.json("node", "stop", "leader-of:drain/0")["node"]
        load.more()
        shared_cluster.run("node", "restart", str(stopped))
        load.more()
    assert load.require_complete() > 900
    shared_cluster.run("health", "--exit-when-healthy")


def test_leadership_moved_round_all_nodes_under_load(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    _create(shared_cluster, "round")
    with Load(shared_cluster, "round", tmp_path) as load:
        for node in (0, 1, 2, 0):
            _lead(shared_cluster, "round", node)
            load.more(100)
    load.require_complete()
    epochs = shared_cluster.describe("round")[0]["leader_epoch"]
    assert epochs >= 3


def test_frozen_leader_is_replaced_and_loses_nothing(
    shared_cluster: Cluster, tmp_path: Path
) -> None:
    _create(shared_cluster, "frozen")
    with Load(shared_cluster, "frozen", tmp_path) as load:
        load.more()
        frozen = shared_cluster.json("node", "suspend", "leader-of:frozen/0")["node"]
        load.more()
        shared_cluster.run("node", "resume", str(frozen))
        load.more()
    load.require_complete()
    shared_cluster.run("health", "--exit-when-healthy")


def test_node_on_a_wiped_directory_is_filled_again(shared_cluster: Cluster, tmp_path: Path) -> None:
    _create(shared_cluster, "wiped")
    with Load(shared_cluster, "wiped", tmp_path) as load:
        load.more()
        victim = shared_cluster.json("node", "kill", "leader-of:wiped/0")["node"]
        directory = Path(shared_cluster.node(victim)["dir"])
        config = directory / "node.toml"
        shared_cluster.run("node", "format", "--config", str(config), "--replace", "--yes")
        assert not list((directory / "topics").iterdir())
        load.more()
        shared_cluster.run("node", "restart", str(victim))
        load.more()
        wait_until("the wiped node in sync", lambda: _all_in_sync(shared_cluster, "wiped"))
    load.require_complete()
    shared_cluster.run("health", "--exit-when-healthy")


@pytest.mark.parametrize("role", [pytest.param("follower", marks=pytest.mark.slow), "leader"])
def test_bit_flip_below_the_high_watermark_is_repaired(
    shared_cluster: Cluster, tmp_path: Path, role: str
) -> None:
    topic = f"flip-{role}"
    _create(shared_cluster, topic)
    with Load(shared_cluster, topic, tmp_path) as load:
        load.more(500)
        leader = shared_cluster.describe(topic)[0]["leader"]
        node = leader if role == "leader" else (leader + 1) % 3
        shared_cluster.run("node", "kill", str(node))
        segment = _first_segment(shared_cluster, node, topic)
        _flip(segment, segment.stat().st_size // 2)
        findings = shared_cluster.run("log", "verify", str(segment.parent), exit_code=65)
        assert b"damaged" in findings.stdout
        shared_cluster.run("node", "restart", str(node))
        load.more()
        wait_until("the damaged replica in sync", lambda: _all_in_sync(shared_cluster, topic))
    load.require_complete()
    shared_cluster.run("log", "verify", str(segment.parent))


def _first_segment(cluster: Cluster, node: int, topic: str) -> Path:
    return sorted(cluster.partition_dir(node, topic, 0).glob("*.log"))[0]


def _flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ 0x10]))


def test_two_of_three_dead_never_acknowledges_and_heals(cluster: Cluster) -> None:
    _create(cluster, "quorum")
    cluster.run("produce", "quorum", stdin=b"before\n")
    survivor = cluster.describe("quorum")[0]["leader"]
    others = [node for node in range(3) if node != survivor]
    for node in others:
        cluster.run("node", "kill", str(node))
    with V1Client(cluster.address(survivor, "v1")) as client, pytest.raises(V1Error) as refused:
        client.produce("quorum", b"k", b"never")
    assert refused.value.code == "REPLICATION_TIMEOUT"
    words = ("produce", "quorum", "--acks", "all", "--timeout", "5")
    result = cluster.run(*words, stdin=b"never\n", exit_code=None)
    assert result.returncode in (69, 75), result.stderr
    cluster.run("node", "restart", str(others[0]))
    result = cluster.run("produce", "quorum", "--acks", "all", stdin=b"after\n")
    values = cluster.run("consume", "quorum", "--exit-at-end").stdout.split()
    assert values.count(b"before") == 1
    assert values.count(b"after") == 1
    cluster.run("node", "restart", str(others[1]))
    cluster.run("health", "--exit-when-healthy")


def test_second_process_on_a_directory_is_refused(shared_cluster: Cluster) -> None:
    config = Path(shared_cluster.node(0)["dir"]) / "node.toml"
    result = subprocess.run(
        [sys.executable, "-m", "paceline_node", "--config", str(config)],
        env=shared_cluster.env,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 3
    assert b"data directory" in result.stderr
    assert str(shared_cluster.node(0)["pid"]).encode() in result.stderr
    assert result.stdout == b""
    shared_cluster.run("health", "--exit-when-healthy")


def test_node_of_another_cluster_is_not_let_in(shared_cluster: Cluster, cluster: Cluster) -> None:
    """A node whose configuration points at the wrong cluster ends with one clear sentence."""
    mine = Path(cluster.node(2)["dir"])
    cluster.run("node", "stop", "2")
    theirs = Path(shared_cluster.node(2)["dir"]) / "node.toml"
    text = (mine / "node.toml").read_text()
    for line in theirs.read_text().splitlines():
        if line.startswith("bootstrap"):
            [own] = [row for row in text.splitlines() if row.startswith("bootstrap")]
            text = text.replace(own, line)
    (mine / "node.toml").write_text(text)
    shared_cluster.run("health", "--exit-when-healthy")
    before = _nodes(shared_cluster)
    cluster.run("node", "restart", "2", exit_code=None)
    wait_until("nothing changed", lambda: _nodes(shared_cluster) == before)
    shared_cluster.run("health", "--exit-when-healthy")


def _nodes(cluster: Cluster) -> list[dict[str, object]]:
    """What is known of each node that does not change by itself: leaders are balanced meanwhile."""
    kept = ("id", "pid", "state", "listeners")
    return [{name: node[name] for name in kept} for node in cluster.json("status")["nodes"]]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 MiB; needs root."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    mount = tmp_path / "small"
    mount.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(mount)]
    mounted = subprocess.run(words, check=False, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "--lazy", str(mount)], check=True)


@pytest.mark.root
def test_full_disk_refuses_writes_and_loses_none(
    cluster: Cluster, small_disk: Path, tmp_path: Path
) -> None:
    """The leader's disk fills up: nothing acknowledged is lost, and writes go on elsewhere or
    after room was made."""
    _create(cluster, "full")
    leader = cluster.describe("full")[0]["leader"]
    cluster.run("node", "stop", str(leader))
    directory = Path(cluster.node(leader)["dir"])
    moved = small_disk / "node"
    shutil.copytree(directory, moved)
    shutil.rmtree(directory)
    directory.symlink_to(moved)
    text = (moved / "node.toml").read_text()
    (moved / "node.toml").write_text(text + "\n[disk]\nmin_free_bytes = 1048576\n")
    cluster.run("node", "restart", str(leader))
    _lead(cluster, "full", leader)
    filler = small_disk / "filler"
    with Load(cluster, "full", tmp_path) as load:
        load.more()
        free = shutil.disk_usage(small_disk).free
        filler.write_bytes(bytes(max(0, free - 512 * 1024)))
        load.more(1000)
        filler.unlink()
        load.more()
    load.require_complete()
    cluster.run("health", "--exit-when-healthy")


def test_log_verify_finds_what_is_wrong(cluster: Cluster, tmp_path: Path) -> None:
    """A flipped byte, a cut tail, and replicas that differ."""
    _create(cluster, "check")
    lines = b"".join(b"k%d:%d\n" % (number % 7, number) for number in range(5000))
    cluster.run("produce", "check", "--key-delimiter", ":", stdin=lines)
    cluster.run("health", "--exit-when-healthy")
    directories = [cluster.partition_dir(node, "check", 0) for node in range(3)]
    cluster.run("down")
    for directory in directories:
        cluster.run("log", "verify", str(directory))
    cluster.run("log", "verify", *map(str, directories))
    segment = sorted(directories[0].glob("*.log"))[0]
    whole = segment.read_bytes()

    _flip(segment, len(whole) // 2)
    report = _findings(cluster, directories[:1])
    assert any(finding["problem"] == "damaged" for finding in report), report

    segment.write_bytes(whole[:-10])
    report = _findings(cluster, directories[:1])
    assert report, "a cut tail is not found"

    segment.write_bytes(whole)
    other = sorted(directories[1].glob("*.log"))[0]
    shutil.copyfile(_another_log(cluster, tmp_path), other)
    report = _findings(cluster, directories)
    assert any(finding["problem"] == "diverged" for finding in report), report


def _another_log(cluster: Cluster, folder: Path) -> Path:
    """A valid segment with other records of the same partition."""
    cluster.run("up", "--detach", "--dir", str(cluster.dir))
    cluster.run("topic", "create", "other", "--partitions", "3")
    lines = b"".join(b"k%d:x%d\n" % (number % 7, number) for number in range(5000))
    cluster.run("produce", "other", "--key-delimiter", ":", stdin=lines)
    cluster.run("health", "--exit-when-healthy")  # node 0 has them too
    source = sorted(cluster.partition_dir(0, "other", 0).glob("*.log"))[0]
    copy = folder / "other.log"
    shutil.copyfile(source, copy)
    cluster.run("down")
    return copy


def _findings(cluster: Cluster, directories: list[Path]) -> list[dict[str, str]]:
    words = ("log", "verify", *map(str, directories), "--output", "json")
    result = cluster.run(*words, exit_code=65)
    findings: list[dict[str, str]] = json.loads(result.stdout)["findings"]
    return findings
