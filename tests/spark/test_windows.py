"""The windows job, given what it cannot count."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from paceline.client import Position
from paceline.spark.jobs.report import JobExit
from tests.spark.queries import Job, Topics


@pytest.fixture
def machine_in_new_york(spark: SparkSession) -> Iterator[None]:
    """The session has the zone of its machine, unless it is told otherwise."""
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


BASE = 1_700_000_000_000 // 60_000 * 60_000


@pytest.mark.usefixtures("machine_in_new_york")
def test_values_that_no_window_can_take_are_dead_letters(
    job: Job, topics: Topics, tmp_path: Path
) -> None:
    """Each of them ended the query for ever, or made all later records late."""
    source, target, dead = topics.make(partitions=1), topics.make("out", 1), topics.make("dead", 1)
    ahead_ms = time.time_ns() // 1_000_000 + 30 * 86_400_000
    good = [{"at": BASE + n, "price": n} for n in range(5)]
    texts = [
        *map(json.dumps, good[:2]),
        json.dumps({"at": BASE, "price": "abc"}),
        json.dumps({"at": BASE, "price": "NaN"}),
        json.dumps({"at": BASE, "price": "1e999"}),
        json.dumps({"at": BASE, "price": {"amount": 3}}),
        json.dumps({"at": 1e300, "price": 1}),
        json.dumps({"at": 9e18, "price": 1}),
        json.dumps({"at": "NaN", "price": 1}),
        json.dumps({"at": "+200000-01-01T00:00:00Z", "price": 1}),
        json.dumps({"at": ahead_ms, "price": 1}),
        *map(json.dumps, good[2:]),
        json.dumps({"at": "2023-11-14T22:13:20", "price": 10}),
        json.dumps({"at": BASE, "price": None}),
    ]
    bad = texts[2:11]
    topics.write(source, texts, partition=0)
    code, _ = job(
        *("windows", "--topics", source, "--to", target, "--time", "$.at", "--early"),
        *("--agg", "count,sum:$.price", "--dead-letter", dead, "--checkpoint", tmp_path / "c"),
    )
    assert code == JobExit.DONE
    assert sorted(topics.read(dead)) == sorted(bad)
    with topics.client.consumer(dead, stop=Position.LATEST) as consumer:
        reasons = {
            (each.value or b"").decode(): dict(each.headers)["paceline.error"] for each in consumer
        }
    assert reasons[bad[0]] == b"no number at $.price"
    assert reasons[bad[4]] == b"no time at $.at"
    assert reasons[bad[8]] == b"time at $.at is too far ahead"
    windows = {
        each["window_start"]: (each["count"], each["sum_price"])
        for each in map(json.loads, topics.read(target))
    }
    assert windows == {BASE: (7, 20.0)}, "times without an offset are UTC"
