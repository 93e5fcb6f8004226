"""Records that no window can take, each micro-batch's by itself, before its windows.

They are read a second time, as an aggregation keeps no records. What is too far ahead depends on
the clock; the batch's own is taken, so a record is in exactly one of the two places (DESIGN 7.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from paceline.spark.jobs.windowing import Windows, decoded
from paceline.values import dataclass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from paceline.spark.micro_batch import MicroBatch


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """``stream``: the options of the source whose records ``wanted`` judges. ``sink``: those of the
    sink they go to."""

    stream: Mapping[str, str]
    wanted: Windows
    sink: Mapping[str, str]

    def write(self, spark: SparkSession, batch: MicroBatch, query_id: str) -> None:
        """Write those of a batch, once however often it is done again."""
        if batch.is_empty:
            return
        clock = F.timestamp_millis(F.lit(batch.clock_ms))
        rows = bad_rows(decoded(batch.read(spark, self.stream), self.wanted, clock))
        named = {
            # Not the windows' own name: both may go to one topic.
            "txnAppId": f"{query_id}-dead-letters",
            "txnVersion": str(batch.number),
            "txnPlannedMs": str(batch.clock_ms),
        }
        rows.write.format("paceline").options(**self.sink, **named).mode("append").save()


def bad_rows(rows: DataFrame) -> DataFrame:
    """The records to write, each with what is wrong and where it was."""
    places = (F.col("partition").cast("string"), F.col("offset").cast("string"))
    origin = F.concat_ws("/", "topic", *places)
    headers = F.array(
        F.struct(
            F.lit("paceline.error").alias("key"), F.col("problem").cast("binary").alias("value")
        ),
        F.struct(F.lit("paceline.origin").alias("key"), origin.cast("binary").alias("value")),
    )
    bad = rows.where("problem is not null")
    return bad.select("key", "value", headers.alias("headers"))
