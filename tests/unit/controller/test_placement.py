"""Placement: racks first, then load, always the same for the same input (controller/DESIGN 9.3)."""

from __future__ import annotations

from collections import Counter

import pytest

from paceline.types import NodeId
from paceline_node.controller.placement import Placer
from tests.unit.controller.bench import Bench


def bench_with(racks: dict[int, str]) -> Bench:
    bench = Bench()
    for node, rack in racks.items():
        bench.register(node, rack=rack)
        bench.heartbeat(node)
    return bench


def placer(bench: Bench) -> Placer:
    return Placer(bench.image.brokers.values(), bench.image.partitions())


def place(racks: dict[int, str], partitions: int, factor: int) -> list[tuple[NodeId, ...]]:
    chooser = placer(bench_with(racks))
    return [chooser.place(factor) for _ in range(partitions)]


@pytest.mark.parametrize("brokers", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_load_is_even(brokers: int, factor: int) -> None:
    partitions = brokers * 6
    chosen = place(dict.fromkeys(range(brokers), ""), partitions, factor)
    held = min(factor, brokers)
    assert all(len(set(replicas)) == len(replicas) == held for replicas in chosen)
    leaders = Counter(replicas[0] for replicas in chosen)
    replicas = Counter(node for nodes in chosen for node in nodes)
    assert set(leaders.values()) == {6}
    assert max(replicas.values()) - min(replicas.values()) <= 2


def test_a_dead_leaders_partitions_go_to_different_nodes() -> None:
    chosen = place(dict.fromkeys(range(3), ""), 30, 3)
    for leader in range(3):
        successors = Counter(replicas[1] for replicas in chosen if replicas[0] == leader)
        assert sorted(successors.values()) == [5, 5]


def test_racks_are_all_used_before_one_is_used_twice() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
    chosen = place(racks, 60, 3)
    assert all({racks[node] for node in replicas} == {"a", "b", "c"} for replicas in chosen)
    assert len(set(Counter(replicas[0] for replicas in chosen).values())) == 1


def test_uneven_racks_still_spread() -> None:
    racks = {0: "a", 1: "a", 2: "a", 3: "b"}
    chosen = place(racks, 12, 2)
    assert all({racks[node] for node in replicas} == {"a", "b"} for replicas in chosen)


def test_unfit_brokers_come_last() -> None:
    bench = bench_with(dict.fromkeys(range(4), ""))
    bench.fence(0)
    bench.heartbeat(1, degraded=True)
    chosen = placer(bench).place(4)
    assert chosen == (2, 3, 1, 0)


def test_existing_load_counts() -> None:
    bench = bench_with(dict.fromkeys(range(3), ""))
    bench.create("one", partitions=1, factor=1)
    assert bench.partition(name="one").replicas == (0,)
    bench.create("two", partitions=2, factor=1)
    assert [bench.partition(n, "two").replicas for n in (0, 1)] == [(1,), (2,)]


def test_growing_spreads_preferred_leaders_over_newcomers() -> None:
    bench = bench_with({0: ""})
    bench.create(partitions=9, factor=1)
    for node in (1, 2):
        bench.start(node)
    chooser = placer(bench)
    grown = [chooser.grow(p.replicas, 3) for p in bench.image.partitions()]
    assert all(set(replicas) == {0, 1, 2} for replicas in grown)
    assert Counter(replicas[0] for replicas in grown) == {0: 3, 1: 3, 2: 3}


def test_nothing_to_grow_with_keeps_the_order() -> None:
    bench = bench_with({0: "", 1: ""})
    replicas = (NodeId(1), NodeId(0))
    assert placer(bench).grow(replicas, 3) == replicas


def test_same_input_same_placement() -> None:
    racks = {0: "a", 1: "b", 2: "a", 3: "", 4: "b"}
    assert place(racks, 40, 3) == place(dict(reversed(racks.items())), 40, 3)
