"""The jobs, called as their command line calls them, in the tier's one session."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from paceline.client import Position
from paceline.errors import ConfigurationError
from paceline.spark.archive_log import ArchiveLog
from paceline.spark.jobs.archiving import compact, vacuum
from paceline.spark.jobs.report import JobExit
from paceline.spark.jobs.restoring import ORIGIN_HEADER
from paceline.spark.options import parse_sink
from paceline.spark.sink import abort, write_task
from paceline.spark.sink_ids import TaskId, WriteId
from paceline.types import TopicPartition
from paceline.wire.batch_header import iter_batches, seal
from tests.e2e.cluster import Cluster, wait_until
from tests.spark.queries import Job, Topics

pytestmark = pytest.mark.usefixtures("spark")


def records(topics: Topics, topic: str) -> list[tuple[Any, ...]]:
    with topics.client.consumer(topic, stop=Position.LATEST) as consumer:
        return sorted(
            (
                each.partition,
                each.offset,
                each.timestamp_ms,
                each.key or b"",
                each.value,
                tuple(header for header in each.headers if header[0] != ORIGIN_HEADER),
            )
            for each in consumer
        )


def placeless(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Without offsets, in their order."""
    return [row[:1] + row[2:] for row in rows]


def fill(topics: Topics, topic: str, first: int, last: int) -> None:
    with topics.client.producer() as producer:
        deliveries = [
            producer.submit(
                topic,
                b"\xff%d" % number if number % 7 else None,
                key=b"k%d" % (number % 50),
                headers=[("n", b"%d" % number)] if number % 3 else (),
                # Two hours, mixed, so that files of one partition overlap.
                timestamp_ms=1_700_000_000_000 + (number % 2) * 3_600_000 + number,
            )
            for number in range(first, last)
        ]
        for delivery in deliveries:
            delivery.wait()


SPOILED = ("RECORD_LOST", "RECORD_CHANGED", "ORDER_CHANGED", "RECORD_REPEATED", "RECORD_UNKNOWN")


def spoil(topics: Topics, source: str, target: str) -> None:
    """Write more into both, so that the copy is wrong in every way there is, once each."""
    with topics.client.producer() as producer:

        def write(topic: str, value: bytes, origin: int | None = None) -> int:
            headers = [] if origin is None else [(ORIGIN_HEADER, b"%s/0/%d" % (name, origin))]
            return producer.send(
                topic, value, partition=0, headers=headers, timestamp_ms=1_700_000_000_000
            ).offset

        name = source.encode()
        write(source, b"lost")
        changed = write(source, b"before")
        early, late = write(source, b"early"), write(source, b"late")
        twice = write(source, b"twice")
        write(target, b"after", changed)
        write(target, b"late", late)
        write(target, b"early", early)
        write(target, b"twice", twice)
        write(target, b"twice", twice)
        write(target, b"from nowhere")


def test_archive_compact_verify_and_restore(job: Job, topics: Topics, tmp_path: Path) -> None:
    topic = topics.make(partitions=2)
    root, target = tmp_path / "archive", f"{topic}-restored"
    for number, first in enumerate((0, 100)):
        fill(topics, topic, first, first + 100)
        # The second run's checkpoint is new: it goes on where the archive ends.
        code, report = job(
            *("archive", "--topics", topic, "--to", root),
            *("--checkpoint", tmp_path / f"c{number}"),
        )
        assert (code, report["rows"]) == (JobExit.DONE, 100)
        assert (report["progress"]["done"], report["progress"]["backlog"]) == (100, 0)
    assert report["archive"]["rows"] == 200
    code, report = job("archive-verify", root)
    assert (code, report["rows"], report["files"]) == (JobExit.DONE, 200, 8)
    code, report = job("archive-compact", root, "--older", "0s", "--grace", "0s")
    assert (report["files_removed"], report["files_added"]) == (8, 4)
    code, report = job("archive-verify", root)
    assert (code, report["rows"], report["files"]) == (JobExit.DONE, 200, 4)

    code, report = job(
        *("restore", "--from-archive", root, "--topic-map", f"{topic}={target}"),
        *("--checkpoint", tmp_path / "c2", "--max-files", 2),
        *("--progress-file", tmp_path / "now.json"),
    )
    assert (code, report["rows"]) == (JobExit.DONE, 200)
    shown = json.loads((tmp_path / "now.json").read_text())
    assert (shown["done"], shown["backlog"], shown["seconds_left"]) == (200, 0, 0)
    assert shown["per_second"] > 0
    assert placeless(records(topics, target)) == placeless(records(topics, topic))
    spoil(topics, topic, target)
    code, report = job("audit", "--topics", topic, "--compare", target, "--deep")
    assert code == JobExit.FINDINGS
    assert report["findings"] == dict.fromkeys(SPOILED, 1), "and all else is equal"
    assert report["records"] >= 3 * 400, "three replicas of each"
    assert report["progress"]["unit"] == "tasks"
    assert report["progress"]["done"] > 3

    victim = root / min(ArchiveLog(root).state().files)
    data = bytearray(victim.read_bytes())
    data[100] ^= 1
    victim.write_bytes(data)
    code, report = job("archive-verify", root)
    assert code == JobExit.FINDINGS
    assert [each["kind"] for each in report["findings"]] == ["FILE_DAMAGED"]


