"""``format("paceline-generator")``: rows out of memory and into nothing, the most Spark could do.

The rows are like those of the real source and go the same way through Spark, so that what is
missing to these rates is what a cluster costs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from paceline.spark.options import columns_of
from paceline.values import dataclass

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

NAME = "paceline-generator"
BATCH_ROWS = 10_000
DONE = "rows"
"""The one field of its offsets."""


@dataclass(frozen=True, slots=True)
class Made:
    """What is generated: ``rows`` in all, values of ``size`` bytes, a stream's ``per_batch``."""

    columns: tuple[str, ...]
    rows: int
    partitions: int
    size: int
    per_batch: int

    def split(self, rows: int) -> list[InputPartition]:
        """So many rows over the tasks."""
        cuts = [rows * number // self.partitions for number in range(self.partitions + 1)]
        return [InputPartition(last - first) for first, last in itertools.pairwise(cuts)]

    def batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One batch again and again."""
        import pyarrow as pa

        from paceline.spark import arrow

        values = {
            "value": pa.array([bytes(self.size)] * BATCH_ROWS, pa.binary()),
            "topic": pa.repeat(pa.scalar("generated"), BATCH_ROWS),
            "partition": pa.repeat(pa.scalar(0, pa.int32()), BATCH_ROWS),
            "offset": pa.array(range(BATCH_ROWS), pa.int64()),
            "timestamp": pa.nulls(BATCH_ROWS, pa.timestamp("us", tz="UTC")),
            "timestampType": pa.repeat(pa.scalar(0, pa.int32()), BATCH_ROWS),
            "key": pa.nulls(BATCH_ROWS, pa.binary()),
        }
        schema = arrow.schema(self.columns)
        batch = pa.record_batch([values[name] for name in self.columns], schema=schema)
        for first in range(0, partition.value, BATCH_ROWS):
            yield batch.slice(0, min(BATCH_ROWS, partition.value - first))


class GeneratorSource(DataSource):
    """Options: the fields of Made; ``columns`` separated by commas."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        from paceline.spark import row_types

        return row_types.records(self._columns())

    def reader(self, schema: StructType) -> DataSourceReader:
        return GeneratorReader(self._made())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return GeneratorStreamReader(self._made())

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return Nowhere()

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        return StreamNowhere()

    def _columns(self) -> tuple[str, ...]:
        named = self.options.get("columns", "")
        return columns_of(tuple(named.split(",")) if named else None, False)

    def _made(self) -> Made:
        rows = int(self.options["rows"])
        return Made(
            self._columns(),
            rows,
            int(self.options["partitions"]),
            int(self.options["size"]),
            int(self.options.get("per_batch", rows)),
        )


class GeneratorReader(DataSourceReader):
    """In one batch."""

    def __init__(self, made: Made) -> None:
        self._made = made

    def partitions(self) -> list[InputPartition]:
        return self._made.split(self._made.rows)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._made.batches(partition)


class GeneratorStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """In micro-batches."""

    def __init__(self, made: Made) -> None:
        self._made = made

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._made.per_batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """All is there from the beginning."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {DONE: 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        return {DONE: min(start[DONE] + self._made.per_batch, self._made.rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return self._made.split(end[DONE] - start[DONE])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._made.batches(partition)


class Nowhere(DataSourceArrowWriter):
    """Takes rows as a sink does, and drops them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class StreamNowhere(DataSourceStreamArrowWriter):
    """The same in micro-batches."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Nowhere().write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do."""
