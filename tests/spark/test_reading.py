"""What tasks do, called directly: no Spark session is needed for these."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.client import blocking
from paceline.client.sequenced import SequencedBatch
from paceline.spark import reading
from paceline.spark.cluster import topic_id
from paceline.spark.errors import PacelineDataLoss, PacelineReadTimeout
from paceline.spark.options import SourceOptions, parse_source
from paceline.spark.planning import ReadRange
from paceline.spark.reading import read_range
from paceline.types import Compression, NodeId, TopicPartition
from paceline.wire.batch import build_batch
from paceline.wire.records import Record
from tests.e2e.cluster import Cluster, wait_until
from tests.spark.queries import Topics

RECORDS = 4000


def source(topics: Topics, topic: str, **more: object) -> SourceOptions:
    return parse_source(topics.options(topic, **more), streaming=False)


def whole(client: blocking.Client, topic: str, end: int) -> ReadRange:
    info = client.admin.topic(topic)
    return ReadRange(topic, 0, 0, end, topic_id(info), info.partitions[0].leader_epoch)


def test_a_leader_that_dies_in_the_middle_costs_neither_gap_nor_repeat(
    cluster: Cluster, topics: Topics
) -> None:
    topic = topics.make(partitions=1)
    values = [f"{number:06d}" + "x" * 500 for number in range(RECORDS)]
    for first in range(0, RECORDS, 20):
        topics.write(topic, values[first : first + 20], partition=0)
    small = source(
        topics, topic, maxPartitionFetchBytes=1024, **{"arrow.batchRows": 10, "columns": "offset"}
    )
    wanted = whole(topics.client, topic, RECORDS)
    batches = read_range(small, wanted)
    offsets = []
    for _ in range(10):
        offsets += next(batches).column("offset").to_pylist()
    killed = topics.client.admin.topic(topic).partitions[0].leader
    cluster.run("node", "kill", str(killed), "--dir", str(cluster.dir))
    try:
        assert len(offsets) < RECORDS / 2, "the kill falls into the reading"
        for batch in batches:
            offsets += batch.column("offset").to_pylist()
        assert offsets == list(range(RECORDS))
        assert topics.client.admin.topic(topic).partitions[0].leader != killed
    finally:
        cluster.run("node", "restart", str(killed), "--dir", str(cluster.dir))
        cluster.run("health", "--exit-when-healthy", "--dir", str(cluster.dir))


def test_a_batch_that_unpacks_to_much_is_read_in_slices(topics: Topics) -> None:
    topic = topics.make(partitions=1)
    records = [Record(-1, 1, b"k", bytes(10_000)) for _ in range(3000)]
    output = topics.client.sequenced_writer()
    identity = output.new_identity()
    batch = build_batch(
        records,
        compression=Compression.ZSTD,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=0,
    )
    assert len(batch) < 100_000
    output.write([SequencedBatch(TopicPartition(topic, 0), batch)])
    options = source(topics, topic, columns="offset,value", **{"arrow.batchBytes": 1_000_000})
    batches = list(read_range(options, whole(topics.client, topic, 3000)))
    assert [n for each in batches for n in each.column("offset").to_pylist()] == list(range(3000))
    assert max(each.column("value").nbytes for each in batches) < 1_200_000


def test_a_plan_that_no_longer_fits_is_refused(topics: Topics) -> None:
    topic = topics.make(partitions=1)
    topics.write(topic, ["a"] * 30, partition=0)
    client = topics.client
    plan = whole(client, topic, 30)
    client.admin.delete_topic(topic)
    with pytest.raises(PacelineDataLoss, match="D4"):
        list(read_range(source(topics, topic), plan))
    topics.make(partitions=1)
    topics.write(topic, ["b"] * 30, partition=0)
    with pytest.raises(PacelineDataLoss, match="D3"):
        list(read_range(source(topics, topic), plan))


def test_a_plan_of_a_topic_that_is_gone_is_empty_where_losses_are_taken(topics: Topics) -> None:
    """The batch could never be done, nor any that comes after it."""
    topic = topics.make(partitions=1)
    topics.write(topic, ["a"] * 3, partition=0)
    plan, lenient = whole(topics.client, topic, 3), source(topics, topic, failOnDataLoss=False)
    topics.client.admin.delete_topic(topic)
    assert list(read_range(lenient, plan)) == []
    topics.make(partitions=1)
    topics.write(topic, ["b"] * 3, partition=0)
    assert list(read_range(lenient, plan)) == []


def test_a_topic_made_anew_between_check_and_read_is_not_taken_for_the_old_one(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer asks for the topic of the id that the check has seen, not for its name."""
    topic = topics.make(partitions=1)
    topics.write(topic, ["a"] * 3, partition=0)
    plan, real = whole(topics.client, topic, 3), reading._check_topic

    def made_anew(*given: Any) -> None:
        monkeypatch.undo()
        real(*given)
        topics.client.admin.delete_topic(topic)
        topics.make(partitions=1)
        topics.write(topic, ["b"] * 3, partition=0)

    monkeypatch.setattr(reading, "_check_topic", made_anew)
    with pytest.raises(PacelineDataLoss, match="D3"):
        list(read_range(source(topics, topic), plan))


