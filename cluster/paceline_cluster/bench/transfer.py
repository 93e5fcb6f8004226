"""``scripts/show-transfer``: much data through a Kafka client, little memory in the nodes.

A producer writes into 12 partitions of three replicas, a consumer reads all of it meanwhile and
checks each record's place; the resident memory of every node is looked at four times a second.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from paceline_cluster.bench import rig
from paceline_cluster.bench.kafka import (
    PARTITIONS,
    BenchmarkFailed,
    producer,
    reader,
    received,
)
from paceline_cluster.bench.rig import Rig

GIB = 1 << 30
RECORD_BYTES = 10_000
LIMIT_MIB = 150.0
_LOOK_S = 0.25
_HEAD = struct.Struct(">Q")
_ROOM = 4
"""Free space wanted, as a multiple of what is sent: three replicas and some."""


@click.command()
@click.argument("gib", type=float, default=5.0)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=Path(".paceline"),
    show_default=True,
    help="Where the cluster's disks lie; all of it is removed at the end.",
)
def main(gib: float, directory: Path) -> None:
    """Send GIB GiB and print a report; exit code 1 when a node took more than 150 MiB."""
    size = int(gib * GIB)
    base = directory.resolve() / f"transfer-{os.getpid()}"
    base.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(base.parent).free
    if free < _ROOM * size:
        raise click.UsageError(f"{base.parent} has {free / GIB:.1f} GiB free: {_ROOM * gib} wanted")
    with rig.cluster(base) as made:
        made.up()
        report = transfer(made, size)
    click.echo(json.dumps(report))
    sys.exit(0 if max(report["resident_mib_max"]) <= LIMIT_MIB else 1)


def transfer(made: Rig, size: int) -> dict[str, list[float]]:
    """Send ``size`` bytes; what it took."""
    servers = ",".join(made.state.addresses("kafka"))
    made.paceline("topic", "create", "transfer", "--partitions", str(PARTITIONS))
    count = size // RECORD_BYTES
    before = made.resident_mib()
    failures: list[BenchmarkFailed] = []
    begin = time.monotonic()
    read_s: list[float] = []

    def read() -> None:
        try:
            _read(servers, count)
            read_s.append(time.monotonic() - begin)
        except BenchmarkFailed as failure:
            failures.append(failure)

    with _watched(made) as largest:
        thread = threading.Thread(target=read)
        thread.start()
        _write(servers, count)
        written_s = time.monotonic() - begin
        thread.join()
    if failures:
        raise failures[0]
    return {
        "gib": [round(size / GIB, 2)],
        "resident_mib_before": before,
        "resident_mib_max": [round(each, 1) for each in largest],
        "written_mb_per_s": [round(size / written_s / 1e6, 1)],
        "read_mb_per_s": [round(size / each / 1e6, 1) for each in read_s],
    }


def _write(servers: str, count: int) -> None:
    client, told = producer(
        servers, **{"batch.size": 1_000_000, "linger.ms": 5, "queue.buffering.max.kbytes": 65536}
    )
    filling = bytes(RECORD_BYTES - _HEAD.size)
    for number in range(count):
        value = _HEAD.pack(number // PARTITIONS) + filling
        while True:
            try:
                client.produce("transfer", value, partition=number % PARTITIONS, on_delivery=told)
                break
            except BufferError:
                client.poll(0.01)
        client.poll(0)
    if client.flush(600):
        raise BenchmarkFailed("records are not acknowledged")


def _read(servers: str, count: int) -> None:
    """Raises BenchmarkFailed unless every partition has its numbers, one after the other."""
    expected = [0] * PARTITIONS
    settings: dict[str, object] = {"queued.max.messages.kbytes": 65536}
    with reader(servers, "transfer", PARTITIONS, **settings) as consumer:
        for found in received(consumer, count):
            for message in found:
                at, value = message.partition(), message.value()
                assert at is not None, "a record has a partition"
                assert value is not None, "and one of ours a value"
                (number,) = _HEAD.unpack_from(value)
                if number != expected[at]:
                    raise BenchmarkFailed(f"partition {at}: {number}, expected {expected[at]}")
                expected[at] += 1


@contextmanager
def _watched(made: Rig) -> Iterator[list[float]]:
    """The largest resident memory of each node while the block runs."""
    largest = made.resident_mib()
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_S):
            largest[:] = map(max, largest, made.resident_mib())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield largest
    finally:
        ended.set()
        thread.join()


if __name__ == "__main__":
    main()
