"""kill -9 in the middle of writing: every acknowledged line is read back, once, in order.

The writing is ``paceline produce --acks all --acked-file`` of a real list with a counter per line;
the victim is the leader of a partition, or the controller, at a random moment. Each
run proves that the kill fell inside the writing (acknowledgements before and after it, batches of
two leader epochs in the log of a partition that the victim led).

``PACELINE_FAILOVER_RUNS`` (default 1) and ``PACELINE_FAILOVER_LINES`` (default 60000) size it,
``PACELINE_SEED`` repeats the choices of a run. ``scripts/show-failover`` does 20
of 500,000 lines.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.acked import check, read_acked, read_consumed
from tests.e2e.cluster import Cluster, environment_lines, wait_until

RUNS = int(os.environ.get("PACELINE_FAILOVER_RUNS", "1"))
LINES = int(os.environ.get("PACELINE_FAILOVER_LINES", "60000"))
SEED = int(os.environ.get("PACELINE_SEED", random.SystemRandom().randrange(2**32)))
REPORT = os.environ.get("PACELINE_FAILOVER_REPORT")
"""File that gets one JSON line per run (T5)."""

CHUNK_LINES = 1000
TRICKLE_LINES = 20
SLOW_S = 0.05

Source = list[tuple[str, str]]

pytestmark = pytest.mark.timeout(600)


class Feeder(threading.Thread):
    """Writes a file into a producer's standard input: as fast as it takes it, but after the first
    ``slow_from`` lines only a little at a time, and after a quarter of the others next to nothing,
    until :attr:`hurry` is set, so that the kill falls inside the writing however long it takes to
    strike."""

    def __init__(self, producer: subprocess.Popen[bytes], path: Path, *, slow_from: int) -> None:
        super().__init__()
        self.hurry = threading.Event()
        self._producer = producer
        self._path = path
        self._slow_from = slow_from

    def run(self) -> None:
        stdin = self._producer.stdin
        assert stdin is not None
        fed, wanted = 0, CHUNK_LINES
        trickle_from = self._slow_from + (LINES - self._slow_from) // 4
        try:
            with self._path.open("rb") as lines, stdin:
                while chunk := list(itertools.islice(lines, wanted)):
                    stdin.writelines(chunk)
                    stdin.flush()
                    fed += len(chunk)
                    trickles = fed > trickle_from and not self.hurry.is_set()
                    wanted = TRICKLE_LINES if trickles else CHUNK_LINES
                    if fed > self._slow_from:
                        self.hurry.wait(SLOW_S)
        except BrokenPipeError:
            return  # the producer gave up; its exit code is judged elsewhere


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Source, Path]]:
    """(key, value) of every input line, and the file that holds them."""
    real = environment_lines()
    lines = []
    for number in range(LINES):
        text = real[number % len(real)]
        key = text.split("/", 1)[0].split(",", 1)[0]
        lines.append((key, f"{number} {text}"))
    path = tmp_path_factory.mktemp("source") / "lines"
    path.write_text("".join(f"{key}\t{value}\n" for key, value in lines), encoding="utf-8")
    yield lines, path
    path.unlink()


@pytest.mark.parametrize("number", range(RUNS))
def test_every_acknowledged_line_survives_the_kill(
    shared_cluster: Cluster, source: tuple[Source, Path], tmp_path: Path, number: int
) -> None:
    rng = random.Random(SEED + number)
    print(f"PACELINE_SEED={SEED + number} PACELINE_FAILOVER_LINES={LINES}")
    cluster, (lines, path), topic = shared_cluster, source, f"orders-{number}"
    acked_file, errors, output = tmp_path / "acked", tmp_path / "errors", tmp_path / "consumed"
    cluster.run("topic", "create", topic, "--partitions", "3")
    target = "controller" if number % 2 else f"leader-of:{topic}/{rng.randrange(3)}"

    producer = cluster.start(
        *("produce", topic, "--acks", "all", "--key-delimiter", "\\t"),
        *("--acked-file", str(acked_file)),
        stderr=errors,
    )
    kill_at = int(rng.uniform(0.05, 0.6) * LINES)
    feeder = Feeder(producer, path, slow_from=kill_at)
    try:
        feeder.start()
        wait_until(
            "acknowledgements before the kill",
            lambda: count_lines(acked_file) >= kill_at // 2 or producer.poll() is not None,
        )
        leaders = {p["partition"]: p["leader"] for p in cluster.describe(topic)}
        victim = cluster.json("node", "kill", target)["node"]
        before = count_lines(acked_file)
        feeder.hurry.set()
        time.sleep(rng.uniform(0, 1.5))  # how long the victim stays away is part of the fault
        cluster.run("node", "restart", str(victim))
        feeder.join(300)
        cluster.wait(producer, stderr=errors, timeout_s=300)
    finally:
        producer.kill()
        producer.wait()

    consumer = cluster.spawn(
        *("consume", topic, "--exit-at-end", "--output", "json"),
        stdin=Path(os.devnull),
        stdout=output,
        stderr=errors,
    )
    cluster.wait(consumer, stderr=errors)
    acked = read_acked(acked_file)
    check(lines, acked, read_consumed(output))
    assert len(acked) == LINES
    assert 0 < before < LINES, "the kill fell outside the writing"
    epochs = {
        partition: sorted({ack.leader_epoch for ack in acked if ack.partition == partition})
        for partition, leader in leaders.items()
        if leader == victim
    }
    assert epochs, f"node {victim} led no partition of {topic}"
    assert all(len(found) >= 2 for found in epochs.values()), epochs
    cluster.run("health", "--exit-when-healthy")  # every replica has all of it
    assert_epochs_in_log(cluster, (victim + 1) % 3, topic, epochs)
    report(number, victim=victim, target=target, before=before, epochs=epochs)
    cluster.run("topic", "delete", topic, "--yes")


def count_lines(path: Path) -> int:
    """Whole lines of a growing file."""
    try:
        with path.open("rb") as file:
            return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
    except FileNotFoundError:
        return 0


def assert_epochs_in_log(
    cluster: Cluster, node: int, topic: str, epochs: dict[int, list[int]]
) -> None:
    """The batches on a surviving node's disk carry the leader epochs of the acknowledgements."""
    for partition, expected in epochs.items():
        directory = cluster.partition_dir(node, topic, partition)
        dumped = cluster.run("log", "dump", str(directory), "--output", "json").stdout
        found = sorted({json.loads(line)["leader_epoch"] for line in dumped.splitlines()})
        assert set(expected) <= set(found), f"{topic}/{partition}: {found}, expected {expected}"


def report(number: int, **facts: object) -> None:
    """Leave one line about a run that passed (T5)."""
    if REPORT is not None:
        line = json.dumps({"run": number, "seed": SEED + number, "lines": LINES, **facts})
        with Path(REPORT).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
