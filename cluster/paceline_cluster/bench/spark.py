"""What Spark reads and writes in a second, and what a micro-batch costs, on ``local[2]``.

The ceiling, rows out of memory instead of a cluster, is measured beside.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import TYPE_CHECKING

from paceline.spark.options import Guarantee
from paceline.spark.session import local_session
from paceline_cluster.bench import spark_runs
from paceline_cluster.bench.figures import Figure, percentile
from paceline_cluster.bench.spark_generator import NAME, GeneratorSource
from paceline_cluster.bench.spark_runs import (
    SINK,
    SIZE,
    SMALL,
    SMALL_BATCH,
    SMALL_BATCHES,
    SOURCE,
    TRIGGERS,
    WRITTEN_SHARE,
    made,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REPEATS = 3
VALUE = {"columns": "value"}
CEILING = "generator (ceiling)"


def measure(addresses: list[str], records: int) -> Iterator[Figure]:
    """All figures, one after the other: ``records`` are read each time. Takes about two minutes
    with a million on a quiet machine."""
    spark_runs.fill(addresses, records)
    spark = local_session("bench", master="local[2]")
    spark.dataSource.register(GeneratorSource)
    try:
        yield from _Bench(spark, ",".join(addresses), records).figures()
    finally:
        spark.stop()


def _rate(name: str, rows: int, seconds: float) -> Figure:
    details = {"MB_per_s": round(rows * SIZE / seconds / 1e6, 1)}
    return Figure(name, round(rows / seconds), "rows/s", None, details)


class _Bench:
    """One session's measurements."""

    def __init__(self, spark: SparkSession, bootstrap: str, records: int) -> None:
        self._spark = spark
        self._records = records
        self._cluster = {"paceline.bootstrap.servers": bootstrap}
        self._topic = {**self._cluster, "subscribe": SOURCE, "startingOffsets": "earliest"}

    def figures(self) -> Iterator[Figure]:
        generated, topic = made(self._records), self._topic
        for columns, what in (({}, "7 columns"), (VALUE, "value alone")):
            yield self._batch(NAME, f"{CEILING}, {what}", {**generated, **columns})
            yield self._batch("paceline", f"batch, {what}", {**topic, **columns})
        per_batch = self._records // TRIGGERS
        limited = {**topic, "maxOffsetsPerTrigger": str(per_batch)}
        streamed = {**generated, "per_batch": str(per_batch)}
        yield self._stream(NAME, f"{CEILING}, AvailableNow, 7 columns", streamed)
        yield self._stream("paceline", "AvailableNow, 7 columns", limited)
        yield self._sink(NAME, CEILING, {})
        for guarantee in Guarantee:
            options = {**self._cluster, "topic": SINK, "deliveryGuarantee": guarantee.value}
            yield self._sink("paceline", guarantee.value, options)
        small = {**made(SMALL_BATCH * SMALL_BATCHES), "per_batch": str(SMALL_BATCH)}
        yield self._overhead(NAME, small, "noop", {})
        few = {**topic, "subscribe": SMALL, "maxOffsetsPerTrigger": str(SMALL_BATCH)}
        yield self._overhead("paceline", few, "noop", {})
        yield self._overhead("paceline", few, "paceline", {**self._cluster, "topic": SINK})

    def _batch(self, source: str, what: str, options: dict[str, str]) -> Figure:
        """The best of some runs."""
        frame = self._spark.read.format(source).options(**options).load()
        spark_runs.read(frame)  # the first one starts workers and warms Java
        seconds = min(spark_runs.read(frame) for _ in range(REPEATS))
        return _rate(f"Spark reads, {what}", self._records, seconds)

    def _stream(self, source: str, what: str, options: dict[str, str]) -> Figure:
        """Of the triggers after the first that has rows."""
        rows, seconds = spark_runs.rate(spark_runs.steady(self._frame(source, options), "noop", {}))
        return _rate(f"Spark reads, {what}", rows, seconds)

    def _sink(self, sink: str, what: str, options: dict[str, str]) -> Figure:
        """The best of some runs."""
        rows = self._records // WRITTEN_SHARE
        frame = spark_runs.rows_to_write(self._spark, rows)
        needed = made(0) if sink == NAME else {}
        spark_runs.write(frame, sink, {**needed, **options})
        seconds = min(spark_runs.write(frame, sink, {**needed, **options}) for _ in range(REPEATS))
        return _rate(f"Spark writes, {what}", rows, seconds)

    def _overhead(
        self, source: str, options: dict[str, str], sink: str, sink_options: dict[str, str]
    ) -> Figure:
        """What a small micro-batch takes, and how much of that is the source's planning."""
        frame = self._frame(source, options).select("value")
        steady = spark_runs.steady(frame, sink, sink_options)
        times = spark_runs.batch_times(steady)
        name = CEILING if source == NAME else source
        return Figure(
            f"Spark micro-batch of {SMALL_BATCH} rows, {name} to {sink}",
            statistics.median(times),
            "ms p50",
            None,
            {
                "p95_ms": percentile(times, 0.95),
                "max_ms": max(times),
                "latestOffset_ms": spark_runs.planning_ms(steady),
            },
        )

    def _frame(self, source: str, options: dict[str, str]) -> DataFrame:
        return self._spark.readStream.format(source).options(**options).load()
