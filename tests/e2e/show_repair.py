"""``scripts/show-repair``: the oldest segment of a large log is repaired while a producer writes.

The log is made by hand, so that its size costs nothing: every batch is the same megabyte of zeros,
of which files keep the first bytes only. The nodes are told that all of it was synced, or they
would write it anew after the kill, holes included. One byte of the leader's oldest segment is then
changed on the disk, and a consumer comes upon it. Reported is how long the repair takes, the
longest step that any task took of a node's loop meanwhile, by processor time, and the longest that
the producer waited for an acknowledgement.
"""

from __future__ import annotations

import json
import re
import shutil
import struct
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import click
import trio

from paceline.client.blocking import connect
from paceline.wire.batch import build_value_batch
from paceline_node.storage.disk import RealDisk
from paceline_node.storage.durability import Marked
from paceline_node.storage.durable_marks import DurableMarks
from paceline_node.storage.partition_file import read_identity
from tests.e2e.cluster import Cluster, wait_until

TOPIC = "large"
GIB = 2**30
VALUE_BYTES = 1_000_000
EPOCH = 0
HEAD_BYTES = 4096
"""Of each batch so much is written; the rest is a hole in the file, and reads as zeros."""
AFTER_S = 10.0
"""How long the producer goes on behind the repair."""
SETTLED_S = 65.0
"""The longest steps are those of the last minute, and a start has some of its own."""
_SLICE = re.compile(r'^paceline_loop_longest_slice_seconds\{(?:.*?)task="([^"]*)"\} (\S+)$', re.M)
_LAG = re.compile(r"^paceline_loop_lag_seconds(?:\{\})? (\S+)$", re.M)


def write_log(directory: Path, segments: int, segment_bytes: int) -> int:
    """Fill a partition's directory, whose node is down, with whole segments; their end offset."""
    for path in directory.glob("0*.*"):
        path.unlink()
    now = int(time.time() * 1000)
    batch = bytes(build_value_batch([bytes(VALUE_BYTES)], timestamp_ms=now))
    # The leader epoch, and then the base offset, lie outside the checksum.
    batch = batch[:12] + struct.pack(">i", EPOCH) + batch[16:]
    assert not any(batch[HEAD_BYTES:])
    offset = 0
    for _ in range(segments):
        with (directory / f"{offset:020}.log").open("wb") as segment:
            for position in range(0, segment_bytes - len(batch), len(batch)):
                segment.seek(position)
                segment.write(struct.pack(">q", offset) + batch[8:HEAD_BYTES])
                offset += 1
            segment.truncate(position + len(batch))
    return offset


