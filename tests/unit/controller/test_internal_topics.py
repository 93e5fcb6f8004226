"""The broker's own topics: bootstrap and growth as nodes join (controller/DESIGN 9.4)."""

from __future__ import annotations

from collections import Counter

import pytest

from paceline.errors import ErrorCode, InvalidTopic
from paceline.wire.peer.control import CreateInternalTopicRequest
from paceline_node.controller.metadata_records import PartitionRegistration, Topic
from tests.unit.controller.bench import Bench
from tests.unit.controller.invariants import check_entry, check_image


def settle(bench: Bench) -> None:
    """Run the upkeep until there is nothing to do."""
    for _ in range(20):
        if bench.upkeep() is None:
            return
    raise AssertionError("upkeep does not come to an end")


def catch_up(bench: Bench, name: str) -> None:
    """Leaders admit every assigned replica."""
    for number, partition in bench.image.topic(name).partitions.items():
        wanted = tuple(int(node) for node in partition.replicas)
        assert bench.propose(wanted, number, name) == ErrorCode.NONE


def factors(bench: Bench, name: str) -> tuple[int, str, set[int], set[int]]:
    topic = bench.image.topic(name)
    return (
        topic.replication_factor,
        topic.configs["min.insync.replicas"],
        {len(p.replicas) for p in topic.partitions.values()},
        {p.min_isr for p in topic.partitions.values()},
    )


def test_nothing_without_brokers() -> None:
    bench = Bench()
    bench.register(0)
    bench.now += 100
    assert bench.upkeep() is None


def test_lone_node() -> None:
    bench = Bench()
    bench.start(0)
    settle(bench)
    assert len(bench.image.topic("__groups").partitions) == 16
    assert len(bench.image.topic("__transactions").partitions) == 1
    assert factors(bench, "__groups") == (1, "1", {1}, {1})
    assert all(p.leader == 0 for p in bench.image.partitions())


def test_waits_a_moment_for_the_nodes_of_the_cluster() -> None:
    bench = Bench(expected_brokers=3)
    bench.now = 0.5
    bench.start(0)
    assert bench.upkeep() is None
    bench.start(1, 2)
    settle(bench)
    assert factors(bench, "__groups") == (3, "2", {3}, {2})


def test_does_not_wait_for_ever() -> None:
    bench = Bench(expected_brokers=3)
    bench.now = bench.settings.bootstrap_grace_s
    bench.start(0)
    settle(bench)
    assert factors(bench, "__groups") == (1, "1", {1}, {1})


def test_grows_as_nodes_join_and_raises_min_isr_last() -> None:
    bench = Bench()
    bench.start(0)
    settle(bench)
    bench.start(1)
    settle(bench)
    assert factors(bench, "__groups") == (1, "1", {2}, {1}), "writes go on while node 1 catches up"
    assert all(p.adding == (1,) for p in bench.image.topic("__groups").partitions.values())
    catch_up(bench, "__groups")
    settle(bench)
    assert factors(bench, "__groups") == (2, "2", {2}, {2})
    assert all(not p.adding for p in bench.image.topic("__groups").partitions.values())
    assert factors(bench, "__transactions") == (1, "1", {2}, {1})

    bench.start(2)
    settle(bench)
    catch_up(bench, "__groups")
    catch_up(bench, "__transactions")
    settle(bench)
    for name in ("__groups", "__transactions"):
        assert factors(bench, name) == (3, "2", {3}, {2})
        assert all(p.slots == 3 for p in bench.image.topic(name).partitions.values())

    bench.start(3)
    settle(bench)
    assert factors(bench, "__groups")[2] == {3}, "three are enough"
    check_image(bench.image)


def test_newcomers_are_preferred_for_their_share() -> None:
    bench = Bench()
    bench.start(0)
    settle(bench)
    bench.start(1, 2)
    settle(bench)
    catch_up(bench, "__groups")
    settle(bench)
    preferred = [p.replicas[0] for p in bench.image.topic("__groups").partitions.values()]
    assert sorted(Counter(preferred).values()) == [5, 5, 6]
    assert all(p.leader == 0 for p in bench.image.topic("__groups").partitions.values())


def test_min_isr_and_counts_change_in_one_entry() -> None:
    bench = Bench()
    bench.start(0)
    settle(bench)
    bench.start(1)
    settle(bench)
    catch_up(bench, "__groups")
    before = bench.image
    bench.upkeep()
    kinds = [type(record) for record in bench.entries[-1]]
    assert kinds[0] is Topic
    assert set(kinds[1:]) <= {PartitionRegistration}
    check_entry(before, bench.entries[-1])


def test_fenced_nodes_are_not_given_replicas() -> None:
    bench = Bench()
    bench.start(0)
    settle(bench)
    bench.register(1)
    settle(bench)
    assert factors(bench, "__groups")[2] == {1}


def test_topics_on_demand() -> None:
    """``__tables`` is made when somebody asks, and grows like the others from then on."""
    bench = Bench()
    bench.start(0)
    settle(bench)
    assert bench.image.find_topic("__tables") is None
    bench.ask(CreateInternalTopicRequest("__tables"))
    before = bench.image.topic("__tables")
    assert len(before.partitions) == 1
    bench.ask(CreateInternalTopicRequest("__tables"))
    assert bench.image.topic("__tables").topic_id == before.topic_id
    bench.start(1, 2)
    settle(bench)
    catch_up(bench, "__tables")
    settle(bench)
    assert factors(bench, "__tables") == (3, "2", {3}, {2})
    with pytest.raises(InvalidTopic, match="on demand"):
        bench.ask(CreateInternalTopicRequest("__groups"))
