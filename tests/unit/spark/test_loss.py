"""Which missing records are noticed, and where reading goes on if it may (spark/DESIGN 4)."""

from __future__ import annotations

import pickle

import pytest

from paceline.spark import loss
from paceline.spark.errors import OptionError, PacelineDataLoss
from paceline.spark.facts import Facts, PartitionFacts
from paceline.spark.offsets import StreamOffset
from paceline.types import TopicPartition

AT, NEW = TopicPartition("orders", 0), TopicPartition("orders", 1)
START = StreamOffset("c", {"orders": "1"}, {AT: 120}, {AT: 5})


def facts(log_start: int = 0, end: int = 500, *, id_: str = "1", **more) -> Facts:
    return Facts("c", {"orders": id_}, {AT: PartitionFacts(log_start, end, 6, **more)})


def found(known: Facts, start: StreamOffset = START) -> list[tuple[str, int | None, int]]:
    return [(each.rule, each.resume, each.count) for each in loss.find(start, known)]


def test_nothing_is_missing() -> None:
    assert found(facts()) == []
    assert found(facts(log_start=120, end=120)) == []
    assert found(facts(epoch_end=120)) == []


def test_each_rule() -> None:
    assert found(facts(log_start=480)) == [("D1", 480, 360)]
    assert found(facts(log_start=10, end=90)) == [("D2", 90, 30)], "not all of the log again"
    assert found(facts(end=90, stored_end=119)) == [("D2", 119, 1)]
    assert found(facts(end=90, stored_end=120)) == [], "a transaction is open"
    assert found(facts(id_="2")) == [("D3", 0, 0)]
    assert found(Facts("c", {}, {})) == [("D4", None, 0)]
    assert found(facts(epoch_end=100)) == [("D7", 100, 20)], "not all of the log again"
    assert found(facts(log_start=110, epoch_end=100)) == [("D7", 110, 20)]


def test_a_topic_made_anew_is_seen_although_it_has_grown_past_the_offset() -> None:
    assert found(facts(log_start=200, end=10_000, id_="2")) == [("D3", 200, 0)]


def test_a_new_partition_whose_beginning_is_gone() -> None:
    known = facts()
    more = {**known.partitions, NEW: PartitionFacts(30, 40, 0)}
    assert found(Facts("c", known.ids, more)) == [("D5", 30, 30)]
    empty = {**known.partitions, NEW: PartitionFacts(30, 30, 0)}
    assert found(Facts("c", known.ids, empty)) == []


def test_another_cluster_is_refused() -> None:
    with pytest.raises(OptionError, match="of cluster c, this is d"):
        loss.find(START, Facts("d", {}, {}))


def test_going_on_counts_what_was_lost() -> None:
    known = facts(log_start=480)
    once = loss.accept(START, loss.find(START, known), known)
    assert (once.ends[AT], once.lost[AT], once.resumed[AT]) == (480, 360, 480)
    assert loss.find(once, known) == []
    later = facts(log_start=500, end=600)
    twice = loss.accept(once, loss.find(once, later), later)
    assert twice.lost[AT] == 380


def test_going_on_without_a_partition_that_is_gone() -> None:
    gone = Facts("c", {}, {})
    after = loss.accept(START, loss.find(START, gone), gone)
    assert AT not in after.ends
    assert loss.find(after, gone) == []


def test_the_message_names_the_range_and_the_way_out() -> None:
    [one] = loss.find(START, facts(log_start=480))
    text = str(one.error())
    assert "D1 orders/0: offsets [120, 480) are gone (log starts at 480)" in text
    assert "failOnDataLoss=false" in text
    again = pickle.loads(pickle.dumps(one.error()))
    assert isinstance(again, PacelineDataLoss)
    assert str(again) == text
