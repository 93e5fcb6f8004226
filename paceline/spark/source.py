"""``format("paceline")``: the data source as Spark sees it. Thin: planning, reading and writing are
elsewhere and know nothing of Spark's classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from paceline.spark.errors import OptionError
from paceline.spark.options import (
    SinkOptions,
    SourceOptions,
    View,
    columns_of,
    parse_sink,
    parse_source,
)
from paceline.spark.plain import told_plainly
from paceline.spark.planner import Limit, StreamPlanner, default_limit
from paceline.spark.planning import ReadRange

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

NO_OVERWRITE = (
    "paceline: a log cannot be overwritten; use mode('append'), and for a query's complete or "
    "update output foreachBatch with txnAppId and txnVersion"
)
FIXED_SCHEMA = "paceline: the schema is fixed; decode value with paceline.spark.decode"


class PacelineDataSource(DataSource):
    """Topics of a Paceline cluster as rows, and rows as records; options in README.md.

    Spark makes one in several processes, so it holds nothing but the options.
    """

    @classmethod
    def name(cls) -> str:
        return "paceline"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(sorted(self.options))})"

    def schema(self) -> StructType:
        from paceline.spark import row_types

        given = dict(self.options)
        view = View(given.get("view", View.RECORDS.value).lower())
        return (
            row_types.view(view) if view is not View.RECORDS else row_types.records(_columns(given))
        )

    @told_plainly()
    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_source(dict(self.options), streaming=False)
        self._check(schema)
        if options.view is View.RECORDS:
            return BatchReader(options)
        from paceline.spark.view_reader import ViewReader

        return ViewReader(options)

    @told_plainly()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = parse_source(dict(self.options), streaming=True)
        self._check(schema)
        return StreamReader(options)

    @told_plainly()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from paceline.spark.cluster import reach
        from paceline.spark.sink import BatchWriter

        options = self._sink_options(schema, overwrite=overwrite)
        reach(options.link)
        return BatchWriter(options)

    @told_plainly()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from paceline.spark.cluster import reach
        from paceline.spark.sink import StreamWriter

        options = self._sink_options(schema, overwrite=overwrite)
        writer = StreamWriter(options, self.options.get("checkpointLocation", ""))
        if writer.is_new:
            reach(options.link)
        return writer

    def _sink_options(self, schema: StructType, *, overwrite: bool) -> SinkOptions:
        from paceline.spark.rows import check_columns

        if overwrite:
            raise OptionError(NO_OVERWRITE)
        options = parse_sink(dict(self.options))
        check_columns(((each.name, each.dataType.simpleString()) for each in schema), options)
        return options

    def _check(self, schema: StructType) -> None:
        if schema != self.schema():
            raise OptionError(FIXED_SCHEMA)


def _columns(given: Mapping[str, str]) -> tuple[str, ...]:
    chosen = [part.strip() for part in given.get("columns", "").split(",") if part.strip()]
    headers = given.get("includeheaders", given.get("includeHeaders", "false")).lower() == "true"
    return columns_of(tuple(dict.fromkeys(chosen)) or None, headers)


class RangePartition(InputPartition):
    """One task's range."""

    def __init__(self, wanted: ReadRange) -> None:
        super().__init__(wanted)


class BatchReader(DataSourceReader):
    """``spark.read``: bounds are resolved once, when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    @told_plainly()
    def partitions(self) -> list[RangePartition]:
        from paceline.spark.batch_plan import plan

        return [RangePartition(each) for each in plan(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """``spark.readStream``. One lives in the planner and keeps a connection; copies of it, made
    from the options alone, read in the tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._made: StreamPlanner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_made": None}

    @property
    def _planner(self) -> StreamPlanner:
        if self._made is None:
            self._made = StreamPlanner(self._options)
        return self._made

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = default_limit(self._options)
        if limit.max_rows is not None:
            return ReadMaxRows(limit.max_rows)
        if limit.max_bytes is not None:
            return ReadMaxBytes(limit.max_bytes)
        if limit.min_rows is not None:
            return ReadMinRows(limit.min_rows)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.available_now()

    @told_plainly()
    def initialOffset(self) -> dict[str, Any]:
        return self._planner.initial()

    @told_plainly()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return self._planner.latest(start, self._limit(limit))

    def _limit(self, given: ReadLimit) -> Limit:
        """Spark knows one limit at a time; the others are applied here. It takes none for all that
        there is even if the options ask for some (Trigger.Once), and that has to be respected."""
        limit = default_limit(self._options)
        if isinstance(given, ReadAllAvailable) and limit != Limit():
            return Limit(everything=True)
        return limit

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._planner.report()

    @told_plainly()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangePartition]:
        return [RangePartition(each) for each in self._planner.plan(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)

    def stop(self) -> None:
        if self._made is not None:
            self._made.close()


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from paceline.spark import arrow, reading

    if partition.value is None:  # an empty batch plan makes Spark run one task with nothing to do
        yield pa.RecordBatch.from_pylist([], schema=arrow.schema(options.columns))
        return
    with told_plainly():
        yield from reading.read_range(options, partition.value)
