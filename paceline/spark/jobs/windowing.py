"""Topic to topic: records grouped by key and window of time, each window written once.

A window is written when the watermark has passed its end (append mode), so its numbers are final;
rows that come later than the watermark allows are dropped and counted (DESIGN 7.3). Early
windows are written whenever they change instead: key and window start say which one it is, and the
last version counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from paceline.spark.arrow import FIRST_MS, LAST_MS
from paceline.spark.errors import OptionError
from paceline.spark.micro_batch import MicroBatch
from paceline.values import dataclass

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from paceline.spark.jobs.dead_letters import DeadLetters

OutputMode = Literal["append", "update"]

RECORD = "record"
HEADER = "paceline.window"
ZONE = "spark.sql.session.timeZone"
SETTINGS = {"spark.sql.shuffle.partitions": "4", ZONE: "UTC"}
"""Of the session, unless the user says otherwise."""
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
"""Settings that keep open windows on disk; a checkpoint remembers its own."""
_AGGREGATE = re.compile(r"(count|sum|min|max|avg|approx_distinct)(?::(\$.*))?\Z")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """``count``, or a function of the number (of approx_distinct: the text) at a JSON path."""

    function: str
    path: str

    @property
    def name(self) -> str:
        """The field it gets in the written value."""
        if not self.path:
            return self.function
        return f"{self.function}_{re.sub(r'[^A-Za-z0-9]+', '_', self.path).strip('_')}"

    def column(self) -> Column:
        """As Spark computes it."""
        if self.function == "count":
            return F.count("*")
        if self.function == "approx_distinct":
            return F.approx_count_distinct(self._text)
        function = {"sum": F.sum, "min": F.min, "max": F.max, "avg": F.avg}[self.function]
        return function(self._text.try_cast("double"))

    @property
    def is_numeric(self) -> bool:
        """Whether it needs numbers."""
        return self.function not in ("count", "approx_distinct")

    def is_bad(self) -> Column:
        """Whether a value is there that is no finite number: one such value would end the query, or
        spoil its window's sum for good. None at all is nothing to add."""
        number = self._text.try_cast("double")
        is_finite = F.abs(number) < F.lit(float("inf"))  # NaN is the largest number to Spark
        return self._text.isNotNull() & ~F.coalesce(is_finite, F.lit(False))

    @property
    def _text(self) -> Column:
        return F.get_json_object(F.col("text"), self.path)


def parse_aggregates(text: str) -> tuple[Aggregate, ...]:
    """``count,sum:$.price``. Raises OptionError."""
    found = []
    for part in text.split(","):
        match = _AGGREGATE.match(part.strip())
        if match is None or (match[1] == "count") == bool(match[2]):
            raise OptionError(
                f"--agg {part!r}: expected count, or sum, min, max, avg, approx_distinct with a "
                "path, for example sum:$.price"
            )
        found.append(Aggregate(match[1], match[2] or ""))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Windows:
    """``time`` and ``key``: ``record``, or a JSON path into the value. ``slide`` empty: windows do
    not overlap. A time further than ``max_ahead`` in the future is taken for wrong: the watermark
    would follow it, and all that comes then would be late."""

    time: str
    key: str
    window: str
    slide: str
    watermark: str
    max_ahead: str
    aggregates: Sequence[Aggregate]

    def purpose(self) -> dict[str, object]:
        """What must not change while windows are open."""
        return {
            "time": self.time,
            "key": self.key,
            "window": self.window,
            "slide": self.slide,
            "agg": [f"{each.function}:{each.path}" for each in self.aggregates],
        }

    def choices(self, settings: Mapping[str, str]) -> dict[str, str]:
        """What must not change while a batch is under way, else it would be judged in two ways.
        ``settings``: the session's."""
        return {"max-ahead": self.max_ahead, ZONE: settings[ZONE]}


def decoded(records: DataFrame, wanted: Windows, clock: Column) -> DataFrame:
    """Records with ``time`` and ``group``, and ``problem``: why no window can take this one, or
    null. ``clock``: what the time is."""
    text = F.col("value").cast("string")
    rows = records.withColumn("text", F.when(F.is_valid_utf8(text), text))
    group = F.coalesce(F.col("key").cast("string"), F.lit(""))
    if wanted.key != RECORD:
        group = F.get_json_object("text", wanted.key)
    time = F.col("timestamp") if wanted.time == RECORD else _time_at(wanted.time)
    rows = rows.withColumn("time", time).withColumn("group", group)
    return rows.withColumn("problem", _problem(wanted, clock))


