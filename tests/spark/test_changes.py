"""What a user changes between two runs on one checkpoint: nothing is lost, repeated or left out
without a word."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from paceline.errors import ConfigurationError
from paceline.spark.jobs.report import JobExit
from paceline.spark.options import parse_sink
from paceline.spark.sink import commit, write_task
from paceline.spark.sink_ids import TaskId, WriteId
from tests.spark.queries import DONE_S, Job, Query, Topics


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_a_checkpoint_is_for_one_job(job: Job, topics: Topics, tmp_path: Path) -> None:
    """A restore left out as many files of another archive as it had read of the first; an archive
    began in the middle of its topic."""
    one, other = topics.make("one", 1), topics.make("other", 1)
    for topic in (one, other):
        topics.write(topic, [f"{topic} {number}" for number in range(20)])
        words = ("--topics", topic, "--to", (tmp_path / topic).as_uri())
        code, _ = job("archive", *words, "--checkpoint", (tmp_path / f"to-{topic}").as_uri())
        assert code == JobExit.DONE
    copies = {topic: topics.make(f"copy-of-{topic}", 1) for topic in (one, other)}

    def restore(topic: str, target: str, checkpoint: str, root: str = "") -> int:
        words = ("--from-archive", tmp_path / (root or topic), "--append")
        mapped = ("--topic-map", f"{topic}={target}", "--checkpoint", tmp_path / checkpoint)
        return job("restore", *words, *mapped)[0]

    assert restore(one, copies[one], "c") == JobExit.DONE
    with pytest.raises(ConfigurationError, match="is of another job: archive was "):
        restore(other, copies[other], "c")
    with pytest.raises(ConfigurationError, match="is of another job: topics was "):
        restore(one, copies[other], "c")
    assert topics.read(copies[other]) == []
    (tmp_path / one).rename(tmp_path / "moved")
    assert restore(one, copies[one], "c", "moved") == JobExit.DONE, "it is the same archive"
    assert topics.read(copies[one]) == topics.read(one)
    assert restore(other, copies[other], "another") == JobExit.DONE
    assert topics.read(copies[other]) == topics.read(other)
    with pytest.raises(ConfigurationError, match="is of another job: to was "):
        job(
            *("archive", "--topics", one, "--to", tmp_path / "new"),
            *("--checkpoint", tmp_path / f"to-{one}"),
        )


@pytest.mark.usefixtures("spark")
def test_what_was_archived_long_ago_is_kept(job: Job, topics: Topics, tmp_path: Path) -> None:
    """It was restored, counted, and deleted by the retention of the topic it went to."""
    source = topics.make(partitions=1, retention_ms="-1")
    with topics.client.producer() as producer:
        for number in range(20):
            producer.send(source, b"%d" % number, timestamp_ms=1_600_000_000_000)
    root = tmp_path / "archive"
    code, _ = job("archive", "--topics", source, "--to", root, "--checkpoint", tmp_path / "c")
    assert code == JobExit.DONE
    short, made = topics.make("short", 1), f"{source}-made"

    def restore(target: str, *more: str) -> int:
        checkpoint = tmp_path / "-".join(("back", target, *more))
        where = ("--topic-map", f"{source}={target}", "--checkpoint", checkpoint)
        return job("restore", "--from-archive", root, *where, *more)[0]

    small = topics.make("small", 1, retention_bytes="1000000", retention_ms="-1")
    with pytest.raises(ConfigurationError, match="would soon delete the oldest"):
        restore(short)
    for more in ((), ("--new-timestamps",)):
        with pytest.raises(ConfigurationError, match="beyond that size, restored ones too"):
            restore(small, *more)
    assert restore(made) == JobExit.DONE
    assert topics.read(made) == topics.read(source)
    kept = topics.client.admin.topic(made).configs or {}
    assert (kept["retention.ms"], kept["retention.bytes"]) == ("-1", "-1")


@pytest.mark.slow
def test_a_copied_checkpoint_leaves_nothing_out(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """A batch that it planned anew was taken for the one that was committed under its number."""
    source, sink, other = (topics.make(name, partitions=1) for name in ("in", "out", "other"))
    start = json.dumps({source: {"0": 0}})

    def copy(checkpoint: Path, to: str) -> None:
        stream = spark.readStream.format("paceline")
        running = (
            stream.options(**topics.options(source, startingOffsets=start))
            .load()
            .select("value")
            .writeStream.format("paceline")
            .option("paceline.bootstrap.servers", topics.bootstrap)
            .options(topic=to, checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert running.awaitTermination(DONE_S)

    topics.write(source, ["a"])
    copy(tmp_path / "query", sink)
    shutil.copytree(tmp_path / "query", tmp_path / "copy")
    topics.write(source, ["b"])
    copy(tmp_path / "query", sink)
    topics.write(source, ["c"])
    with pytest.raises(StreamingQueryException, match=r"batch 1 was planned anew"):
        copy(tmp_path / "copy", other)
    copy(tmp_path / "query", sink)
    assert topics.read(sink) == ["a", "b", "c"]


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_an_archive_outlives_an_older_checkpoint(job: Job, topics: Topics, tmp_path: Path) -> None:
    """As above; and there is a way to go on."""
    topic, checkpoint, backup = topics.make(partitions=1), tmp_path / "query", tmp_path / "backup"

    def archive() -> tuple[int, dict[str, object]]:
        words = ("--topics", topic, "--to", tmp_path / "archive", "--max-restarts", 0)
        return job("archive", *words, "--checkpoint", checkpoint)

    for value in "ab":
        topics.write(topic, [value])
        assert archive()[0] == JobExit.DONE
        if value == "a":
            shutil.copytree(checkpoint, backup)
    topics.write(topic, ["c"])
    shutil.rmtree(checkpoint)
    shutil.copytree(backup, checkpoint)
    code, report = archive()
    assert code == JobExit.FAILED
    assert "the checkpoint is older than the archive" in str(report["errors"])
    shutil.rmtree(checkpoint)
    code, report = archive()
    assert (code, report["rows"]) == (JobExit.DONE, 1)


@pytest.mark.usefixtures("spark")
def test_a_checkpoint_outlives_an_older_archive(job: Job, topics: Topics, tmp_path: Path) -> None:
    """What was archived since the backup was taken for archived; so was what a restore had read."""
    topic, root, backup = topics.make(partitions=1), tmp_path / "archive", tmp_path / "backup"

    def archive(checkpoint: str = "query") -> tuple[int, object]:
        where = ("--to", root, "--checkpoint", tmp_path / checkpoint)
        code, report = job("archive", "--topics", topic, *where, "--max-restarts", 0)
        return code, report["rows"]

    def restore(checkpoint: str) -> tuple[int, dict[str, object]]:
        where = ("--topic-map", f"{topic}={topic}-{checkpoint}", "--max-restarts", 0)
        return job("restore", "--from-archive", root, *where, "--checkpoint", tmp_path / checkpoint)

    for value in "abc":
        topics.write(topic, [value])
        assert archive() == (JobExit.DONE, 1)
        if value == "a":
            shutil.copytree(root, backup)
    assert restore("back")[0] == JobExit.DONE
    shutil.rmtree(root)
    backup.rename(root)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="the archive is older than that"):
            archive()
        topics.write(topic, ["d"])
    code, report = restore("back")
    assert code == JobExit.FAILED
    assert "put back from a backup" in str(report["errors"])
    assert archive("new") == (JobExit.DONE, 4)
    code, report = restore("back")
    assert code == JobExit.FAILED
    assert restore("again")[0] == JobExit.DONE
    assert topics.read(f"{topic}-again") == topics.read(topic)
