"""Are the records of a topic where they should be: in a restored topic, where a producer was told?

Restored records say in a header where they were: ``topic/partition/offset``. A target may hold the
records of several sources; each is compared by itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from paceline.client import Position, blocking
from paceline.spark.jobs.lifetimes import set_for
from paceline.spark.jobs.restoring import ORIGIN_HEADER
from paceline.values import dataclass

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Source:
    """A topic that was restored, and which of its records there are to compare with: what was
    trimmed since is in its copies only, and what comes from now on is in none. Where it
    ``is_compacted``, its cleaner may have removed what was copied, too."""

    topic: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    is_compacted: bool = False


def look_up(bootstrap: str, topic: str) -> Source:
    """The topic as it stands now."""
    with blocking.connect(bootstrap.split(",")) as client:
        starts = client.admin.list_offsets(topic, Position.EARLIEST)
        ends = client.admin.list_offsets(topic, Position.LATEST)
        configs = set_for(client.admin.topic(topic))
    return Source(topic, starts, ends, "compact" in configs.get("cleanup.policy", ""))


def compare(
    spark: SparkSession, options: Mapping[str, str], source: Source, target: str, *, by_key: bool
) -> DataFrame:
    """Whether ``target`` holds each record of its source once, unchanged, in order, and in the same
    partition; with ``by_key`` in one partition for each key."""

    def read(topic: str, **bounds: str) -> DataFrame:
        reader = spark.read.format("paceline").options(**options, **bounds)
        columns = "key,value,partition,offset,timestampMs,headers,rawHeaders"
        return reader.option("columns", columns).option("subscribe", topic).load()

    judged = (
        _originals(read(source.topic, **_bounds(source)))
        .unionByName(_copies(read(target), source))
        .groupBy("partition", "offset")
        .agg(
            F.sum("original").alias("original"),
            F.sum("restored").alias("restored"),
            (F.min("digest") == F.max("digest")).alias("same"),
            F.max("place").alias("place"),
            F.max("target").alias("target"),
            F.max("key").alias("key"),
            F.max("tombstone").alias("tombstone"),
        )
        .withColumn("cleaned", _cleaned() if source.is_compacted else F.lit(False))
        .withColumn("before", F.lag("place").over(_order()))
        .withColumn("misplaced", _misplaced(by_key=by_key))
    )
    kind = (
        F.when(F.col("restored") == 0, "RECORD_LOST")
        .when(F.col("partition").isNull(), "RECORD_UNKNOWN")
        .when((F.col("original") != 1) & ~F.col("cleaned"), "RECORD_UNKNOWN")
        .when(F.col("restored") > 1, "RECORD_REPEATED")
        .when(~F.col("same"), "RECORD_CHANGED")
        .when(F.col("misplaced"), "PARTITION_CHANGED")
        .when(F.col("place") < F.col("before"), "ORDER_CHANGED")
    )
    detail = F.format_string("%d times in %s", F.col("restored"), F.lit(target))
    there = F.format_string(", in partition %d", F.col("target"))
    return _findings(
        judged.withColumn("kind", kind).where("kind is not null"),
        "C1",
        source.topic,
        F.col("kind"),
        F.concat(detail, F.when(F.col("kind") == "PARTITION_CHANGED", there).otherwise("")),
    )


def _bounds(source: Source) -> dict[str, str]:
    def named(places: Mapping[int, int]) -> str:
        return json.dumps({source.topic: {str(part): offset for part, offset in places.items()}})

    return {"startingOffsets": named(source.starts), "endingOffsets": named(source.ends)}


def _originals(records: DataFrame) -> DataFrame:
    return records.select(
        "partition",
        "offset",
        _content().alias("digest"),
        F.lit(1).alias("original"),
        F.lit(0).alias("restored"),
        F.lit(None).cast("long").alias("place"),
        F.lit(None).cast("int").alias("target"),
        F.col("key"),
        F.col("value").isNull().alias("tombstone"),
    )


def _copies(records: DataFrame, source: Source) -> DataFrame:
    """Those of ``source`` that it still has, and those that nobody knows: without a place."""
    header = F.filter("headers", lambda each: each["key"] == ORIGIN_HEADER)
    place = F.split(F.try_element_at(header, F.lit(-1))["value"].cast("string"), "/")
    placed = records.withColumns(
        {
            "topic": place[0],
            "from": F.try_element_at(place, F.lit(2)).try_cast("int"),
            "at": F.try_element_at(place, F.lit(3)).try_cast("long"),
        }
    )
    starts = F.create_map(*(F.lit(n) for item in source.starts.items() for n in item))
    is_known = (F.col("topic") == source.topic) & F.col("from").isNotNull()
    is_lost = F.col("topic").isNull() | F.col("from").isNull() | F.col("at").isNull()
    kept = F.col("at") >= F.coalesce(F.try_element_at(starts, F.col("from")), F.lit(0))
    return placed.where(is_lost | (is_known & kept)).select(
        F.when(~is_lost, F.col("from")).alias("partition"),
        F.when(~is_lost, F.col("at")).alias("offset"),
        _content().alias("digest"),
        F.lit(0).alias("original"),
        F.lit(1).alias("restored"),
        F.col("offset").alias("place"),
        F.col("partition").alias("target"),
        F.col("key"),
        F.col("value").isNull().alias("tombstone"),
    )


def _order() -> Window:
    """Records of one partition that went into one partition, as they were."""
    return Window.partitionBy("partition", "target").orderBy("offset")


def _cleaned() -> Column:
    """What the cleaner of a compacted topic may have removed: all but a key's last record, and
    tombstones."""
    of_key = Window.partitionBy("partition", "key")
    return F.col("tombstone") | (F.col("offset") < F.max("offset").over(of_key))


def _misplaced(*, by_key: bool) -> Column:
    if not by_key:
        return F.col("target") != F.col("partition")
    of_key = Window.partitionBy("key")
    is_split = F.min("target").over(of_key) != F.max("target").over(of_key)
    return F.col("key").isNotNull() & is_split


def _content() -> Column:
    """A digest of what a restore keeps of a record. Nulls leave a hash as it is, so that they are
    told too."""

    def own(column: str, name: Column) -> Column:
        others = F.filter(column, lambda each: each["key"] != name)
        return F.when(F.size(others) > 0, others)

    headers = own("headers", F.lit(ORIGIN_HEADER))
    raw = own("rawHeaders", F.lit(ORIGIN_HEADER.encode()))
    nulls = [F.col(name).isNull() for name in ("key", "value")]
    return F.xxhash64(*nulls, "key", "value", "timestampMs", headers, raw)


def manifest(spark: SparkSession, options: Mapping[str, str], topic: str, path: str) -> DataFrame:
    """Acknowledged records (``paceline produce --acked-file``) that are not where they were said
    to be: every line's partition and offset must hold a record of that key."""
    acked = (
        spark.read.schema("line long, partition int, offset long, leader_epoch int, key string")
        .json(path)
        .select("partition", "offset", F.col("key").alias("wanted"))
    )
    stored = (
        spark.read.format("paceline")
        .options(**options)
        .option("subscribe", topic)
        .option("columns", "key,partition,offset")
        .load()
        .select("partition", "offset", F.col("key").cast("string"), F.lit(1).alias("there"))
    )
    joined = acked.join(stored, ["partition", "offset"], "left")
    wrong = joined.where("there is null or not (wanted <=> key)")
    kind = F.when(F.col("there").isNull(), "ACKED_MISSING").otherwise("ACKED_CHANGED")
    detail = F.concat(F.lit("key "), F.coalesce("wanted", F.lit("null")))
    return _findings(wrong, "M1", topic, kind, detail)


def _findings(rows: DataFrame, check: str, topic: str, kind: Column, detail: Column) -> DataFrame:
    """As the auditor's."""
    return rows.select(
        F.lit(check).alias("check"),
        kind.alias("finding"),
        F.lit(topic).alias("topic"),
        "partition",
        F.lit(None).cast("int").alias("replica"),
        "offset",
        detail.alias("detail"),
    )