def _time_at(path: str) -> Column:
    """Milliseconds or a time as text; null where it is neither, or of no year that has a name."""
    given = F.get_json_object("text", path)
    number = given.try_cast("double")
    millis = F.when(number.between(FIRST_MS, LAST_MS), number).cast("long")
    parsed = given.try_cast("timestamp")
    is_named = F.unix_seconds(parsed).between(FIRST_MS // 1000, LAST_MS // 1000)
    return F.coalesce(F.timestamp_millis(millis), F.when(is_named, parsed))


def _problem(wanted: Windows, clock: Column) -> Column:
    latest = clock + F.expr(f"interval {wanted.max_ahead}")
    found = F.when(F.col("time").isNull(), F.lit(f"no time at {wanted.time}"))
    found = found.when(F.col("time") > latest, F.lit(f"time at {wanted.time} is too far ahead"))
    found = found.when(F.col("group").isNull(), F.lit(f"no key at {wanted.key}"))
    for each in wanted.aggregates:
        if each.is_numeric:
            found = found.when(each.is_bad(), F.lit(f"no number at {each.path}"))
    return found


def windowed(records: DataFrame, wanted: Windows) -> DataFrame:
    """The records to write: key, value (JSON) and headers, one for each group and window. In a
    stream it is the clock of each micro-batch that judges."""
    good = decoded(records, wanted, F.current_timestamp()).where("problem is null")
    span = F.window("time", wanted.window, wanted.slide or None)
    found = (
        good.withWatermark("time", wanted.watermark)
        .groupBy(span.alias("window"), "group")
        .agg(*(each.column().alias(each.name) for each in wanted.aggregates))
    )
    fields = [
        F.unix_millis("window.start").alias("window_start"),
        F.unix_millis("window.end").alias("window_end"),
        F.col("group").alias("key"),
        *(F.col(each.name) for each in wanted.aggregates),
    ]
    start = F.unix_millis("window.start").cast("string").cast("binary")
    return found.select(
        F.col("group").cast("binary").alias("key"),
        F.to_json(F.struct(*fields)).cast("binary").alias("value"),
        F.array(F.struct(F.lit(HEADER).alias("key"), start.alias("value"))).alias("headers"),
    )


@dataclass(frozen=True, slots=True)
class Output:
    """Where the rows of a query go, its name, and how often (``trigger``, as Spark takes it)."""

    name: str
    bootstrap: str
    topic: str
    checkpoint: str
    trigger: Mapping[str, Any]

    @property
    def options(self) -> dict[str, str]:
        """Those of the sink."""
        return {
            "paceline.bootstrap.servers": self.bootstrap,
            "topic": self.topic,
            "includeHeaders": "true",
        }

    def start(self, writer: DataStreamWriter) -> StreamingQuery:
        """Run until the query ends."""
        named = writer.queryName(self.name).option("checkpointLocation", self.checkpoint)
        return named.trigger(**self.trigger).start()


def start(rows: DataFrame, output: Output) -> StreamingQuery:
    """Write each row once."""
    writer = rows.writeStream.format("paceline").outputMode("append")
    return output.start(writer.options(**output.options))


def start_batches(
    rows: DataFrame, output: Output, mode: OutputMode, dead: DeadLetters | None
) -> StreamingQuery:
    """Write each micro-batch's rows, once, in a write of its own, and its dead letters before them:
    with ``update`` the windows that it has changed (DESIGN 2.5: Spark has no such mode for sinks
    like ours), with ``append`` those that it has closed."""
    query_id: Future[str] = Future()

    def write(frame: DataFrame, number: int) -> None:
        name, spark = query_id.result(), frame.sparkSession
        batch = MicroBatch.planned(spark, output.checkpoint, number)
        if dead is not None:
            dead.write(spark, batch, name)
        named = {
            "txnAppId": name,
            "txnVersion": str(number),
            "txnPlannedMs": str(batch.clock_ms),
        }
        frame.write.format("paceline").options(**output.options, **named).mode("append").save()

    query = output.start(rows.writeStream.foreachBatch(write).outputMode(mode))
    # The first batch may be there before this line: it waits for its name.
    query_id.set_result(str(query.id))
    return query
