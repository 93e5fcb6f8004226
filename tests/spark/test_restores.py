"""What comes back from an archive, and what an audit says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.client import Position
from paceline.spark.jobs.report import JobExit
from paceline.spark.jobs.restoring import ORIGIN_HEADER
from paceline.types import TopicPartition
from tests.spark.queries import Job, Topics

pytestmark = pytest.mark.usefixtures("spark")
ODD_TIMES = (-1, -2, -62_135_596_800_001, 253_402_300_800_000, 9_300_000_000_000_000, 1)


ODD_NAMES = ("\udcff", "\udcfe", "a\udc80", "\ufffd", "a")
"""Bytes of names that are not UTF-8 come as surrogates."""


def test_any_time_and_any_name_come_back(job: Job, topics: Topics, tmp_path: Path) -> None:
    """Times without a date ended the job, or came back as the time of the restore; bytes of
    headers' names came back as U+FFFD."""
    topic = topics.make(partitions=1, **LATE)
    target = topics.make("restored", 1, **LATE)
    with topics.client.producer() as producer:
        for number, stamp in enumerate(ODD_TIMES):
            headers = [(name, b"%d" % number) for name in ODD_NAMES[number:]]
            producer.send(topic, b"%d" % stamp, timestamp_ms=stamp, headers=headers)
    root = tmp_path / "archive"
    code, _ = job(
        "archive", "--topics", topic, "--to", root, "--checkpoint", tmp_path / "archiving"
    )
    assert code == JobExit.DONE
    assert restore(job, root, tmp_path, topic, target) == JobExit.DONE
    with topics.client.consumer(target, stop=Position.LATEST) as consumer:
        found = [
            (int(each.value or b""), each.timestamp_ms, each.headers[:-1]) for each in consumer
        ]
    assert found == [
        (stamp, stamp, tuple((name, b"%d" % number) for name in ODD_NAMES[number:]))
        for number, stamp in enumerate(ODD_TIMES)
    ]
    assert compared(job, topic, target) == {}
    with topics.client.producer() as producer:
        for name in ("\udcfe", "\udcff"):
            origin = (ORIGIN_HEADER, b"%s/0/%d" % (topic.encode(), len(ODD_TIMES)))
            to = topic if name == "\udcfe" else target
            headers = [(name, b""), *([origin] if to == target else [])]
            producer.send(to, b"x", timestamp_ms=1, headers=headers)
    assert compared(job, topic, target) == {"RECORD_CHANGED": 1}


LATE = {"message_timestamp_after_max_ms": str(2**63 - 1)}


def restore(job: Job, root: Path, base: Path, topic: str, target: str, *more: object) -> int:
    code, _ = job(
        *("restore", "--from-archive", root, "--topic-map", f"{topic}={target}", "--append"),
        *("--checkpoint", base / f"{topic}-{target}", *more),
    )
    return code


def compared(job: Job, topic: str, target: str, *more: object) -> dict[str, Any]:
    _, report = job("audit", "--topics", topic, "--compare", target, *more)
    findings: dict[str, Any] = report["findings"]
    return findings


def test_restores_of_every_kind_are_compared(job: Job, topics: Topics, tmp_path: Path) -> None:
    """Two sources in one topic, one of them trimmed since; by key; and into a wrong partition."""
    one, two = topics.make("one", 2), topics.make("two", 2)
    shared, by_key = topics.make("shared", 2), topics.make("by-key", 3)
    for topic in (one, two):
        with topics.client.producer() as producer:
            for number in range(60):
                producer.send(topic, b"%d" % number, key=b"k%d" % (number % 9))
    root = tmp_path / "archive"
    code, _ = job(
        "archive", "--topics", f"{one},{two}", "--to", root, "--checkpoint", tmp_path / "c"
    )
    assert code == JobExit.DONE
    assert restore(job, root, tmp_path, one, shared) == JobExit.DONE
    assert restore(job, root, tmp_path, two, shared) == JobExit.DONE
    assert restore(job, root, tmp_path, one, by_key, "--partitions", "by-key") == JobExit.DONE
    assert compared(job, two, shared) == {}
    topics.client.admin.trim(TopicPartition(two, 0), 5)
    assert compared(job, two, shared) == {}
    assert compared(job, one, by_key, "--partitions", "by-key") == {}
    assert compared(job, one, by_key).keys() == {"PARTITION_CHANGED"}

    with topics.client.producer() as producer:
        place = b"%s/1/0" % one.encode()
        original = first_of(topics, one, 1)
        headers = [(ORIGIN_HEADER, place)]
        wrong = topics.make("wrong", 2)
        producer.send(wrong, **original, partition=0, headers=headers)
        producer.send(wrong, b"x", partition=0, headers=[(ORIGIN_HEADER, b"no place")])
    findings = compared(job, one, wrong)
    assert findings.pop("RECORD_LOST") == 59
    assert findings == {"PARTITION_CHANGED": 1, "RECORD_UNKNOWN": 1}


def first_of(topics: Topics, topic: str, partition: int) -> dict[str, Any]:
    with topics.client.consumer(topic, stop=Position.LATEST) as consumer:
        first = next(each for each in consumer if each.partition == partition)
    return {"value": first.value, "key": first.key, "timestamp_ms": first.timestamp_ms}
