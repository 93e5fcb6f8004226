"""How busy a cluster is, from two looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from paceline.documents.survey import Survey
from paceline.types import NodeId, TopicPartition
from paceline.wire.native.groups import GroupListing
from paceline.wire.native.load import NodeLoad
from paceline_cluster.activity import GroupLook, Look, Spread, activity

ORDERS, CLICKS = TopicPartition("orders", 0), TopicPartition("clicks", 1)
BOUNDS_US = (1000, 10_000)
NOTHING = NodeLoad(5000, 0, 0, 0, 0, 0, 0, 0, BOUNDS_US, (0, 0, 0), (0, 0, 0))
BUSY = replace(
    NOTHING,
    uptime_ms=7000,
    appended_records=400,
    appended_bytes=4000,
    fetched_records=200,
    requests=40,
    connections=3,
    writes=(50, 50, 0),
)
TILLS = GroupListing("kafka", "tills", "", "Stable", "consumer", 2, 1)


def look(
    at_s: float,
    loads: Mapping[int, NodeLoad | str],
    ends: Mapping[TopicPartition, int],
    *groups: GroupLook,
) -> Look:
    told = {NodeId(node): load for node, load in loads.items()}
    return Look(at_s, Survey(()), told, dict.fromkeys(ends, NodeId(0)), ends, groups)


def test_rates_are_of_the_time_between_two_answers_of_a_node() -> None:
    before = look(0.0, {0: NOTHING, 1: NOTHING}, {})
    found = activity(before, look(2.0, {0: BUSY, 1: BUSY}, {}), 10)
    assert found["written_records"] == 400.0
    assert found["read_records"] == 200.0
    assert [each["written_bytes"] for each in found["nodes"]] == [2000.0, 2000.0]
    assert (found["write_p50_ms"], found["write_p99_ms"]) == (1.0, 9.82)
    assert found["sync_p99_ms"] is None


@pytest.mark.parametrize("now", [replace(BUSY, uptime_ms=100), "no answer"])
def test_a_node_that_was_started_anew_or_is_silent_has_no_rates(now: NodeLoad | str) -> None:
    found = activity(look(0.0, {0: BUSY}, {}), look(2.0, {0: now}, {}), 10)
    [node] = found["nodes"]
    assert node["written_records"] is None
    assert found["written_records"] is None
    assert node["reason"] == (now if isinstance(now, str) else None)


def test_a_node_that_came_back_with_smaller_counts_has_no_rates_either() -> None:
    """Its process may have run for longer than the one before when that was asked."""
    again = replace(NOTHING, uptime_ms=BUSY.uptime_ms + 1)
    [node] = activity(look(0.0, {0: BUSY}, {}), look(2.0, {0: again}, {}), 10)["nodes"]
    assert node["requests"] is None


def test_the_busiest_come_first_and_only_so_many() -> None:
    before = look(0.0, {}, {ORDERS: 10, CLICKS: 10})
    now = look(2.0, {}, {ORDERS: 12, CLICKS: 50, TopicPartition("new", 0): 9})
    found = activity(before, now, 1)
    assert [(each["name"], each["written_records"]) for each in found["topics"]] == [
        ("clicks", 20.0)
    ]
    [busiest] = found["partitions"]
    assert (busiest["topic"], busiest["partition"], busiest["high_watermark"]) == ("clicks", 1, 50)
    assert len(activity(before, now, 10)["partitions"]) == 2


def test_of_those_alike_topics_of_users_come_first() -> None:
    ends = {TopicPartition("__groups", 0): 0, ORDERS: 0}
    found = activity(look(0.0, {}, ends), look(1.0, {}, ends), 1)
    assert [each["name"] for each in found["topics"]] == ["orders"]
    assert [each["topic"] for each in found["partitions"]] == ["orders"]


def test_a_topic_that_was_made_anew_writes_nothing_less_than_nothing() -> None:
    before, now = look(0.0, {}, {ORDERS: 100}), look(1.0, {}, {ORDERS: 2})
    assert activity(before, now, 10)["topics"][0]["written_records"] == 0.0


def test_lags_say_whether_a_group_catches_up_and_when() -> None:
    before = look(0.0, {}, {ORDERS: 100}, GroupLook(TILLS, {ORDERS: 20}))
    now = look(2.0, {}, {ORDERS: 110}, GroupLook(TILLS, {ORDERS: 70}))
    [group] = activity(before, now, 10)["groups"]
    assert (group["lag"], group["lag_change"], group["caught_up_s"]) == (40, -20.0, 2.0)
    slower = look(2.0, {}, {ORDERS: 200}, GroupLook(TILLS, {ORDERS: 21}))
    [group] = activity(before, slower, 10)["groups"]
    assert (group["lag"], group["caught_up_s"]) == (179, None)


def test_a_lag_is_not_known_without_the_end_or_the_coordinator() -> None:
    before = look(0.0, {}, {})
    for committed in (None, {ORDERS: 1}):
        [group] = activity(before, look(1.0, {}, {}, GroupLook(TILLS, committed)), 10)["groups"]
        assert group["lag"] is None


def test_what_took_longer_than_all_bounds_is_told_as_the_last() -> None:
    assert Spread(BOUNDS_US, (0, 0, 4)).quantile_ms(0.5) == 10.0
