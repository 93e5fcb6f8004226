"""The source in a real Spark session, against a cluster of three processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from paceline.client import blocking
from paceline.spark import decode
from paceline.spark.lag import LagListener
from tests.e2e.cluster import wait_until
from tests.spark.queries import Query, Topics, values_of

Start = Callable[..., Query]


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Start:
    def start(options: dict[str, str]) -> Query:
        return Query(spark, tmp_path, options)

    return start


def numbered(first: int, last: int) -> list[str]:
    return [f"{number:05d}" for number in range(first, last)]


def test_records_come_as_they_are(spark: SparkSession, topics: Topics) -> None:
    topic = topics.make(partitions=1)
    with topics.client.producer() as producer:
        headers = [("a", b"\xff\x00"), ("a", None), ("b", b"")]
        producer.send(
            topic, b"\x00\xffv", key=b"k\xfe", headers=headers, timestamp_ms=1_700_000_000_123
        )
        producer.send(topic, None, key=b"")
        producer.send(topic, b"")
    options = topics.options(topic, includeHeaders=True)
    loaded = spark.read.format("paceline").options(**options).load()
    assert [field.name for field in loaded.schema] == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    ]
    rows = loaded.orderBy("offset").collect()
    assert [(row.key, row.value) for row in rows] == [
        (b"k\xfe", b"\x00\xffv"),
        (b"", None),
        (None, b""),
    ]
    assert [tuple(header) for header in rows[0].headers] == [
        ("a", b"\xff\x00"),
        ("a", None),
        ("b", b""),
    ]
    assert rows[1].headers is None
    assert {(row.topic, row.partition, row.timestampType) for row in rows} == {(topic, 0, 0)}
    stamp = loaded.where("offset = 0").select(F.unix_millis("timestamp")).first()
    assert stamp is not None
    assert stamp[0] == 1_700_000_000_123
    bounded = topics.options(
        topic,
        columns="offset,value",
        startingOffsets=json.dumps({topic: {"0": 1}}),
        endingOffsets=json.dumps({topic: {"0": 2}}),
    )
    assert [
        tuple(row) for row in spark.read.format("paceline").options(**bounded).load().collect()
    ] == [(1, None)]


def test_bounds_beyond_the_log_are_no_shorter_reading(spark: SparkSession, topics: Topics) -> None:
    topic = topics.make(partitions=1)
    topics.write(topic, ["a", "b", "c"], partition=0)

    def read(**more: object) -> list[str]:
        options = topics.options(topic, **more)
        return values_of(spark.read.format("paceline").options(**options).load())

    beyond, within = (json.dumps({topic: {"0": offset}}) for offset in (4, 3))
    assert read(endingOffsets=within) == ["a", "b", "c"]
    assert read(startingOffsets=within) == []
    for name in ("endingOffsets", "startingOffsets"):
        with pytest.raises(PySparkException, match=f"{name} 4 is beyond the log, which ends at 3"):
            read(**{name: beyond})
    assert read(endingOffsets=beyond, failOnDataLoss=False) == ["a", "b", "c"]
    assert read(startingOffsets=beyond, failOnDataLoss=False) == []
    with pytest.raises(PySparkException, match=f"missing {topic}/0"):
        read(startingOffsets=json.dumps({topic: {}}))


def test_many_partitions_and_an_empty_topic(spark: SparkSession, topics: Topics) -> None:
    topic, empty = topics.make(partitions=3), topics.make("empty")
    wanted = numbered(0, 5000)
    topics.write(topic, wanted)
    frame = spark.read.format("paceline").options(**topics.options(topic, minPartitions=6)).load()
    assert frame.rdd.getNumPartitions() == 6
    assert values_of(frame) == wanted
    nothing = spark.read.format("paceline").options(**topics.options(empty)).load()
    assert nothing.count() == 0
    with pytest.raises(PySparkException, match="no such topic"):
        spark.read.format("paceline").options(**topics.options(f"{topic}-not")).load().count()
    with pytest.raises(PySparkException, match="did you mean minPartitions"):
        spark.read.format("paceline").options(
            **topics.options(topic, minPartition=7)
        ).load().count()


def test_a_restart_leaves_no_gap_and_repeats_nothing(query: Start, topics: Topics) -> None:
    topic = topics.make(partitions=2)
    topics.write(topic, numbered(0, 300))
    options = topics.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger=100)
    running = query(options)
    assert running.run() == numbered(0, 300)
    batches = [len(values) for _, values in running.seen]
    assert batches[0] == 0, "the first batch only pins the start"
    assert batches[1:] == [100, 100, 100]
    topics.write(topic, numbered(300, 350))
    assert running.run(minPartitions=6) == numbered(300, 350)
    replayed = running.forget_last_commit()
    topics.write(topic, numbered(350, 360))
    assert running.run(minPartitions=1) == numbered(300, 360)
    assert running.seen[-2][0] == replayed, "the batch came again, with the same records"
    assert running.seen[-2][1] == numbered(300, 350)
    texts = [json.dumps(each) for each in running.offsets()]
    assert len(set(texts)) == len(texts), "no batch was without a move of offsets"


def test_starting_at_latest_loses_nothing_to_a_failed_first_batch(
    query: Start, topics: Topics
) -> None:
    topic = topics.make(partitions=1)
    topics.write(topic, numbered(0, 95))
    running = query(topics.options(topic, startingOffsets="latest"))
    running.fail_at = lambda batch, values: True
    with pytest.raises(StreamingQueryException, match="broken by the test at batch 0"):
        running.run()
    topics.write(topic, numbered(95, 100))
    running.fail_at = lambda batch, values: bool(values)
    with pytest.raises(StreamingQueryException, match="broken by the test at batch 1"):
        running.run()
    topics.write(topic, numbered(100, 150))
    running.fail_at = lambda batch, values: False
    assert running.run() == numbered(95, 150)


def test_what_retention_took_ends_the_query_or_is_counted(query: Start, topics: Topics) -> None:
    topic = topics.make(partitions=1, segment_bytes="1024", retention_bytes="4096")
    topics.write(topic, numbered(0, 20))
    running = query(topics.options(topic, startingOffsets="earliest"))
    assert running.run() == numbered(0, 20)
    for first in range(20, 1020, 50):
        topics.write(topic, numbered(first, first + 50))
    wait_until("retention has taken the oldest", lambda: _log_start(topics, topic) > 20)
    with pytest.raises(StreamingQueryException, match=r"D1 .*offsets \[20, \d+\) are gone"):
        running.run()
    rest = running.run(failOnDataLoss="false")
    assert rest == numbered(1020 - len(rest), 1020)
    assert 0 < len(rest) < 1000
    lost = running.offsets()[-1]["$paceline"]["lost"][topic]["0"]
    assert 20 + lost + len(rest) == 1020


def _log_start(topics: Topics, topic: str) -> int:
    [partition] = topics.client.admin.describe_topic(topic).partitions
    return partition.log_start_offset


def test_a_topic_made_anew_is_noticed(query: Start, topics: Topics) -> None:
    topic = topics.make(partitions=1)
    topics.write(topic, numbered(0, 10))
    running = query(topics.options(topic, startingOffsets="earliest"))
    assert running.run() == numbered(0, 10)
    topics.client.admin.delete_topic(topic)
    topics.make(partitions=1)
    topics.write(topic, numbered(500, 520))
    with pytest.raises(StreamingQueryException, match=r"D3 .*made anew"):
        running.run()
    assert running.run(failOnDataLoss="false") == numbered(500, 520)


def test_a_planned_batch_of_a_topic_made_anew_ends(query: Start, topics: Topics) -> None:
    """It failed for ever, though losses were to be taken."""
    topic = topics.make(partitions=1)
    topics.write(topic, numbered(0, 10))
    running = query(topics.options(topic, startingOffsets="earliest"))
    assert running.run() == numbered(0, 10)
    topics.write(topic, numbered(10, 20))
    running.fail_at = lambda batch, values: True
    with pytest.raises(StreamingQueryException, match="broken by the test"):
        running.run()
    running.fail_at = lambda batch, values: False
    topics.client.admin.delete_topic(topic)
    topics.make(partitions=1)
    topics.write(topic, numbered(500, 520))
    with pytest.raises(StreamingQueryException, match=r"D3 .*made anew"):
        running.run()
    assert running.run(failOnDataLoss="false") == numbered(500, 520)


def test_lag_is_what_is_left(
    spark: SparkSession, query: Start, topics: Topics, client: blocking.Client
) -> None:
    topic = topics.make(partitions=2)
    topics.write(topic, numbered(0, 60), partition=0)
    topics.write(topic, numbered(60, 80), partition=1)
    listener = LagListener()
    spark.streams.addListener(listener)
    try:
        group = f"{topic}-progress"
        options = topics.options(topic, startingOffsets="earliest", groupId=group)
        running = query({**options, "maxOffsetsPerTrigger": "40"})
        assert running.run() == numbered(0, 80)
        assert running.last is not None
        key = str(running.last.id)
        wait_until("the listener has heard of the last batch", lambda: _behind(listener, key) == 0)
        progress = [json.loads(each.json) for each in running.last.recentProgress]
    finally:
        spark.streams.removeListener(listener)
    [second] = [each for each in progress if each["batchId"] == 1]
    latest = (
        json.loads(second["sources"][0]["latestOffset"])
        if isinstance(second["sources"][0]["latestOffset"], str)
        else second["sources"][0]["latestOffset"]
    )
    assert latest[topic] == {"0": 60, "1": 20}
    told = client.admin.groups.offsets(group)
    assert {at.partition: each.offset for at, each in told.items()} == {0: 60, 1: 20}


def _behind(listener: LagListener, key: str) -> int:
    found = listener.latest.get(key) or []
    return max((each.max_offsets_behind_latest for each in found), default=-1)


def test_bad_values_go_apart(spark: SparkSession, topics: Topics) -> None:
    topic = topics.make(partitions=1)
    with topics.client.producer() as producer:
        for value in (b'{"id": 7}', b"\xff\xfe", b"no json", None, b'{"id": 8, "more": 1}'):
            producer.send(topic, value)
    frame = spark.read.format("paceline").options(**topics.options(topic)).load()
    good, bad = decode.split_bad(frame, *decode.json(frame.value, "id bigint"))
    assert sorted((row.offset, row.decoded and row.decoded.id) for row in good.collect()) == [
        (0, 7),
        (3, None),
        (4, 8),
    ]
    assert sorted((row.offset, row.error) for row in bad.collect()) == [
        (1, decode.NOT_JSON),
        (2, decode.NOT_JSON),
    ]
    text = decode.utf8(frame.value)
    rows = frame.select("offset", text.value.alias("text"), text.error.alias("e")).collect()
    assert [row.e for row in sorted(rows)] == [None, decode.NOT_UTF8, None, None, None]