@pytest.mark.slow
def test_a_restore_outlives_the_files_that_it_reads(
    job: Job, topics: Topics, tmp_path: Path
) -> None:
    """A compaction and a vacuum deleted them under it, and it could never end."""
    topic, root = topics.make(partitions=1), tmp_path / "archive"
    for first in range(0, 100, 20):
        fill(topics, topic, first, first + 20)
        words = ("--to", root, "--checkpoint", tmp_path / "c")
        assert job("archive", "--topics", topic, *words)[0] == JobExit.DONE
    target = topics.make("target", 1, retention_ms="-1")
    seen: list[int] = []

    def delete_its_files() -> None:
        before = set(ArchiveLog(root).state().files)
        wait_until("the restore has begun", lambda: bool(records(topics, target)))
        compact(root, target_bytes=1 << 20, older_s=0, grace_s=0)
        vacuum(root, grace_s=0)
        assert not any((root / path).exists() for path in before)
        seen.append(len(records(topics, target)))

    with ThreadPoolExecutor(1) as executor:
        deleting = executor.submit(delete_its_files)
        code, report = job(
            *("restore", "--from-archive", root, "--topic-map", f"{topic}={target}"),
            *("--checkpoint", tmp_path / "back", "--max-files", 1),
        )
        deleting.result()
    assert (code, report["rows"]) == (JobExit.DONE, 100)
    assert seen[0] < 100, "it had to go on without them"
    assert placeless(records(topics, target)) == placeless(records(topics, topic))


def test_audit_finds_what_is_wrong_on_one_replica(
    job: Job, topics: Topics, cluster: Cluster
) -> None:
    flipped, cut, diverged = (topics.make(name, 1) for name in ("flipped", "cut", "diverged"))
    for topic in (flipped, cut, diverged):
        for _ in range(4):
            topics.write(topic, ["x" * 100] * 5, partition=0)
        _settled(topics, topic)
    opened = topics.make("opened", 1)
    sink = parse_sink({"paceline.bootstrap.servers": topics.bootstrap, "topic": opened})
    task = TaskId(WriteId(f"sink-{opened}", "query", "run", 0), 0, 0)
    restored = pa.RecordBatch.from_pydict({"value": [b"x"], "timestampMs": [1_700_000_000_000]})
    unfinished = write_task(sink, task, iter([restored]))
    _settled(topics, opened, 1)
    path = _followers_log(cluster, topics, flipped)
    data = bytearray(path.read_bytes())
    _, (second, _), *_ = iter_batches(data)
    data[second + 80] ^= 1
    path.write_bytes(data)

    path = _followers_log(cluster, topics, cut)
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size - 50)

    path = _followers_log(cluster, topics, diverged)
    data = bytearray(path.read_bytes())
    *_, (last, header) = iter_batches(data)
    batch = data[last : last + header.size_bytes]
    batch[-10] ^= 1
    seal(batch)
    data[last : last + header.size_bytes] = batch
    path.write_bytes(data)

    code, report = job("audit", "--topics", ",".join((flipped, cut, diverged, opened)))
    abort(sink, [unfinished])
    assert code == JobExit.FINDINGS
    found = {(each["topic"], each["finding"]) for each in report["examples"]}
    assert (flipped, "CRC_MISMATCH") in found
    assert (flipped, "REPLICA_DIVERGED") in found
    assert (diverged, "REPLICA_DIVERGED") in found
    assert (diverged, "CRC_MISMATCH") not in found
    assert (cut, "BATCH_UNREADABLE") in found
    assert (cut, "REPLICA_MISSING") in found
    assert opened not in {each["topic"] for each in report["examples"]}, "its transaction is open"


