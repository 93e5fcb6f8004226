"""Plans of moves (paceline_cluster/replica_plan.py)."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from paceline.types import NodeId, TopicPartition
from paceline_cluster.replica_plan import Placed, ReplicaPlan, Site, away_from, balanced


def sites(*nodes: int, racks: str = "", full: tuple[int, ...] = ()) -> list[Site]:
    named = racks or " " * len(nodes)
    return [
        Site(NodeId(node), rack.strip(), node not in full)
        for node, rack in zip(nodes, named, strict=True)
    ]


def placed(number: int, *replicas: int, size: int = 10) -> Placed:
    return Placed(TopicPartition("t", number), tuple(map(NodeId, replicas)), size)


def after(plan: ReplicaPlan, partitions: list[Placed]) -> dict[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {each.at.partition: each.replicas for each in partitions}
    for move in plan.moves:
        assert found[move.at.partition] == move.before != move.after
        found[move.at.partition] = move.after
    return found


def test_away_from_a_node_moves_its_replicas_and_no_others() -> None:
    partitions = [placed(0, 0, 1, 2), placed(1, 1, 2, 3), placed(2, 2, 0, 1)]
    plan = away_from([NodeId(0)], sites(0, 1, 2, 3), partitions)
    assert after(plan, partitions) == {0: (3, 1, 2), 1: (1, 2, 3), 2: (2, 3, 1)}
    assert [move.adding for move in plan.moves] == [(3,), (3,)]
    assert plan.stuck == ()


def test_what_no_other_node_can_take_is_named() -> None:
    partitions = [placed(0, 0, 1, 2), placed(1, 0, 1)]
    plan = away_from([NodeId(0)], sites(0, 1, 2, 3, full=(3,)), partitions)
    assert after(plan, partitions) == {0: (0, 1, 2), 1: (2, 1)}
    [said] = plan.stuck
    assert said.startswith("t/0 has 3 replicas")


def test_replicas_that_leave_keep_racks_apart() -> None:
    partitions = [placed(0, 0, 2), placed(1, 2, 4)]
    plan = away_from([NodeId(0)], sites(0, 1, 2, 3, 4, racks="aabbc"), partitions)
    assert after(plan, partitions) == {0: (1, 2), 1: (2, 4)}


def test_a_replica_leaves_a_rack_in_which_another_one_is() -> None:
    partitions = [placed(0, 0, 1), placed(1, 2, 1)]
    plan = balanced(sites(0, 1, 2, racks="aab"), partitions)
    assert after(plan, partitions) == {0: (0, 2), 1: (2, 1)}


def test_new_nodes_get_their_share_of_replicas_and_leaders() -> None:
    partitions = [placed(n, n % 3, (n + 1) % 3, (n + 2) % 3, size=n) for n in range(30)]
    found = after(balanced(sites(0, 1, 2, 3, 4), partitions), partitions)
    assert Counter(node for each in found.values() for node in each) == dict.fromkeys(range(5), 18)
    assert Counter(each[0] for each in found.values()) == dict.fromkeys(range(5), 6)


def test_of_two_that_could_go_the_one_that_evens_out_the_data_goes() -> None:
    partitions = [placed(0, 0, size=100), placed(1, 0, size=60), placed(2, 1, size=40)]
    partitions += [placed(3, 0, size=0)]
    plan = balanced(sites(0, 1), partitions)
    assert [move.at.partition for move in plan.moves] == [1]


def test_a_balanced_cluster_stays_as_it_is() -> None:
    partitions = [placed(n, n % 3, (n + 1) % 3) for n in range(9)]
    assert balanced(sites(0, 1, 2), partitions).moves == ()


@given(st.data())
def test_any_plan_keeps_factors_and_never_crowds_or_unbalances(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 6))
    racks = "".join(data.draw(st.lists(st.sampled_from(" ab"), min_size=nodes, max_size=nodes)))
    factor = data.draw(st.integers(1, nodes))
    partitions = [
        placed(
            number,
            *data.draw(st.permutations(range(nodes)))[:factor],
            size=data.draw(st.integers(0, 9)),
        )
        for number in range(data.draw(st.integers(0, 12)))
    ]
    leaving = data.draw(st.sets(st.integers(0, nodes - 1)))
    all_sites = sites(*range(nodes), racks=racks)
    moved = after(away_from(map(NodeId, leaving), all_sites, partitions), partitions)
    plan = balanced(all_sites, partitions)
    found = after(plan, partitions)
    for before in partitions:
        for each in (moved, found):
            replicas = each[before.at.partition]
            assert len(set(replicas)) == len(replicas) == factor
    if racks.strip() == "" and partitions:
        counts = Counter(node for each in found.values() for node in each)
        assert max(counts.values()) - min(counts[node] for node in range(nodes)) <= 1
    again = [
        Placed(each.at, tuple(map(NodeId, found[each.at.partition])), each.size_bytes)
        for each in partitions
    ]
    assert all(not move.adding for move in balanced(all_sites, again).moves)
