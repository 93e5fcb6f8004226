"""What comes back from an archive, and what is said when it is compared."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from paceline.client import Position, blocking
from paceline.spark.jobs.comparing import compare, look_up
from paceline.spark.jobs.report import JobExit
from paceline.spark.jobs.restoring import ORIGIN_HEADER
from paceline.types import TopicPartition
from tests.e2e.cluster import wait_until
from tests.spark.queries import Job, Topics

ODD_TIMES = (-1, -2, -62_135_596_800_001, 253_402_300_800_000, 9_300_000_000_000_000, 1)
ODD_NAMES = ("\udcff", "\udcfe", "a\udc80", "\ufffd", "a")
"""Bytes of names that are not UTF-8 come as surrogates."""
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_bytes": "1024",
    "min_cleanable_dirty_ratio": "0.01",
}
LATE = {"message_timestamp_after_max_ms": str(2**63 - 1), "retention_ms": "-1"}


@dataclass(frozen=True, slots=True)
class Restored:
    """Topics, their copies, and what compares them."""

    spark: SparkSession
    topics: Topics
    one: str
    two: str
    odd: str
    shared: str
    by_key: str
    odd_copy: str

    def compared(self, topic: str, target: str, *, by_key: bool = False) -> dict[str, int]:
        """What ``audit --compare`` finds, without what it finds on replicas."""
        options = {"paceline.bootstrap.servers": self.topics.bootstrap}
        source = look_up(self.topics.bootstrap, topic)
        found = compare(self.spark, options, source, target, by_key=by_key)
        return dict(Counter(row["finding"] for row in found.collect()))


@pytest.fixture(scope="module")
def restored(
    spark: SparkSession,
    client: blocking.Client,
    bootstrap: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Restored:
    """Three topics of one archive: two restored into one, one of these by key too."""
    topics, base = Topics(client, bootstrap, "restores"), tmp_path_factory.mktemp("restores")
    job, root = Job(base, bootstrap), base / "archive"
    found = Restored(
        spark,
        topics,
        one=topics.make("one", 2),
        two=topics.make("two", 2),
        odd=topics.make("odd", 1, **LATE),
        shared=topics.make("shared", 2),
        by_key=topics.make("by-key", 3),
        odd_copy=topics.make("odd-copy", 1, **LATE),
    )
    with client.producer() as producer:
        for topic in (found.one, found.two):
            for number in range(60):
                producer.submit(topic, b"%d" % number, key=b"k%d" % (number % 9))
        for number, stamp in enumerate(ODD_TIMES):
            headers = [(name, b"%d" % number) for name in ODD_NAMES[number:]]
            producer.send(found.odd, b"%d" % stamp, timestamp_ms=stamp, headers=headers)
    archived = ",".join((found.one, found.two, found.odd))
    code, _ = job("archive", "--topics", archived, "--to", root, "--checkpoint", base / "c")
    assert code == JobExit.DONE
    copies = {found.one: found.shared, found.two: found.shared, found.odd: found.odd_copy}
    _restore(job, root, base / "same", copies)
    _restore(job, root, base / "keys", {found.one: found.by_key}, "--partitions", "by-key")
    return found


def _restore(job: Job, root: Path, checkpoint: Path, copies: dict[str, str], *more: str) -> None:
    named = [word for item in copies.items() for word in ("--topic-map", "=".join(item))]
    code, _ = job(
        *("restore", "--from-archive", root, *named, *more),
        *("--checkpoint", checkpoint, "--append"),
    )
    assert code == JobExit.DONE


def test_any_time_and_any_name_come_back(restored: Restored) -> None:
    """Times without a date ended the job, or came back as the time of the restore; bytes of
    headers' names came back as U+FFFD."""
    topic, target, client = restored.odd, restored.odd_copy, restored.topics.client
    with client.consumer(target, stop=Position.LATEST) as consumer:
        found = [
            (int(each.value or b""), each.timestamp_ms, each.headers[:-1]) for each in consumer
        ]
    assert found == [
        (stamp, stamp, tuple((name, b"%d" % number) for name in ODD_NAMES[number:]))
        for number, stamp in enumerate(ODD_TIMES)
    ]
    with client.producer() as producer:
        for name in ("\udcfe", "\udcff"):
            origin = (ORIGIN_HEADER, b"%s/0/%d" % (topic.encode(), len(ODD_TIMES)))
            to = topic if name == "\udcfe" else target
            headers = [(name, b""), *([origin] if to == target else [])]
            producer.send(to, b"x", timestamp_ms=1, headers=headers)
    assert restored.compared(topic, target) == {"RECORD_CHANGED": 1}, "and all else is equal"


@pytest.mark.slow
def test_restores_of_every_kind_are_compared(restored: Restored) -> None:
    """Two sources in one topic, one of them trimmed since; by key; and into a wrong partition."""
    topics, one, two = restored.topics, restored.one, restored.two
    assert restored.compared(one, restored.shared) == {}
    topics.client.admin.trim(TopicPartition(two, 0), 5)
    assert restored.compared(two, restored.shared) == {}
    assert restored.compared(one, restored.by_key, by_key=True) == {}
    assert restored.compared(one, restored.by_key).keys() == {"PARTITION_CHANGED"}

    with topics.client.producer() as producer:
        place = b"%s/1/0" % one.encode()
        original = first_of(topics, one, 1)
        headers = [(ORIGIN_HEADER, place)]
        wrong = topics.make("wrong", 2)
        producer.send(wrong, **original, partition=0, headers=headers)
        producer.send(wrong, b"x", partition=0, headers=[(ORIGIN_HEADER, b"no place")])
    findings = restored.compared(one, wrong)
    assert findings.pop("RECORD_LOST") == 59
    assert findings == {"PARTITION_CHANGED": 1, "RECORD_UNKNOWN": 1}


def test_what_a_cleaner_removed_since_is_in_its_copies_only(restored: Restored) -> None:
    """Each such record was called unknown."""
    topics = restored.topics
    source = topics.make("cleaned", 1, **COMPACTED)
    target = topics.make("cleaned-copy", 1)
    with topics.client.producer() as producer:
        for number in range(24):
            value = None if number == 3 else b"%d" % number * 100
            record: dict[str, Any] = {
                "value": value,
                "key": b"gone" if number == 3 else b"k%d" % (number % 2),
                "timestamp_ms": 1,
            }
            at = producer.send(source, **record, partition=0)
            place = b"%s/0/%d" % (source.encode(), at.offset)
            producer.send(target, **record, headers=[(ORIGIN_HEADER, place)])
        never = b"%s/0/999" % source.encode()
        producer.send(target, b"x", key=b"k0", headers=[(ORIGIN_HEADER, never)])

    def is_cleaned() -> bool:
        with topics.client.consumer(source, stop=Position.LATEST) as consumer:
            return sum(1 for _ in consumer) < 24

    wait_until(f"{source} is cleaned", is_cleaned)
    assert restored.compared(source, target) == {"RECORD_UNKNOWN": 1}


def first_of(topics: Topics, topic: str, partition: int) -> dict[str, Any]:
    with topics.client.consumer(topic, stop=Position.LATEST) as consumer:
        first = next(each for each in consumer if each.partition == partition)
    return {"value": first.value, "key": first.key, "timestamp_ms": first.timestamp_ms}
