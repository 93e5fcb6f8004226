"""Measure the storage room on this machine's disk: no cluster, no network.

    .venv/bin/python scripts/bench_storage.py [DIRECTORY]

Prints the latency of one append made durable, the throughput of large batches, and how long a log
of 1 GiB takes to open after a clean stop, after a kill, and with nothing trusted. A measurement,
not a test: nothing is asserted.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import cast
from uuid import UUID

import trio

from paceline.types import TopicId
from paceline.wire.batch import build_value_batch
from paceline_node.env import Env, Network, RealHost
from paceline_node.storage.disk import RealDisk
from paceline_node.storage.flusher import Flusher
from paceline_node.storage.log import Log
from paceline_node.storage.log_settings import LogSettings
from paceline_node.storage.opening import create_log, open_log
from paceline_node.storage.partition_file import PartitionIdentity
from paceline_node.storage.recovery_report import RecoveryHints
from paceline_node.storage.torn_tail import Ending

GIB = 1 << 30
PATH = "topics/bench-0.00000001"
IDENTITY = PartitionIdentity(TopicId(UUID(int=1)), "bench", 0)


def env_at(directory: str) -> Env:
    return Env(RealHost(), RealDisk(directory), cast(Network, None), random.Random(1))


async def new_log(directory: str) -> tuple[Env, Log]:
    shutil.rmtree(directory, ignore_errors=True)
    env = env_at(directory)
    return env, await create_log(env, PATH, IDENTITY, LogSettings())


def percentiles(durations: Sequence[float]) -> str:
    ordered = sorted(durations)
    p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return f"p50 {p50 * 1e3:.3f} ms, p99 {p99 * 1e3:.3f} ms"


async def latency(directory: str) -> None:
    env, log = await new_log(directory)
    durable = trio.Event()
    flusher = Flusher(env, on_failed=lambda error: print("disk failed:", error))
    flusher.register(log, lambda _: durable.set())
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: flusher.run(task_status=task_status))
        small = build_value_batch([b"x" * 100], timestamp_ms=1_000)
        durations = []
        for _ in range(4_000):
            started = time.perf_counter()
            durable = trio.Event()
            log.append_leader(small, 1, 1_000)
            flusher.request(log)
            await durable.wait()
            durations.append(time.perf_counter() - started)
        print(f"append 100 B and flush, one at a time: {percentiles(durations)}")
        large = build_value_batch([b"x" * 1_000] * 256, timestamp_ms=1_000)
        started = time.perf_counter()
        for _ in range(2_000):
            log.append_leader(large, 1, 1_000)
            flusher.request(log)
            while log.log_end_offset - log.durable_offset > 256 * 16:
                durable = trio.Event()
                await durable.wait()
        rate = 2_000 * len(large) / (time.perf_counter() - started)
        print(f"append 256 KiB batches, 16 in flight, flushed: {rate / 1e6:.0f} MB/s")
        nursery.cancel_scope.cancel()
    log.abandon()
    env.disk.close()


async def opening(directory: str, batch_bytes: int) -> None:
    env, log = await new_log(directory)
    batch = build_value_batch([b"x" * 100] * max(1, batch_bytes // 110), timestamp_ms=1_000)
    count = (GIB - len(batch)) // len(batch)
    print(f"1 GiB of {len(batch):,} byte batches, one segment:")
    durations = []
    for number in range(count):
        started = time.perf_counter()
        log.append_leader(batch, 1, 1_000)
        durations.append(time.perf_counter() - started)
        if number % (count // 32) == 0:
            await log.checkpoint()
    print(f"  append: {percentiles(durations)}")
    await log.close()
    env.disk.close()
    end = log.log_end_offset
    for name, hints in (
        ("clean stop", RecoveryHints(Ending.CLEAN, recovery_point=end)),
        ("kill", RecoveryHints(Ending.KILLED, recovery_point=end - end // 50)),
        ("nothing trusted", RecoveryHints()),
    ):
        await open_once(directory, name, hints)


async def open_once(directory: str, name: str, hints: RecoveryHints) -> None:
    env = env_at(directory)
    started = time.perf_counter()
    log = await open_log(env, PATH, LogSettings(), hints)
    duration = time.perf_counter() - started
    scanned = log.recovery.scanned_bytes / 1e6
    print(f"  open after {name}: {duration * 1e3:.1f} ms, {scanned:.0f} MB read")
    log.abandon()
    env.disk.close()


async def main(directory: str) -> None:
    await latency(directory)
    await opening(directory, 1 << 20)
    await opening(directory, 16 * 1024)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as place:
        trio.run(main, f"{place}/data")
