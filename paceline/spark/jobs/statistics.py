"""What is in the topics: counts, sizes, keys, times, encodings, per topic and partition.

Values that cannot be decoded are counted, never fatal (DESIGN 7.5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession

PERCENTILES = (0.5, 0.99)


@dataclass(frozen=True)
class Statistics:
    """One table each."""

    partitions: DataFrame
    hours: DataFrame
    keys: DataFrame
    headers: DataFrame
    codecs: DataFrame

    def tables(self) -> dict[str, DataFrame]:
        """By name."""
        return dict(vars(self))


def collect(spark: SparkSession, options: Mapping[str, str], *, top: int) -> Statistics:
    """The tables, not yet computed. ``top``: how many keys and header names of each topic."""
    reader = spark.read.format("paceline").options(**options)
    records = reader.option("includeHeaders", "true").load()
    records = records.withColumn("text", F.col("value").cast("string"))
    return Statistics(
        _partitions(records),
        _hours(records),
        _most(records.where("key is not null"), F.col("key").cast("string"), "key", top),
        _most(records, F.explode("headers.key"), "header", top),
        _codecs(reader),
    )


def _partitions(records: DataFrame) -> DataFrame:
    size = F.coalesce(F.length("value"), F.lit(0))
    keys = F.coalesce(F.length("key"), F.lit(0))
    place = Window.partitionBy("topic", "partition").orderBy("offset")
    late = F.col("timestamp") < F.lag("timestamp").over(place)
    is_text = F.is_valid_utf8("text")
    is_json = is_text & F.try_parse_json(F.when(is_text, F.col("text"))).isNotNull()
    counted = records.withColumn("late", late.cast("int"))
    rows = counted.groupBy("topic", "partition").agg(
        F.count("*").alias("rows"),
        F.sum(size + keys).alias("bytes"),
        F.min(size).alias("value_min"),
        F.round(F.avg(size), 1).alias("value_avg"),
        F.percentile_approx(size, PERCENTILES[0]).alias("value_p50"),
        F.percentile_approx(size, PERCENTILES[1]).alias("value_p99"),
        F.max(size).alias("value_max"),
        F.round(F.avg(keys), 1).alias("key_avg"),
        F.max(keys).alias("key_max"),
        F.sum(F.col("value").isNull().cast("int")).alias("tombstones"),
        F.sum(F.col("key").isNull().cast("int")).alias("null_keys"),
        F.approx_count_distinct("key").alias("distinct_keys"),
        F.min("timestamp").alias("first_time"),
        F.max("timestamp").alias("last_time"),
        F.coalesce(F.sum("late"), F.lit(0)).alias("out_of_order"),
        (F.max("offset") - F.min("offset") + 1 - F.count("*")).alias("offset_holes"),
        F.round(F.avg(is_text.cast("int")), 4).alias("utf8_share"),
        F.round(F.avg(is_json.cast("int")), 4).alias("json_share"),
    )
    mean = F.avg("rows").over(Window.partitionBy("topic"))
    return rows.withColumn("skew", F.round(F.col("rows") / mean, 3)).orderBy("topic", "partition")


def _hours(records: DataFrame) -> DataFrame:
    hour = F.date_trunc("hour", "timestamp").alias("hour")
    return records.groupBy("topic", hour).agg(F.count("*").alias("rows")).orderBy("topic", "hour")


def _most(records: DataFrame, what: Column, name: str, top: int) -> DataFrame:
    counted = records.select("topic", what.alias(name)).groupBy("topic", name).count()
    rank = F.row_number().over(
        Window.partitionBy("topic").orderBy(F.col("count").desc(), F.col(name))
    )
    ranked = counted.withColumn("rank", rank).where(F.col("rank") <= top)
    return ranked.withColumnRenamed("count", "rows").orderBy("topic", "rank")


def _codecs(reader: DataFrameReader) -> DataFrame:
    producer = F.when(F.col("producerId") >= 0, F.col("producerId"))
    batches: DataFrame = reader.option("view", "batches").option("replicas", "leader").load()
    return (
        batches.where("status = 'ok'")
        .groupBy("topic", "codec")
        .agg(
            F.count("*").alias("batches"),
            F.sum("recordCount").alias("rows"),
            F.sum("sizeBytes").alias("stored_bytes"),
            F.countDistinct(producer).alias("producers"),
            F.max("leaderEpoch").alias("last_leader_epoch"),
        )
        .orderBy("topic", "codec")
    )
