"""Our source and sink beside Spark's own for Kafka: the same rows and columns, one run, in turn.

Each figure is the best of some rounds; within a round the generator, Paceline and Kafka take turns,
so that what else the machine does hurts all of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING

from paceline.spark.options import Guarantee
from paceline.spark.session import local_session
from paceline_cluster.bench import spark_runs
from paceline_cluster.bench.beside import RATE, TIME, Row
from paceline_cluster.bench.figures import Aim
from paceline_cluster.bench.kafka_jars import Jars
from paceline_cluster.bench.spark_generator import NAME, GeneratorSource
from paceline_cluster.bench.spark_runs import (
    PARTITIONS,
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
from paceline_cluster.errors import BadSetting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CEILING, PACELINE, KAFKA = "generator", "paceline", "kafka"
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""Those that both sources have."""
VALUE = ("value",)
FILLED_BY = {"kafka.batch.size": str(1 << 20), "kafka.linger.ms": "100"}
"""So that stored batches are as large as ours."""
READ_AIM, WRITE_AIM = Aim(0.6, at_least=True), Aim(0.6, at_least=True)
BATCH_AIM = Aim(1.3, at_least=False)

Options = Mapping[str, str]
Work = Callable[[], float]


def measure(
    addresses: list[str], kafka: str, connector: Jars, *, records: int, rounds: int
) -> Iterator[Row]:
    """All rows, one after the other. Raises BadSetting where the topics cannot be compared."""
    spark_runs.fill(addresses, records)
    spark = local_session("bench", master="local[2]", conf={"spark.jars": connector.joined(",")})
    spark.dataSource.register(GeneratorSource)
    try:
        yield from _Beside(spark, ",".join(addresses), kafka, records, rounds).rows()
    finally:
        spark.stop()


def versions(connector: Jars, broker: Jars) -> dict[str, object]:
    """What a reader must know beside what the benchmark says anyway."""
    return {
        "pyspark": metadata.version("pyspark"),
        "kafka_connector": connector.version,
        "kafka_broker": broker.version,
        "kafka_nodes": 1,
    }


