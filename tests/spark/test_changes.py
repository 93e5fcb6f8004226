"""What a user changes between two runs on one checkpoint: nothing is lost, repeated or left out
without a word."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from paceline.spark.options import parse_sink
from paceline.spark.sink import commit, write_task
from paceline.spark.sink_ids import TaskId, WriteId
from tests.spark.queries import Query, Topics


def test_reading_only_what_is_committed_from_now_on_is_no_loss(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """The log seemed to end at the open transaction; going on without loss read all again."""
    topic = topics.make(partitions=1)
    topics.write(topic, ["a", "b"])
    sink = parse_sink({"paceline.bootstrap.servers": topics.bootstrap, "topic": topic})
    rows = pa.RecordBatch.from_pydict({"value": [b"c", b"d"]})
    task = TaskId(WriteId(f"sink-{topic}", "query", "run", 0), 0, 0)
    unfinished = write_task(sink, task, iter([rows]))
    query = Query(spark, tmp_path, topics.options(topic, startingOffsets="earliest"))
    assert query.run(isolationLevel="read_uncommitted") == ["a", "b", "c", "d"]
    assert query.run() == []
    assert query.run(failOnDataLoss=False) == []
    commit(sink, [unfinished])
    topics.write(topic, ["e"])
    assert query.run() == ["e"]


def test_a_start_beyond_the_log_is_a_loss_once(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """All that the log had was given again."""
    topic = topics.make(partitions=1)
    topics.write(topic, ["a", "b", "c"])
    beyond = json.dumps({topic: {"0": 5}})
    query = Query(spark, tmp_path, topics.options(topic, startingOffsets=beyond))
    with pytest.raises(StreamingQueryException, match=r"D2 .*ends at 3, the query was at 5"):
        query.run()
    assert query.run(failOnDataLoss=False) == []
    topics.write(topic, ["d"])
    assert query.run() == ["d"]
    assert query.offsets()[-1]["$paceline"]["lost"] == {topic: {"0": 2}}
