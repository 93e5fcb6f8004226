"""What has happened, from one look at the cluster to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paceline.documents.survey import Survey
from paceline.health import Level
from paceline.types import NO_NODE, NodeId, TopicPartition
from paceline_cluster.happened import Seen, Standing, happened
from tests.unit.cluster.test_survey import ALL_WELL, _survey

ORDERS = [TopicPartition("orders", number) for number in range(4)]
Partitions = Mapping[TopicPartition, Standing]


def led(by: int, *in_sync: int, count: int = 1) -> Partitions:
    isr = frozenset(map(NodeId, in_sync))
    return {at: Standing(NodeId(by), isr) for at in ORDERS[:count]}


def told(
    before: Partitions | None,
    now: Partitions | None,
    was: Survey | None = None,
    survey: Survey | None = None,
) -> list[tuple[str, str, str]]:
    found = happened(Seen(was or _survey(), before), Seen(survey or _survey(), now))
    return [(each.kind, each.level.name, each.text) for each in found]


def test_nothing_is_told_where_nothing_has_changed() -> None:
    assert not told(led(0, 0, 1), led(0, 0, 1))


def test_an_election_and_who_fell_behind_are_two_events() -> None:
    assert told(led(0, 0, 1), led(1, 1)) == [
        ("election", "WARNING", "node 1 leads orders/0, before node 0"),
        ("isr", "WARNING", "node 0 is out of sync in orders/0"),
    ]


def test_a_partition_without_leader_is_critical() -> None:
    [lost, found] = [told(led(0, 0), led(NO_NODE, 0)), told(led(NO_NODE, 0), led(0, 0))]
    assert lost == [("election", "CRITICAL", "nobody leads orders/0, before node 0")]
    assert found == [("election", "WARNING", "node 0 leads orders/0, before nobody")]


def test_partitions_of_one_fate_stand_in_one_line() -> None:
    assert told(led(0, 0, count=4), led(0, 0, 1, count=4)) == [
        ("isr", "OK", "node 1 is in sync in 4 partitions")
    ]


def test_topics_come_and_go() -> None:
    assert told({}, led(0, 0, count=2)) == [("topic", "OK", "orders: 2 partitions new")]
    assert told(led(0, 0), {}) == [("topic", "OK", "orders: 1 partition gone")]


def test_where_nobody_tells_of_partitions_none_has_gone() -> None:
    assert not told(led(0, 0), None)
    assert not told(None, led(0, 0))


def test_a_node_that_falls_silent_is_told_and_that_health_fails_for_it() -> None:
    gone = _survey(None)
    found = told(None, None, survey=gone)
    assert found[0][:2] == ("node", "CRITICAL")
    assert found[0][2].startswith("node 0 is unreachable, was running")
    assert [each[0] for each in found[1:]] == ["health"] * (len(found) - 1)
    again = told(None, None, was=gone)
    assert again[0] == ("node", "OK", "node 0 is running, was unreachable")
    assert all(level == "OK" for _, level, _ in again)


def test_another_leader_of_the_quorum_is_an_election() -> None:
    moved = replace(ALL_WELL, controller=NodeId(2))
    assert told(None, None, survey=_survey(moved, moved, moved)) == [
        ("election", "WARNING", "node 2 leads the quorum, before node 1")
    ]


def test_a_node_comes_and_is_forgotten() -> None:
    two = Survey(_survey().nodes[:2])
    [new, *_] = happened(Seen(two, None), Seen(_survey(), None))
    assert (new.kind, new.level, new.node) == ("node", Level.OK, 2)
    [gone, *_] = happened(Seen(_survey(), None), Seen(two, None))
    assert (gone.text, gone.level) == ("node 2 is registered no more", Level.WARNING)