class _Beside:
    """One session's measurements."""

    def __init__(
        self, spark: SparkSession, paceline: str, kafka: str, records: int, rounds: int
    ) -> None:
        self._spark = spark
        self._records = records
        self._rounds = rounds
        self._links = {
            CEILING: made(0),
            PACELINE: {"paceline.bootstrap.servers": paceline},
            KAFKA: {"kafka.bootstrap.servers": kafka},
        }
        self._formats = {CEILING: NAME, PACELINE: "paceline", KAFKA: "kafka"}

    def rows(self) -> Iterator[Row]:
        """The topics are made alike, and compared, before."""
        self._fill_kafka()
        self._compare()
        yield self._batch("batch read, 7 columns", COLUMNS, READ_AIM)
        yield self._batch("batch read, value alone", VALUE, None)
        yield self._available_now()
        yield from self._writes()
        name = f"micro-batch of {SMALL_BATCH} rows"
        yield self._small(f"{name}, to noop", sinks=False)
        yield self._small(f"{name}, to the sink", sinks=True)

    # --- topics -----------------------------------------------------------------------------------

    def _fill_kafka(self) -> None:
        for topic, count in spark_runs.counts(self._records).items():
            frame = self._spark.range(count, numPartitions=PARTITIONS).selectExpr(
                f"unhex(repeat('00', {SIZE})) as value",
                f"cast(id % {PARTITIONS} as int) as partition",
            )
            spark_runs.write(frame, "kafka", {**self._links[KAFKA], **FILLED_BY, "topic": topic})

    def _compare(self) -> None:
        """Both have the same records in the same partitions."""
        for topic in spark_runs.counts(self._records):
            held = {side: self._held(side, topic) for side in (PACELINE, KAFKA)}
            if held[PACELINE] != held[KAFKA]:
                raise BadSetting(f"{topic} is not the same in both clusters: {held}; run it again")

    def _held(self, side: str, topic: str) -> list[tuple[object, ...]]:
        """Records and bytes of each partition."""
        options = {**self._links[side], "subscribe": topic, "startingOffsets": "earliest"}
        frame = self._spark.read.format(self._formats[side]).options(**options).load()
        frame.createOrReplaceTempView("held")
        return [
            tuple(row)
            for row in self._spark.sql(
                "select partition, count(*), sum(length(value)), min(offset), max(offset) "
                "from held group by partition order by partition"
            ).collect()
        ]

    # --- rows -------------------------------------------------------------------------------------

    def _batch(self, name: str, columns: tuple[str, ...], aim: Aim | None) -> Row:
        def work(side: str) -> float:
            return self._records / spark_runs.read(frames[side])

        frames: dict[str, DataFrame] = {
            side: self._spark.read.format(self._formats[side])
            .options(**self._source(side, SOURCE, self._records, columns))
            .load()
            .select(*columns)
            for side in self._formats
        }
        found = self._in_turn({side: partial(work, side) for side in frames}, max, warm=True)
        return Row(name, RATE, found[CEILING], found[PACELINE], found[KAFKA], aim)

    def _available_now(self) -> Row:
        per_batch = self._records // TRIGGERS

        def work(side: str) -> float:
            frame = self._stream(side, SOURCE, self._records, per_batch, COLUMNS)
            rows, seconds = spark_runs.rate(spark_runs.steady(frame, "noop", {}))
            return rows / seconds

        found = self._in_turn({side: partial(work, side) for side in self._formats}, max)
        name = "AvailableNow read, 7 columns"
        return Row(name, RATE, found[CEILING], found[PACELINE], found[KAFKA], READ_AIM)

    def _writes(self) -> Iterator[Row]:
        rows = self._records // WRITTEN_SHARE
        frame = spark_runs.rows_to_write(self._spark, rows)

        def work(side: str, options: Options) -> float:
            return rows / spark_runs.write(frame, self._formats[side], options)

        works: dict[str, Work] = {
            CEILING: partial(work, CEILING, self._sink(CEILING)),
            KAFKA: partial(work, KAFKA, self._sink(KAFKA)),
        }
        for each in Guarantee:
            options = {**self._sink(PACELINE), "deliveryGuarantee": each.value}
            works[each.value] = partial(work, PACELINE, options)
        found = self._in_turn(works, max, warm=True)
        for each in Guarantee:
            name = f"write, {each.value} (Kafka: at_least_once)"
            yield Row(name, RATE, found[CEILING], found[each.value], found[KAFKA], WRITE_AIM)

    def _small(self, name: str, *, sinks: bool) -> Row:
        def work(side: str) -> float:
            rows = SMALL_BATCH * SMALL_BATCHES
            frame = self._stream(side, SMALL, rows, SMALL_BATCH, VALUE)
            sink = (self._formats[side], self._sink(side)) if sinks else ("noop", {})
            return statistics.median(spark_runs.batch_times(spark_runs.steady(frame, *sink)))

        found = self._in_turn({side: partial(work, side) for side in self._formats}, min)
        return Row(f"{name}, p50", TIME, found[CEILING], found[PACELINE], found[KAFKA], BATCH_AIM)

    # --- how --------------------------------------------------------------------------------------

    def _in_turn(
        self, works: Mapping[str, Work], best: Callable[[list[float]], float], *, warm: bool = False
    ) -> dict[str, float]:
        """The best of each. ``warm``: begin with a round that does not count; streams have their
        first batch for that."""
        if warm:
            for work in works.values():
                work()
        found: dict[str, list[float]] = {side: [] for side in works}
        for _ in range(self._rounds):
            for side, work in works.items():
                found[side].append(work())
        return {side: best(values) for side, values in found.items()}

    def _stream(
        self, side: str, topic: str, rows: int, per_batch: int, columns: tuple[str, ...]
    ) -> DataFrame:
        options = self._source(side, topic, rows, columns)
        limit = "per_batch" if side == CEILING else "maxOffsetsPerTrigger"
        stream = self._spark.readStream.format(self._formats[side])
        return stream.options(**options, **{limit: str(per_batch)}).load().select(*columns)

    def _source(self, side: str, topic: str, rows: int, columns: tuple[str, ...]) -> dict[str, str]:
        """Kafka's source has no choice of columns; Spark drops those that are not selected."""
        if side == CEILING:
            return {**made(rows), "columns": ",".join(columns)}
        options = {**self._links[side], "subscribe": topic, "startingOffsets": "earliest"}
        return options if side == KAFKA else {**options, "columns": ",".join(columns)}

    def _sink(self, side: str) -> dict[str, str]:
        return {**self._links[side], "topic": SINK}
