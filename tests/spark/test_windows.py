"""The windows job: what it counts, and what it cannot count."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from paceline.client import Position
from paceline.errors import ConfigurationError
from paceline.spark.jobs.report import JobExit
from tests.e2e.cluster import wait_until
from tests.spark.queries import Job, Topics, forget_last_commit

BASE = 1_700_000_000_000 // 60_000 * 60_000
MINUTE = 60_000
FEW_STORES = ("--conf", "spark.sql.shuffle.partitions=2")
"""Not four: each costs a query some tens of milliseconds a batch."""


@pytest.fixture
def machine_in_new_york(spark: SparkSession) -> Iterator[None]:
    """The session has the zone of its machine, unless it is told otherwise."""
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def order(minute: int, number: int, **more: object) -> str:
    """A record of user ``number`` modulo two, in that minute."""
    at = BASE + minute * MINUTE + number
    return json.dumps({"who": f"u{number % 2}", "at": at, "x": number, **more})


def bad_orders() -> dict[str, bytes]:
    """What no window can take, each with its reason. Some ended the query for ever, or made all
    later records late."""
    no_number, no_time = b"no number at $.x", b"no time at $.at"
    ahead_ms = time.time_ns() // 1_000_000 + 30 * 86_400_000
    return {
        **{order(0, 0, x=x): no_number for x in ("abc", "NaN", "1e999", {"amount": 3})},
        **{order(0, 0, at=at): no_time for at in (1e300, 9e18, "NaN", "+200000-01-01T00:00:00Z")},
        order(0, 0, at=ahead_ms): b"time at $.at is too far ahead",
    }


@pytest.mark.usefixtures("machine_in_new_york")
def test_each_window_is_written_once(job: Job, topics: Topics, tmp_path: Path) -> None:
    source, target, dead = topics.make(), topics.make("windows", 2), topics.make("dead", 1)

    def write(*texts: str) -> None:
        for partition in range(2):
            topics.write(source, texts[partition::2], partition=partition)

    windows = (
        *("windows", "--topics", source, "--to", target, "--time", "$.at", "--key", "$.who"),
        *("--agg", "count,sum:$.x", "--watermark", "1s", "--dead-letter", dead),
        *("--checkpoint", tmp_path / "c", *FEW_STORES),
    )
    write(*(order(0, n) for n in range(10)), *(order(1, n) for n in range(3)), order(1, 3, x=None))
    utc = datetime.fromtimestamp((BASE + 3 * MINUTE) / 1000, UTC)
    write(order(3, 0, at=utc.isoformat().removesuffix("+00:00")))
    topics.write(source, ["not json"], partition=0)

    def done() -> bool:
        return len(topics.read(target)) == 4 and topics.read(dead) == ["not json"]

    with stopped_once("windows and bad rows are written", done):
        code, _ = job(*windows, "--trigger", "100ms")
    assert code == JobExit.DONE
    assert early_windows(job, topics, source, tmp_path) == {
        (0, "u0"): 5,
        (0, "u1"): 5,
        (1, "u0"): 2,
        (1, "u1"): 2,
        (3, "u0"): 1,
    }, "times without an offset are UTC"
    bad = bad_orders()
    write(*bad)
    write(order(9, 0), order(0, 0))
    code, report = job(*windows)
    assert (code, report["rows"]) == (JobExit.DONE, len(bad) + 2)
    assert report["late_rows_dropped"] == 1
    found = sorted(
        ((each["window_start"] - BASE) // MINUTE, each["key"], each["count"], each["sum_x"])
        for each in map(json.loads, topics.read(target))
    )
    assert found == [
        (0, "u0", 5, 20.0),
        (0, "u1", 5, 25.0),
        (1, "u0", 2, 2.0),
        (1, "u1", 2, 1.0),
        (3, "u0", 1, 0.0),
    ]
    with topics.client.consumer(dead, stop=Position.LATEST) as consumer:
        reasons = {
            (each.value or b"").decode(): dict(each.headers)["paceline.error"] for each in consumer
        }
    assert reasons == {"not json": b"no time at $.at", **bad}
    assert len(topics.read(dead)) == len(reasons)


def early_windows(job: Job, topics: Topics, source: str, base: Path) -> dict[tuple[int, str], int]:
    """Counts by minute and key as the last version of each says; written in several batches."""
    target = topics.make("early", 1)
    code, _ = job(
        *("windows", "--topics", source, "--to", target, "--time", "$.at", "--key", "$.who"),
        *("--early", "--checkpoint", base / "early", "--option", "maxOffsetsPerTrigger=8"),
        *("--state", "rocksdb", *FEW_STORES),
    )
    assert code == JobExit.DONE
    state = base / "early" / "windows" / "state"
    assert list(state.rglob("*.sst")) or list(state.rglob("*.zip")), "kept by RocksDB"
    versions = list(map(json.loads, topics.read(target)))
    last = {
        ((each["window_start"] - BASE) // MINUTE, each["key"]): each["count"] for each in versions
    }
    assert len(versions) > len(last), "a window that grew was written again"
    return last


@pytest.mark.usefixtures("spark")
def test_each_record_is_in_a_window_or_a_dead_letter(
    job: Job, topics: Topics, tmp_path: Path
) -> None:
    """Each judged by a clock of its own what is too far ahead: some records were in neither, or in
    both. A batch that is done again after a crash, at any step, is judged as it was."""
    source, dead = topics.make(partitions=1), topics.make("dead", 1)
    target = f"{source}-out"
    now_ms = time.time_ns() // 1_000_000
    # One a millisecond: one of them is exactly as far ahead as it may be. Fewer for busy machines.
    ahead = (*range(60_000, 70_000), *range(70_000, 660_000, 200))
    values = [json.dumps({"at": now_ms + each}) for each in (0, *ahead)]
    count = len(values)
    topics.write(source, values, partition=0)

    def windows(max_ahead: str) -> tuple[JobExit, str]:
        code, report = job(
            *("windows", "--topics", source, "--to", target, "--time", "$.at", "--early"),
            *("--dead-letter", dead, "--max-ahead", max_ahead, "--max-restarts", 0),
            *("--option", f"startingOffsets={json.dumps({source: {'0': 0}})}"),
            *("--checkpoint", tmp_path / "c", *FEW_STORES),
        )
        return JobExit(code), " ".join(report["errors"])

    def counted() -> int:
        versions = map(json.loads, topics.read(target))
        return sum({each["window_start"]: each["count"] for each in versions}.values())

    code, told = windows("1m")
    assert (code, told) == (JobExit.FAILED, f"BadRow: {target}: no such topic")
    left_out = topics.read(dead)
    assert 0 < len(left_out) < count, "it ended between the two"
    with pytest.raises(ConfigurationError, match=r"batch 0 was begun .*: max-ahead was 1 min"):
        windows("2m")
    topics.client.admin.create_topic(target, partitions=1)
    for _ in range(2):
        assert windows("1m") == (JobExit.DONE, "")
        assert topics.read(dead) == left_out
        assert counted() == count - len(left_out)
        assert forget_last_commit(tmp_path / "c" / "windows") >= 0


@contextmanager
def stopped_once(what: str, holds: Callable[[], bool]) -> Iterator[None]:
    """Send SIGTERM to this process, whose job takes it, once ``holds`` does."""

    def wait() -> None:
        try:
            wait_until(what, holds)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    with ThreadPoolExecutor(1) as executor:
        waiting = executor.submit(wait)
        yield
        waiting.result()
