"""The planner against facts that a test sets: no cluster, no Spark, a clock by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import pytest

from paceline.spark import offsets
from paceline.spark.errors import OptionError, PacelineDataLoss
from paceline.spark.facts import Facts, PartitionFacts
from paceline.spark.offsets import StreamOffset
from paceline.spark.options import parse_source
from paceline.spark.planner import REFRESH_S, Limit, StreamPlanner, default_limit
from paceline.types import LeaderEpoch, TopicPartition
from paceline.wire.native.data import OffsetFound

T = TypeVar("T")
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class World:
    """Partitions with start, end and epoch; every stored record takes 10 bytes."""

    def __init__(self) -> None:
        self.topic_id = "1"
        self.places: dict[TopicPartition, PartitionFacts] = {}
        self.now = 100.0
        self.looks = 0
        self.published: list[Mapping[TopicPartition, int]] = []

    def set(self, at: TopicPartition, end: int, *, start: int = 0, epoch: int = 0, **more) -> None:
        self.places[at] = PartitionFacts(start, end, epoch, **more)

    # --- as paceline.spark.cluster.Cluster ---

    def retrying(self, work: Callable[[], T]) -> T:
        return work()

    def facts(
        self,
        epochs: Mapping[TopicPartition, int],
        positions: Mapping[TopicPartition, int] | None = None,
    ) -> Facts:
        self.looks += 1
        return Facts("c", {"t": self.topic_id} if self.places else {}, dict(self.places))

    def require(self, topics) -> None:
        if "t" not in topics:
            raise OptionError("t: no such topic")

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetFound]:
        return {at: self._found(at, self.places[at].end) for at in partitions}

    def find(self, wanted) -> dict[TopicPartition, OffsetFound]:
        return {at: self._found(at, stamp if stamp < 50 else -1) for at, stamp in wanted.items()}

    def _found(self, at: TopicPartition, offset: int) -> OffsetFound:
        return OffsetFound(at.topic, at.partition, 0, "", offset, -1, LeaderEpoch(0))

    def ahead(self, after, sizes) -> dict[TopicPartition, int]:
        return {at: after[at] + max(1, size // 10) for at, size in sizes.items()}

    def publish(self, group: str, ends: Mapping[TopicPartition, int]) -> None:
        self.published.append(dict(ends))

    def close(self) -> None:
        pass


class Query:
    """A planner and what Spark would do with it."""

    def __init__(self, world: World, **given: str) -> None:
        self.options = parse_source(
            {"paceline.bootstrap.servers": "x:1", "subscribe": "t", **given}, streaming=True
        )
        self.planner = StreamPlanner(
            self.options,
            world,  # type: ignore[arg-type]
            monotonic=lambda: world.now,
        )
        self.start = self.planner.initial()

    def trigger(self, limit: Limit | None = None) -> list[tuple[int, int, int]]:
        """One micro-batch; what it reads, by partition."""
        end = self.planner.latest(self.start, limit or default_limit(self.options))
        ranges = self.planner.plan(self.start, end)
        self.start = end
        return [(each.partition, each.start, each.end) for each in ranges]


@pytest.fixture
def world() -> World:
    made = World()
    made.set(A, 100)
    made.set(B, 40)
    return made


def test_a_new_query_pins_its_start_before_it_reads(world: World) -> None:
    query = Query(world)
    assert offsets.is_marker(query.start)
    assert query.trigger() == []
    assert StreamOffset.from_json(query.start).ends == {A: 100, B: 40}
    world.set(A, 103)
    assert query.trigger() == [(0, 100, 103)]


def test_an_explicit_start_needs_no_pin(world: World) -> None:
    query = Query(world, startingOffsets='{"t":{"0":90,"1":40}}')
    assert query.trigger() == [(0, 90, 100)]
    with pytest.raises(OptionError, match="missing t/1"):
        Query(world, startingOffsets='{"t":{"0":90}}')


def test_earliest_latest_and_by_time_in_one(world: World) -> None:
    query = Query(world, startingOffsets='{"t":{"0":-2,"1":-1}}')
    query.trigger()
    assert StreamOffset.from_json(query.start).ends == {A: 0, B: 40}
    query = Query(world, startingOffsetsByTimestamp='{"t":{"0":7,"1":9}}')
    query.trigger()
    assert StreamOffset.from_json(query.start).ends == {A: 7, B: 9}


def test_by_time_when_nothing_is_that_young(world: World) -> None:
    with pytest.raises(OptionError, match="no record at or after 60 ms"):
        Query(world, startingTimestamp="60").trigger()
    query = Query(world, startingTimestamp="60", startingOffsetsByTimestampStrategy="latest")
    query.trigger()
    assert StreamOffset.from_json(query.start).ends == {A: 100, B: 40}


def test_nothing_new_gives_the_same_text_cheaply(world: World) -> None:
    query = Query(world, startingOffsets="earliest")
    query.trigger()
    query.trigger()
    text = json.dumps(query.start)
    assert query.trigger() == []
    looks = world.looks
    for _ in range(5):
        assert query.trigger() == []
        assert json.dumps(query.start) == text
    assert world.looks == looks, "an idle query asks for ends alone"
    world.now += REFRESH_S * 2
    query.trigger()
    assert world.looks == looks + 1, "but looks for new partitions now and then"


def test_a_new_leader_alone_makes_no_batch(world: World) -> None:
    query = Query(world, startingOffsets="earliest")
    query.trigger()
    query.trigger()
    before = json.dumps(query.start)
    world.set(A, 100, epoch=4, epoch_end=100)
    world.now += 10
    assert query.trigger() == []
    assert json.dumps(query.start) == before


def test_a_new_partition_enters_with_its_first_record(world: World) -> None:
    query = Query(world)
    query.trigger()
    new = TopicPartition("t", 2)
    world.set(new, 0)
    world.now += 10
    before = json.dumps(query.start)
    assert query.trigger() == []
    assert json.dumps(query.start) == before
    world.set(new, 4)
    world.now += 10
    assert query.trigger() == [(2, 0, 4)]


def test_limits(world: World) -> None:
    query = Query(world, startingOffsets="earliest", maxOffsetsPerTrigger="14")
    query.trigger()
    assert query.trigger() == [(0, 0, 10), (1, 0, 4)]
    assert query.trigger(Limit(everything=True)) == [(0, 10, 100), (1, 4, 40)]
    query = Query(world, startingOffsets="earliest", maxBytesPerTrigger="140")
    query.trigger()
    assert query.trigger() == [(0, 0, 10), (1, 0, 4)]


def test_a_minimum_waits_but_not_for_ever(world: World) -> None:
    query = Query(world, minOffsetsPerTrigger="10", maxTriggerDelay="30s")
    query.trigger()
    world.set(A, 105)
    world.now += 20
    assert query.trigger() == []
    world.set(A, 111)
    world.now += 1
    assert query.trigger() == [(0, 100, 111)]
    world.set(A, 112)
    world.now += 31
    assert query.trigger() == [(0, 111, 112)]


def test_available_now_stops_at_what_the_first_batch_saw(world: World) -> None:
    query = Query(world, startingOffsets="earliest", maxOffsetsPerTrigger="70")
    query.planner.available_now()
    query.trigger()
    query.trigger()
    world.set(A, 500)
    world.set(TopicPartition("t", 2), 9)
    seen = [query.trigger() for _ in range(4)]
    assert seen[-1] == []
    assert StreamOffset.from_json(query.start).ends == {A: 100, B: 40}


def test_available_now_knows_no_minimum(world: World) -> None:
    query = Query(world, startingOffsets="earliest", minOffsetsPerTrigger="1000")
    query.planner.available_now()
    query.trigger()
    assert query.trigger() == [(0, 0, 100), (1, 0, 40)]


def test_loss_ends_the_query_or_is_counted(world: World) -> None:
    strict = Query(world, startingOffsets="earliest")
    lenient = Query(world, startingOffsets="earliest", failOnDataLoss="false")
    for query in (strict, lenient):
        query.trigger()
    world.set(A, 150, start=30)
    with pytest.raises(PacelineDataLoss, match=r"D1 t/0: offsets \[0, 30\) are gone"):
        strict.trigger()
    assert lenient.trigger() == [(0, 30, 150), (1, 0, 40)]
    assert StreamOffset.from_json(lenient.start).lost == {A: 30}


def test_a_topic_made_anew_is_read_from_its_start_or_refused(world: World) -> None:
    strict, lenient = Query(world), Query(world, failOnDataLoss="false")
    for query in (strict, lenient):
        query.trigger()
    world.topic_id = "2"
    world.set(A, 900)
    world.set(B, 7)
    with pytest.raises(PacelineDataLoss, match="D3"):
        strict.trigger()
    assert lenient.trigger() == [(0, 0, 900), (1, 0, 7)]
    world.set(A, 910)
    assert lenient.trigger() == [(0, 900, 910)]


def test_a_query_of_one_topic_alone_takes_no_other_of_its_name(world: World) -> None:
    """An archive went on with the new topic's records, as if they were the old one's."""
    query = Query(world, failOnDataLoss="false", topicIds='{"t": "1", "other": "9"}')
    query.trigger()
    gone, world.places = world.places, {}
    assert query.trigger() == []
    world.topic_id, world.places = "2", gone
    with pytest.raises(PacelineDataLoss, match=r"D3 t: .* \(id 1, now 2\), and this query is of"):
        query.trigger()
    with pytest.raises(PacelineDataLoss, match=r"D3 t: "):
        Query(world, topicIds='{"t": "1"}').trigger()
    for bad in ('{"t": 1}', "[]", '{"a b": "1"}'):
        with pytest.raises(OptionError, match="topicIds"):
            Query(world, topicIds=bad)


def test_a_repeated_batch_is_planned_from_its_offsets_alone(world: World) -> None:
    query = Query(world, startingOffsets="earliest", failOnDataLoss="false", minPartitions="4")
    query.trigger()
    start = query.start
    world.set(A, 150, start=30)
    ranges = query.trigger()
    end = query.start
    world.set(A, 9000, start=50)
    restarted = StreamPlanner(query.options, world)  # type: ignore[arg-type]
    again = [(each.partition, each.start, each.end) for each in restarted.plan(start, end)]
    assert again == ranges


def test_progress_is_published(world: World) -> None:
    query = Query(world, groupId="g", startingOffsets="earliest")
    query.trigger()
    query.trigger()
    query.trigger()
    query.trigger()
    assert world.published == [{A: 0, B: 0}, {A: 100, B: 40}]
    latest = query.planner.report()
    assert latest is not None
    assert StreamOffset.from_json(latest).ends == {A: 100, B: 40}
