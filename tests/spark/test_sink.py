"""The sink in a real Spark session."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from paceline.client import Position
from paceline.spark.options import parse_sink
from paceline.spark.rows import REASON_HEADER
from paceline.spark.sink import StreamWriter, TaskMessage
from paceline.spark.sink_ids import query_of
from paceline.spark.source import PacelineDataSource
from tests.spark.queries import DONE_S, Topics


def numbered(first: int, last: int) -> list[str]:
    return [f"{number:05d}" for number in range(first, last)]


def pipe(
    spark: SparkSession,
    base: Path,
    topics: Topics,
    source: str,
    sink: str,
    *,
    tasks: int = 2,
    value: Column | str = "value",
    to: str = "paceline",
    **more: object,
) -> None:
    """One run of a query from topic to topic, over all that is there. Where it starts is told: it
    needs no first batch to find that out."""
    partitions = topics.client.admin.topic(source).partitions
    start = json.dumps({source: {str(each.partition): 0 for each in partitions}})
    query = (
        spark.readStream.format("paceline")
        .options(**topics.options(source, startingOffsets=start, minPartitions=tasks))
        .load()
        .select("key", value, "partition")
        .writeStream.format(to)
        .options(**{key: str(value) for key, value in more.items()})
        .option("paceline.bootstrap.servers", topics.bootstrap)
        .option("topic", sink)
        .option("checkpointLocation", str(base / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(DONE_S), "the query did not end"


def forget_last_commit(base: Path) -> None:
    commits = base / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)


def test_a_frame_is_written_as_it_is(spark: SparkSession, topics: Topics) -> None:
    topic = topics.make(partitions=2)
    frame = spark.sql(
        f"""select '{topic}' topic, x'00ff' key, x'ff' value, 1 partition,
            timestamp_millis(1700000000123) timestamp,
            array(named_struct('key', 'h', 'value', x'01')) headers
        union all select '{topic}', null, null, 0, null, null"""
    )
    base = {"paceline.bootstrap.servers": topics.bootstrap, "deliveryGuarantee": "at_least_once"}
    frame.write.format("paceline").options(**base, includeHeaders="true").mode("append").save()
    with topics.client.consumer(topic, stop=Position.LATEST) as consumer:
        found = {record.partition: record for record in consumer}
    assert len(found) == 2
    assert (found[1].key, found[1].value, found[1].timestamp_ms) == (
        b"\x00\xff",
        b"\xff",
        1_700_000_000_123,
    )
    assert found[1].headers == (("h", b"\x01"),)
    assert (found[0].key, found[0].value, found[0].headers) == (None, None, ())
    odd = spark.sql(
        """select cast(x'ff' as string) key, cast(x'fe' as string) value, 0 partition,
            array(named_struct('key', cast(x'61fd' as string), 'value', x'01')) headers"""
    )
    odd.write.format("paceline").options(**base, includeHeaders="true", topic=topic).mode(
        "append"
    ).save()
    with topics.client.consumer(topic, stop=Position.LATEST) as consumer:
        [written] = [record for record in consumer if record.partition == 0 and record.offset]
    assert (written.key, written.value) == (b"\xff", b"\xfe")
    assert written.headers == (("a\udcfd", b"\x01"),)
    bad = spark.sql("select 'x' value, cast(x'ff' as string) topic")
    with pytest.raises(PySparkException, match=r"is no topic to write to"):
        bad.write.format("paceline").options(**base).mode("append").save()
    with pytest.raises(PySparkException, match="value attribute unsupported type int"):
        spark.sql("select 1 value").write.format("paceline").options(**base, topic=topic).mode(
            "append"
        ).save()
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        frame.drop("headers").write.format("paceline").options(**base).mode("overwrite").save()


def test_idempotent_writes_of_a_repeated_batch_are_stored_once(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source, sink = topics.make(partitions=2), topics.make("out", partitions=2)
    topics.write(source, numbered(0, 400))
    pipe(spark, tmp_path, topics, source, sink, deliveryGuarantee="idempotent")
    assert sorted(topics.read(sink)) == numbered(0, 400)
    forget_last_commit(tmp_path)
    topics.write(source, numbered(400, 450))
    pipe(spark, tmp_path, topics, source, sink, deliveryGuarantee="idempotent")
    assert sorted(topics.read(sink)) == numbered(0, 450)


def test_bad_rows_are_dead_letters(spark: SparkSession, topics: Topics) -> None:
    topic, dead = topics.make(partitions=2), topics.make("dead", partitions=1)
    frame = spark.sql(
        f"""select cast(id as string) value, if(id % 10 = 0, null, '{topic}') topic,
            if(id % 10 = 1, 7, 0) partition from range(100)"""
    )
    options = {
        "paceline.bootstrap.servers": topics.bootstrap,
        "deliveryGuarantee": "at_least_once",
    }
    with pytest.raises(PySparkException, match=r"null topic in the data|partition 7 of"):
        frame.write.format("paceline").options(**options).mode("append").save()
    lenient = {**options, "onBadRow": "dead_letter", "deadLetterTopic": dead}
    frame.write.format("paceline").options(**lenient).mode("append").save()
    with topics.client.consumer(dead, stop=Position.LATEST) as consumer:
        letters = list(consumer)
    assert sorted(int(each.value or b"") % 10 for each in letters) == [0] * 10 + [1] * 10
    reasons = {dict(each.headers)[REASON_HEADER] for each in letters}
    assert len(reasons) == 2
    assert set(map(int, topics.read(topic))) >= {
        number for number in range(100) if number % 10 not in (0, 1)
    }


def breaking_at(value: str, attempts: int) -> Column:
    """The value column; the task that comes to ``value`` fails, so many times. The sink's Python
    process sees its input end, as if that were all (spark/DESIGN 2.2)."""

    def check(given: bytes) -> bytes:
        context = TaskContext.get()
        assert context is not None
        if given.decode() == value and context.attemptNumber() < attempts:
            raise RuntimeError("broken by the test")
        return given

    return F.udf(check, "binary", useArrow=False)("value").alias("value")


class CrashingWriter(StreamWriter):
    """Fails where Spark lets it commit: before it has, or after."""

    def __init__(self, given: dict[str, str]) -> None:
        self._before = given.pop("crash") == "before"
        super().__init__(parse_sink(given))

    def commit(self, messages: Sequence[TaskMessage | None], batchId: int) -> None:
        if any(message is None or not message.transaction for message in messages):
            super().commit(messages, batchId)
            return
        if not self._before:
            super().commit(messages, batchId)
        raise RuntimeError("crashed by the test")


class CrashingSource(PacelineDataSource):
    """The sink; option ``crash``: before, or after."""

    @classmethod
    def name(cls) -> str:
        return "paceline-crashing"

    def streamWriter(self, schema: object, overwrite: bool) -> CrashingWriter:
        return CrashingWriter(dict(self.options))


def test_each_row_is_there_once_whatever_fails(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    spark.dataSource.register(CrashingSource)
    source, sink = topics.make(partitions=2), topics.make("out", partitions=2)
    wanted = numbered(0, 300)
    topics.write(source, wanted)
    with pytest.raises(StreamingQueryException, match="crashed by the test"):
        pipe(spark, tmp_path, topics, source, sink, to="paceline-crashing", crash="before")
    assert topics.read(sink) == [], "nothing of a batch that failed is visible"
    broken = {"tasks": 4, "value": breaking_at("00150", 1)}
    with pytest.raises(StreamingQueryException, match="crashed by the test"):
        pipe(spark, tmp_path, topics, source, sink, to="paceline-crashing", crash="after", **broken)
    assert sorted(topics.read(sink)) == wanted, "Spark does not know it, but the batch is there"
    topics.write(source, numbered(300, 350))
    pipe(spark, tmp_path, topics, source, sink, tasks=1)
    assert sorted(topics.read(sink)) == numbered(0, 350)

    forget_last_commit(tmp_path)
    as_if_stopped_for_long(tmp_path / "checkpoint")
    topics.write(source, numbered(350, 360))
    with pytest.raises(StreamingQueryException, match="go on with option onForgottenSink=skip"):
        pipe(spark, tmp_path, topics, source, sink, tasks=1)
    assert sorted(topics.read(sink)) == numbered(0, 350)
    pipe(spark, tmp_path, topics, source, sink, tasks=1, onForgottenSink="skip")
    assert sorted(topics.read(sink)) == numbered(0, 360), "only that batch is left out"


def as_if_stopped_for_long(checkpoint: Path) -> None:
    """The last batch was planned long ago, and the cluster knows nothing of its sink any more."""
    metadata = checkpoint / "metadata"
    last = max(
        (path for path in (checkpoint / "offsets").iterdir() if path.name.isdecimal()),
        key=lambda path: int(path.name),
    )
    metadata.write_text(json.dumps({"id": str(uuid.uuid4())}))
    head, facts, *offsets = last.read_text().splitlines()
    told = json.loads(facts)
    told["batchTimestampMs"] -= 100 * 86_400_000
    last.write_text("\n".join((head, json.dumps(told), *offsets)))
    for path in (metadata, last):
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def test_a_named_batch_write_is_written_once(spark: SparkSession, topics: Topics) -> None:
    topic = topics.make(partitions=2)
    frame = spark.range(40).selectExpr("cast(id as string) value")
    named = {
        "paceline.bootstrap.servers": topics.bootstrap,
        "topic": topic,
        "txnAppId": f"{topic}-app",
    }
    for version in (0, 0, 1, 1, 0):
        frame.write.format("paceline").options(**named, txnVersion=str(version)).mode(
            "append"
        ).save()
    assert sorted(topics.read(topic), key=int) == sorted([str(n) for n in range(40)] * 2, key=int)
    state = topics.client.sinks.state(f"{topic}-app/{topic}")
    assert (state.known, state.last_batch) == (True, 1)
    long_ago = str(time.time_ns() // 1_000_000 - 100 * 86_400_000)
    forgotten = {**named, "txnAppId": f"{topic}-old", "txnVersion": "7", "txnPlannedMs": long_ago}
    with pytest.raises(PySparkException, match="go on with option onForgottenSink=skip"):
        frame.write.format("paceline").options(**forgotten).mode("append").save()


@pytest.fixture
def small_arrow_batches(spark: SparkSession) -> Iterator[None]:
    """Otherwise a task that fails early has given its sink nothing yet; nor has it while Java's
    buffer of 64 KiB is not full."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "20")
    yield
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@pytest.mark.usefixtures("small_arrow_batches")
def test_a_failed_query_leaves_no_transaction_open(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """Readers of committed data waited for its time-out, 15 minutes. The stream has one task, so
    no task at all has left the driver a message; of the batch write's four one fails."""
    source, sink = topics.make(partitions=1), topics.make("out", partitions=1)
    wide = [value + "x" * 2000 for value in numbered(0, 300)]
    topics.write(source, wide)
    before = unfinished(topics)  # of tests that kill whoever would end them
    broken = breaking_at(wide[290], 99)
    with pytest.raises(StreamingQueryException, match="broken by the test"):
        pipe(spark, tmp_path, topics, source, sink, tasks=1, value=broken)
    query = query_of(str(tmp_path / "checkpoint"))
    assert topics.client.sinks.state(query).known, "it wrote before it failed"
    assert unfinished(topics) <= before
    topics.write(sink, ["read at once"])
    assert topics.read(sink) == ["read at once"]

    named = {"paceline.bootstrap.servers": topics.bootstrap, "topic": sink}
    value = spark.range(0, 300, 1, 4).selectExpr("cast(id || repeat('x', 2000) as binary) value")
    frame = value.select(breaking_at("290" + "x" * 2000, 99))
    with pytest.raises(PySparkException, match="broken by the test"):
        frame.write.format("paceline").options(**named).mode("append").save()
    assert unfinished(topics) <= before


def unfinished(topics: Topics) -> set[str]:
    """Transactions that nobody has decided about."""
    listed = topics.client.admin.transactions.list(states=["ongoing"])
    return {each.transactional_id for each in listed if each.family == "sink"}


def test_one_version_goes_to_each_topic(spark: SparkSession, topics: Topics) -> None:
    first, second = topics.make("a"), topics.make("b")
    frame = spark.range(20).selectExpr("cast(id as string) value")
    named = {
        "paceline.bootstrap.servers": topics.bootstrap,
        "txnAppId": f"{first}-app",
        "txnVersion": "3",
    }
    for topic in (first, second, first):
        frame.write.format("paceline").options(**named, topic=topic).mode("append").save()
    for topic in (first, second):
        assert sorted(topics.read(topic), key=int) == [str(n) for n in range(20)], topic
