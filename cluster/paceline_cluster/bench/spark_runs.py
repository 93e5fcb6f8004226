"""How Spark's sources and sinks are measured, whichever they are."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from paceline.client import blocking

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Progress = dict[str, Any]
"""What Spark tells of one micro-batch."""

SOURCE, SMALL, SINK = "bench-spark", "bench-spark-small", "bench-spark-out"
SIZE, PARTITIONS = 100, 2
TRIGGERS = 5
"""Micro-batches that a stream's records come in; the first one is not counted."""
WRITTEN_SHARE = 5
"""Sinks get a fifth of what sources give."""
SMALL_BATCH, SMALL_BATCHES = 1000, 20


def fill(addresses: list[str], records: int) -> None:
    """The topics on our cluster."""
    with blocking.connect(addresses) as client:
        for topic in (SOURCE, SMALL, SINK):
            client.admin.create_topic(topic, partitions=PARTITIONS)
        with client.producer() as producer:
            for topic, count in counts(records).items():
                for partition in range(PARTITIONS):
                    for first in range(partition, count, PARTITIONS * 10_000):
                        values = range(first, min(first + PARTITIONS * 10_000, count), PARTITIONS)
                        producer.send_many(topic, [bytes(SIZE)] * len(values), partition=partition)


def counts(records: int) -> dict[str, int]:
    """How many records each topic that is read has."""
    return {SOURCE: records, SMALL: SMALL_BATCH * SMALL_BATCHES}


def made(rows: int) -> dict[str, str]:
    """The generator's options for so many rows."""
    return {"rows": str(rows), "partitions": str(PARTITIONS), "size": str(SIZE)}


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def read(frame: DataFrame) -> float:
    """The seconds of reading all of it."""
    return timed(frame.write.format("noop").mode("overwrite").save)


def rows_to_write(spark: SparkSession, rows: int) -> DataFrame:
    """Java's rows, so that only the sink is Python."""
    return spark.range(rows, numPartitions=PARTITIONS).selectExpr(
        f"rpad(cast(id as string), {SIZE}, 'x') as value"
    )


def write(frame: DataFrame, sink: str, options: Mapping[str, str]) -> float:
    """The seconds of writing all of it."""
    return timed(frame.write.format(sink).options(**options).mode("append").save)


def steady(frame: DataFrame, sink: str, options: Mapping[str, str]) -> list[Progress]:
    """Run a stream to its end; the progress of each batch with rows but the first."""
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


def rate(progress: list[Progress]) -> tuple[int, float]:
    """Rows, and seconds."""
    rows = sum(each["numInputRows"] for each in progress)
    return rows, sum(batch_times(progress)) / 1000


def batch_times(progress: list[Progress]) -> list[float]:
    """Milliseconds of each micro-batch."""
    return [float(each["durationMs"]["triggerExecution"]) for each in progress]


def planning_ms(progress: list[Progress]) -> float:
    """The median of what the source took to say how far a micro-batch goes."""
    return statistics.median(float(each["durationMs"].get("latestOffset", 0)) for each in progress)