class Loops:
    """The longest steps of every node's event loop, as its metrics tell."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.slices: dict[str, float] = {}
        self.lag_s = 0.0

    def look(self) -> None:
        for node in range(3):
            host, port = self._cluster.address(node, "http")
            with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=60) as answer:
                text = answer.read().decode()
            for task, seconds in _SLICE.findall(text):
                name = f"node {node}: {task}"
                self.slices[name] = max(self.slices.get(name, 0.0), float(seconds))
            for seconds in _LAG.findall(text):
                self.lag_s = max(self.lag_s, float(seconds))

    def report(self) -> None:
        click.echo(f"event loop: late by {self.lag_s * 1000:.0f} ms at most; longest steps:")
        for name, seconds in sorted(self.slices.items(), key=lambda item: -item[1])[:8]:
            click.echo(f"  {seconds * 1000:6.0f} ms  {name}")


async def tell_synced(node: Path, directory: Path, end: int) -> None:
    """Let a node that is down know its log as synced up to ``end``."""
    disk = RealDisk(str(node))
    identity = await read_identity(disk, str(directory.relative_to(node)))
    marks = DurableMarks(disk)
    await marks.open()
    marks.of((identity.topic_id, identity.partition), Marked(end, EPOCH))
    await marks.sync()
    marks.close()


def leader_of(cluster: Cluster) -> int:
    return int(cluster.describe(TOPIC)[0]["leader"])


def is_in_sync(cluster: Cluster) -> bool:
    words = ("topic", "describe", TOPIC, "--output", "json")
    answer = cluster.run(*words, exit_code=None)  # refused until all logs are read
    return answer.returncode == 0 and len(json.loads(answer.stdout)["partitions"][0]["isr"]) == 3


def make(cluster: Cluster, segments: int, segment_bytes: int) -> None:
    """A cluster whose three replicas hold the large log."""
    cluster.up("--nodes", "3", "--set", "log.retention_ms=-1", "--set", "metrics.slice_clock=cpu")
    words = ("topic", "create", TOPIC, "--partitions", "1", "--replication-factor", "3")
    cluster.run(*words, "--config", f"segment.bytes={segment_bytes}")
    cluster.run("produce", TOPIC, "--acks", "all", stdin=b"first\n")
    nodes = [Path(cluster.node(node)["dir"]) for node in range(3)]
    directories = [cluster.partition_dir(node, TOPIC, 0) for node in range(3)]
    for node in range(3):
        cluster.run("node", "kill", str(node))
    for node_dir, directory in zip(nodes, directories, strict=True):
        end = write_log(directory, segments, segment_bytes)
        trio.run(tell_synced, node_dir, directory, end)
    began = time.monotonic()
    # The segments have no indexes: all of them are read.
    patience = ("--timeout", "3600")
    cluster.run("up", "--detach", "--dir", str(cluster.dir), *patience, timeout_s=3600)
    wait_until("all in sync", lambda: is_in_sync(cluster), timeout_s=3600, every_s=0.5)
    click.echo(f"{end:,} records, in sync after {time.monotonic() - began:.0f} s")


def strike(path: Path, position: int) -> None:
    """Change one byte of a segment, which is zero."""
    assert not is_struck(path, position)
    with path.open("r+b") as segment:
        segment.seek(position)
        segment.write(b"\x01")


def is_struck(path: Path, position: int) -> bool:
    with path.open("rb") as segment:
        segment.seek(position)
        return segment.read(1) == b"\x01"


def watch(cluster: Cluster, segment_bytes: int, *, after_s: float = AFTER_S) -> None:
    """The story from the changed byte on, which is in the middle of the oldest segment."""
    loops = Loops(cluster)
    victim = leader_of(cluster)
    path = sorted(cluster.partition_dir(victim, TOPIC, 0).glob("*.log"))[0]
    middle = segment_bytes // 2
    host, port = cluster.address((victim + 1) % 3, "native")
    with connect(f"{host}:{port}") as client, client.producer() as producer:
        strike(path, middle)
        began = time.monotonic()
        first = max(0, middle // VALUE_BYTES - 30)  # some records before the changed one
        words = ("consume", TOPIC, "--partition", "0", "--from", str(first), "--count", "60")
        said = cluster.base / "reader.errors"
        reader = cluster.start(*words, stderr=said)
        longest_s, count, repaired_at = 0.0, 0, 0.0
        while not repaired_at or time.monotonic() < repaired_at + after_s:
            asked = time.monotonic()
            producer.send(TOPIC, b"x" * 1000, partition=0)
            longest_s = max(longest_s, time.monotonic() - asked)
            count += 1
            if count % 200 == 0:
                loops.look()
            if not repaired_at and count % 20 == 0 and not is_struck(path, middle):
                repaired_at = time.monotonic()
        with reader:
            cluster.wait(reader, stderr=said, timeout_s=600)
    click.echo(
        f"repaired after {repaired_at - began:.1f} s; node {victim} led, and leads no more:"
        f" node {leader_of(cluster)} does"
    )
    click.echo(f"producer: {count:,} records, longest wait {longest_s * 1000:.0f} ms")
    loops.report()


@click.command()
@click.argument("gib", type=click.IntRange(min=2), default=50)
def main(gib: int) -> None:
    """Repair the oldest segment of a log of GIB gibibytes while a producer writes."""
    base = Path(tempfile.mkdtemp(prefix="paceline-repair-"))
    cluster = Cluster(base)
    try:
        make(cluster, gib, GIB)
        time.sleep(SETTLED_S)
        watch(cluster, GIB)
        sys.stdout.write("verdict: repaired\n")
    finally:
        cluster.purge()
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
