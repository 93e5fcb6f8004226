"""What Spark reads and writes in a second, and what a micro-batch costs, on ``local[2]``.

The ceiling, rows out of memory instead of a cluster, is measured beside (spec spark 11).
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from paceline.client import blocking
from paceline.spark.options import Guarantee
from paceline.spark.session import local_session
from paceline_cluster.bench.figures import Figure, percentile
from paceline_cluster.bench.spark_generator import GeneratorSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE, SMALL, SINK = "bench-spark", "bench-spark-small", "bench-spark-out"
SIZE, PARTITIONS = 100, 2
TRIGGERS = 5
"""Micro-batches that a stream's records come in; the first one is not counted."""
WRITTEN_SHARE = 5
"""Sinks get a fifth of what sources give."""
SMALL_BATCH, SMALL_BATCHES = 1000, 20
REPEATS = 3
VALUE = {"columns": "value"}
CEILING = "generator (ceiling)"


def measure(addresses: list[str], records: int) -> Iterator[Figure]:
    """All figures, one after the other: ``records`` are read each time. Takes about two minutes
    with a million on a quiet machine."""
    _fill(addresses, records)
    spark = local_session("bench", master="local[2]")
    spark.dataSource.register(GeneratorSource)
    try:
        yield from _Bench(spark, ",".join(addresses), records).figures()
    finally:
        spark.stop()


def _fill(addresses: list[str], records: int) -> None:
    with blocking.connect(addresses) as client:
        for topic in (SOURCE, SMALL, SINK):
            client.admin.create_topic(topic, partitions=PARTITIONS)
        with client.producer() as producer:
            for topic, count in ((SOURCE, records), (SMALL, SMALL_BATCH * SMALL_BATCHES)):
                for partition in range(PARTITIONS):
                    for first in range(partition, count, PARTITIONS * 10_000):
                        values = range(first, min(first + PARTITIONS * 10_000, count), PARTITIONS)
                        producer.send_many(topic, [bytes(SIZE)] * len(values), partition=partition)


def _timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


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
        made, topic = self._made(self._records), self._topic
        for columns, what in (({}, "7 columns"), (VALUE, "value alone")):
            yield self._batch("paceline-generator", f"{CEILING}, {what}", {**made, **columns})
            yield self._batch("paceline", f"batch, {what}", {**topic, **columns})
        per_batch = self._records // TRIGGERS
        limited = {**topic, "maxOffsetsPerTrigger": str(per_batch)}
        streamed = {**made, "per_batch": str(per_batch)}
        yield self._stream("paceline-generator", f"{CEILING}, AvailableNow, 7 columns", streamed)
        yield self._stream("paceline", "AvailableNow, 7 columns", limited)
        yield self._sink("paceline-generator", CEILING, {})
        for guarantee in Guarantee:
            options = {**self._cluster, "topic": SINK, "deliveryGuarantee": guarantee.value}
            yield self._sink("paceline", guarantee.value, options)
        small = {**self._made(SMALL_BATCH * SMALL_BATCHES), "per_batch": str(SMALL_BATCH)}
        yield self._overhead("paceline-generator", small, "noop", {})
        few = {**topic, "subscribe": SMALL, "maxOffsetsPerTrigger": str(SMALL_BATCH)}
        yield self._overhead("paceline", few, "noop", {})
        yield self._overhead("paceline", few, "paceline", {**self._cluster, "topic": SINK})

    @staticmethod
    def _made(rows: int) -> dict[str, str]:
        return {"rows": str(rows), "partitions": str(PARTITIONS), "size": str(SIZE)}

    def _batch(self, source: str, what: str, options: dict[str, str]) -> Figure:
        """The best of some runs."""
        frame = self._spark.read.format(source).options(**options).load()
        write = frame.write.format("noop").mode("overwrite")
        write.save()  # the first one starts workers and warms Java
        seconds = min(_timed(write.save) for _ in range(REPEATS))
        return _rate(f"Spark reads, {what}", self._records, seconds)

    def _stream(self, source: str, what: str, options: dict[str, str]) -> Figure:
        """Of the triggers after the first that has rows."""
        steady = self._steady(self._frame(source, options), "noop", {})
        rows = sum(each["numInputRows"] for each in steady)
        seconds = sum(each["durationMs"]["triggerExecution"] for each in steady) / 1000
        return _rate(f"Spark reads, {what}", rows, seconds)

    def _sink(self, sink: str, what: str, options: dict[str, str]) -> Figure:
        """The best of some runs; the rows are Java's, so that only the sink is Python."""
        rows = self._records // WRITTEN_SHARE
        frame = self._spark.range(rows, numPartitions=PARTITIONS).selectExpr(
            f"rpad(cast(id as string), {SIZE}, 'x') as value"
        )
        needed = self._made(0) if sink == "paceline-generator" else {}
        writer = frame.write.format(sink).options(**needed, **options).mode("append")
        writer.save()
        seconds = min(_timed(writer.save) for _ in range(REPEATS))
        return _rate(f"Spark writes, {what}", rows, seconds)

    def _overhead(
        self, source: str, options: dict[str, str], sink: str, sink_options: dict[str, str]
    ) -> Figure:
        """What a small micro-batch takes, and how much of that is the source's planning."""
        frame = self._frame(source, options).select("value")
        steady = self._steady(frame, sink, sink_options)
        times = [float(each["durationMs"]["triggerExecution"]) for each in steady]
        planning = [each["durationMs"].get("latestOffset", 0) for each in steady]
        name = CEILING if source == "paceline-generator" else source
        return Figure(
            f"Spark micro-batch of {SMALL_BATCH} rows, {name} to {sink}",
            statistics.median(times),
            "ms p50",
            None,
            {
                "p95_ms": percentile(times, 0.95),
                "max_ms": max(times),
                "latestOffset_ms": statistics.median(planning),
            },
        )

    def _frame(self, source: str, options: dict[str, str]) -> DataFrame:
        return self._spark.readStream.format(source).options(**options).load()

    @staticmethod
    def _steady(frame: DataFrame, sink: str, options: dict[str, str]) -> list[dict[str, Any]]:
        """Run it to its end; the progress of each batch with rows but the first."""
        with tempfile.TemporaryDirectory() as checkpoint:
            query = (
                frame.writeStream.format(sink)
                .options(**options)
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            progress = [json.loads(each.json) for each in query.recentProgress]
        return [each for each in progress if each["numInputRows"]][1:]