def _settled(topics: Topics, topic: str, count: int = 20) -> None:
    """Until every replica knows that all is committed."""
    client = topics.client

    def same() -> bool:
        told = [client.admin.describe_replicas(each, topic) for each in range(3)]
        return {each.partitions[0].high_watermark for each in told} == {count}

    wait_until(f"{topic} is committed everywhere", same)


def _followers_log(cluster: Cluster, topics: Topics, topic: str) -> Path:
    [partition] = topics.client.admin.topic(topic).partitions
    follower = next(node for node in partition.replicas if node != partition.leader)
    [path] = cluster.partition_dir(follower, topic, 0).glob("*.log")
    return path


def test_a_topic_made_anew_is_not_mixed_into_its_archive(
    job: Job, topics: Topics, tmp_path: Path
) -> None:
    """Its first records were skipped in silence, as many as the old one had."""
    topic, root = topics.make(partitions=1), tmp_path / "archive"

    def archive(checkpoint: str) -> tuple[int, dict[str, Any]]:
        place = ("--to", root, "--checkpoint", tmp_path / checkpoint)
        return job("archive", "--topics", topic, *place)

    topics.write(topic, ["old"] * 10)
    assert archive("c0")[0] == JobExit.DONE
    topics.client.admin.delete_topic(topic)
    topics.client.admin.create_topic(topic, partitions=1)
    topics.write(topic, ["new"] * 20)
    for checkpoint in ("c0", "c1"):
        with pytest.raises(ConfigurationError, match=f"holds another topic {topic} .id .* made an"):
            archive(checkpoint)
    root = tmp_path / "another"
    code, report = archive("c2")
    assert (code, report["rows"]) == (JobExit.DONE, 20)


def test_a_topic_made_anew_meanwhile_is_not_archived_as_the_old_one(
    job: Job, topics: Topics, tmp_path: Path
) -> None:
    """With ``failOnDataLoss=false`` its records came behind those of the old one, or between."""
    topic, root = topics.make(partitions=2), tmp_path / "archive"
    topics.write(topic, ["old"] * 10, partition=0)

    def made_anew() -> None:
        wait_until("the old one is archived", lambda: bool(ArchiveLog(root).state().ends))
        topics.client.admin.delete_topic(topic)
        topics.client.admin.create_topic(topic, partitions=2)
        topics.write(topic, ["new"] * 5, partition=1)

    with ThreadPoolExecutor(1) as executor:
        making = executor.submit(made_anew)
        code, report = job(
            *("archive", "--topics", topic, "--to", root, "--checkpoint", tmp_path / "c"),
            *("--option", "failOnDataLoss=false", "--trigger", "100ms", "--max-restarts", 0),
        )
        making.result()
    assert code == JobExit.DATA_LOSS
    assert f"D3 {topic}: the topic was deleted and made anew" in report["errors"][0]
    assert ArchiveLog(root).state().ends == {TopicPartition(topic, 0): 10}


def test_java_is_not_in_our_process_group(spark: SparkSession) -> None:
    """Ctrl-C and ``kill -TERM -GROUP`` would end it before its queries are stopped."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    assert os.getpgid(gateway.proc.pid) != os.getpgid(0)


def test_statistics(job: Job, topics: Topics, tmp_path: Path) -> None:
    topic = topics.make(partitions=2)
    fill(topics, topic, 0, 100)
    code, report = job("stats", "--topics", topic, "--out", tmp_path / "stats", "--top", 3)
    assert (code, report["rows"]) == (JobExit.DONE, 100)
    tables = json.loads((tmp_path / "stats" / "stats.json").read_text())
    assert sum(row["tombstones"] for row in tables["partitions"]) == 15
    assert sum(row["rows"] for row in tables["hours"]) == 100
    assert [row["rank"] for row in tables["keys"]] == [1, 2, 3]
    assert {row["header"]: row["rows"] for row in tables["headers"]} == {"n": 66}
    stored = pq.read_table(tmp_path / "stats" / "partitions.parquet").to_pylist()
    assert [row["rows"] for row in stored] == [row["rows"] for row in tables["partitions"]]
    page = (tmp_path / "stats" / "stats.html").read_text()
    assert "<svg" in page
    assert topic in page

    # What Spark failed with was a stack on the terminal; there was no report, and the code was 1.
    beyond = json.dumps({topic: {"0": 99999, "1": 0}})
    words = ("--topics", topic, "--out", tmp_path / "stats")
    code, report = job("stats", *words, "--option", f"startingOffsets={beyond}")
    assert (code, report["exit"]) == (JobExit.DATA_LOSS, "data_loss")
    assert "99999" in report["errors"][0]