@pytest.mark.parametrize(("anew", "rule"), [(True, "D3"), (False, "D4")])
def test_a_topic_that_goes_while_it_is_read_is_refused(
    topics: Topics, anew: bool, rule: str
) -> None:
    topic = topics.make(partitions=1)
    topics.write(topic, ["a"] * 3, partition=0)
    more_to_come = whole(topics.client, topic, 9)
    batches = read_range(source(topics, topic, **{"arrow.batchRows": 1}), more_to_come)
    assert next(batches).num_rows == 1
    topics.client.admin.delete_topic(topic)
    if anew:
        topics.make(partitions=1)
    with pytest.raises(PacelineDataLoss, match=rule):
        list(batches)


def test_records_that_vanish_between_plan_and_read(topics: Topics) -> None:
    topic = topics.make(partitions=1, segment_bytes="1024", retention_bytes="4096")
    for _ in range(20):
        topics.write(topic, ["x" * 50] * 10, partition=0)
    at = TopicPartition(topic, 0)

    def log_start() -> int:
        return topics.client.admin.find_offsets({at: -2})[at].offset

    # A segment holds one batch, and 4,096 bytes fewer than seven of them. Earlier, while all of it
    # was not written yet, retention may have taken some: it must not go on while this reads.
    wait_until("retention has taken what it may", lambda: 200 - log_start() <= 70)
    plan = whole(topics.client, topic, 200)
    with pytest.raises(PacelineDataLoss, match=r"D6 .*offsets \[0, \d+\) were removed"):
        list(read_range(source(topics, topic), plan))
    lenient = source(topics, topic, failOnDataLoss=False)
    got = [n for batch in read_range(lenient, plan) for n in batch.column("offset").to_pylist()]
    assert got == list(range(200 - len(got), 200))
    assert 0 < len(got) < 200


def test_no_progress_ends_in_words(topics: Topics) -> None:
    topic = topics.make(partitions=1)
    topics.write(topic, ["a"] * 3, partition=0)
    beyond = whole(topics.client, topic, 9)
    hasty = source(topics, topic, **{"consumer.pollTimeoutMs": 3000})
    with pytest.raises(PacelineReadTimeout, match=rf"{topic}/0: no progress at offset 3"):
        list(read_range(hasty, beyond))


def test_an_older_plan_meets_a_newer_epoch(topics: Topics) -> None:
    topic = topics.make(partitions=1)
    topics.write(topic, ["a"] * 3, partition=0)
    plan = whole(topics.client, topic, 6)
    leader = topics.client.admin.topic(topic).partitions[0].leader
    topics.client.admin.elect_leader(topic, 0, NodeId((leader + 1) % 3))
    topics.write(topic, ["b"] * 3, partition=0)
    with pytest.raises(PacelineDataLoss, match="D7"):
        list(read_range(source(topics, topic), plan))
