"""What the audit finds on replicas that are given as rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from paceline.spark.jobs.auditing import Auditor
from paceline.spark.views import BATCHES, OFFSETS

LONG_AGO = 1_600_000_000_000
Row = dict[str, Any]


def batch(replica: int, base: int, count: int = 10, **more: object) -> Row:
    """Ten offsets from ``base`` on with ``count`` records."""
    return {
        "topic": "t",
        "partition": 0,
        "replica": replica,
        "leaderEpoch": 0,
        "sizeBytes": 100,
        "baseOffset": base,
        "lastOffset": base + 9,
        "recordCount": count,
        "storedCrc": 0,
        "computedCrc": 0,
        "contentHash": b"%d" % base,
        "status": "ok",
        "producerId": -1,
        "producerEpoch": 0,
        "baseSequence": -1,
        "maxTimestamp": LONG_AGO,
        "isTransactional": False,
        "isControl": False,
        "isThinned": count != 10,
        **more,
    }


def found(spark: SparkSession, rows: Iterable[Row], *open_producers: int) -> list[tuple[str, int]]:
    """Findings and their offsets; replica 0 leads."""
    offsets: Row = {"topic": "t", "partition": 0, "inSync": True, "status": "ok", "logStart": 0}
    offsets |= {"highWatermark": 99, "lastStable": 99, "logEnd": 99}
    places = [{**offsets, "replica": n, "isLeader": n == 0} for n in range(2)]
    frames = [
        spark.createDataFrame(pa.Table.from_pylist(list(given), schema=schema))
        for given, schema in ((places, OFFSETS), (rows, BATCHES))
    ]
    auditor = Auditor(*frames, transaction_ms=900_000, open_producers=open_producers)
    told = auditor.findings(allow_missing=False).collect()
    return sorted((row["finding"], row["offset"]) for row in told)


def by_one(base: int, sequence: int, count: int = 10, **more: object) -> list[Row]:
    """On both replicas, of one producer."""
    told = {"producerId": 7, "baseSequence": sequence, **more}
    return [batch(replica, base, count, **told) for replica in range(2)]


@pytest.mark.slow
def test_what_cleaners_left_is_no_finding(spark: SparkSession) -> None:
    """Replicas are cleaned each when its time comes. A4, A6 and A7 took what was gone for lost."""
    lead = [batch(0, 0, 2, contentHash=b"cleaned", producerId=7, baseSequence=0)]
    other = [batch(1, 0, producerId=7, baseSequence=0)]
    hole = [batch(0, 10, 0, lastOffset=29)]
    hole += [batch(1, base, producerId=7, baseSequence=base) for base in (10, 20)]
    rows = [*lead, *other, *hole, *by_one(30, 30)]
    assert found(spark, rows) == []
    kept = by_one(40, 0, isTransactional=True, producerId=8)  # its marker went before
    assert found(spark, [*rows, *kept, *by_one(50, 40, 1)]) == []


@pytest.mark.parametrize("cleaned", [False, True])
def test_what_no_cleaner_did_is_found(spark: SparkSession, *, cleaned: bool) -> None:
    rows = [
        *by_one(0, 0, 3 if cleaned else 10),
        batch(0, 10),
        *by_one(20, 10),
        *by_one(30, 30),
        *by_one(40, 10),
        batch(0, 50, contentHash=b"one"),
        batch(1, 50, contentHash=b"another"),
        *by_one(60, 0, isTransactional=True, producerId=8),
        *by_one(70, 0, isTransactional=True, producerId=9),
    ]
    assert found(spark, rows, 9) == [
        ("OFFSET_GAP", 20),
        ("REPLICA_DIVERGED", 50),
        ("REPLICA_MISSING", 10),
        ("SEQUENCE_DUPLICATE", 40),
        ("SEQUENCE_GAP", 30),
        ("TXN_DANGLING", 60),
    ], "producer 9 is known to have an open transaction"
