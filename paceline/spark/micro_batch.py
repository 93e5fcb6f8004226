"""One micro-batch of a query, as Spark's checkpoint has it: what it reads, and by which clock.

Spark writes this down before it runs the batch, and one that is done again after a crash is done by
the same. So another query can read what the batch has read, and judge as it did.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from paceline.spark.offsets import StreamOffset, is_marker
from paceline.spark.options import of_batch, parse_source
from paceline.spark.places import below
from paceline.values import dataclass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """``clock_ms``: what ``current_timestamp()`` is in it. ``start`` and ``end`` are offsets of its
    one source; a query's first batch has no start in the checkpoint."""

    number: int
    clock_ms: int
    start: Mapping[str, Any] | None
    end: Mapping[str, Any]

    @classmethod
    def planned(cls, spark: SparkSession, checkpoint: str, number: int) -> Self:
        """Of a query with one source, by its checkpoint, wherever that lies."""
        clock_ms, end = _logged(spark, checkpoint, number)
        start = None if number == 0 else _logged(spark, checkpoint, number - 1)[1]
        return cls(number, clock_ms, start, end)

    @property
    def is_empty(self) -> bool:
        """Whether it has read nothing: it writes down where a query starts, or ends windows."""
        return self.start == self.end or is_marker(self.end)

    def read(self, spark: SparkSession, stream: Mapping[str, str]) -> DataFrame:
        """What it has read, of the same topics and no other under their names. ``stream``: the
        options of its source."""
        start = _beginning(stream, self.end) if self.start is None else self.start
        between = json.dumps([start, self.end])
        options = {**of_batch(stream), "between": between}
        return spark.read.format("paceline").options(**options).load()


def _beginning(stream: Mapping[str, str], end: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where a query starts: at offsets that it names, else its first batch only looks for them."""
    start, first = parse_source(stream, streaming=True).start, StreamOffset.from_json(end)
    if not start.is_explicit:
        return end
    return StreamOffset(first.cluster, first.ids, start.places).to_json()


def _logged(spark: SparkSession, checkpoint: str, number: int) -> tuple[int, dict[str, Any]]:
    """A batch's clock and end. Read with Hadoop, as Spark does it: the checkpoint may lie on what
    Python cannot read."""
    jvm = spark._jvm
    assert jvm is not None
    place = jvm.org.apache.hadoop.fs.Path(below(checkpoint, f"offsets/{number}"))
    settings = spark._jsparkSession.sessionState().newHadoopConf()
    stream = place.getFileSystem(settings).open(place)
    try:
        text = jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
    finally:
        stream.close()
    _version, batch, *ends = text.splitlines()
    [end] = ends
    return int(json.loads(batch)["batchTimestampMs"]), json.loads(end)
