"""Both assignors: complete, disjoint, balanced, and exactly as groups/DESIGN 3.4 says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.assignors.registry import BrokerAssignor

range_, round_robin = BrokerAssignor.RANGE.assign, BrokerAssignor.ROUND_ROBIN.assign
MEMBERS = st.sets(st.text(min_size=1, max_size=5), min_size=1, max_size=20)
COUNTS = st.integers(0, 100)


@pytest.mark.parametrize("assignor", BrokerAssignor)
@given(members=MEMBERS, count=COUNTS)
def test_complete_disjoint_balanced(
    assignor: BrokerAssignor, members: set[str], count: int
) -> None:
    assigned = assignor.assign(members, count)
    assert assigned.keys() == members
    everything = [partition for each in assigned.values() for partition in each]
    assert sorted(everything) == list(range(count))
    sizes = [len(each) for each in assigned.values()]
    assert max(sizes) - min(sizes) <= 1
    assert all(list(each) == sorted(each) for each in assigned.values())


@given(members=st.lists(st.text(min_size=1, max_size=5), min_size=1, unique=True), count=COUNTS)
def test_the_order_of_joining_does_not_matter(members: list[str], count: int) -> None:
    for assignor in BrokerAssignor:
        assert assignor.assign(members, count) == assignor.assign(reversed(members), count)


@given(members=MEMBERS, count=COUNTS)
def test_range_gives_runs(members: set[str], count: int) -> None:
    assigned = range_(members, count)
    at = 0
    for member in sorted(members, key=str.encode):
        assert assigned[member] == tuple(range(at, at + len(assigned[member])))
        at += len(assigned[member])


@given(members=MEMBERS, count=COUNTS)
def test_round_robin_deals(members: set[str], count: int) -> None:
    assigned = round_robin(members, count)
    ordered = sorted(members, key=str.encode)
    for partition in range(count):
        assert partition in assigned[ordered[partition % len(ordered)]]


def test_the_examples_of_the_specification() -> None:
    assert round_robin(["c2", "c1"], 3) == {"c1": (0, 2), "c2": (1,)}
    assert range_(["c2", "c1"], 5) == {"c1": (0, 1, 2), "c2": (3, 4)}
    assert round_robin(["a", "b", "c"], 2) == {"a": (0,), "b": (1,), "c": ()}


def test_members_are_sorted_by_bytes() -> None:
    assert round_robin(["é", "z"], 2) == {"z": (0,), "é": (1,)}


def test_nobody_is_assigned_nothing() -> None:
    assert round_robin([], 3) == {}
    assert range_([], 3) == {}
