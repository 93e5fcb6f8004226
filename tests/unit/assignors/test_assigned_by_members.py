"""Every assignor: complete, disjoint, fair; each with what it promises beyond that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.assignors.members import MemberView
from paceline.assignors.registry import Assignor
from paceline.types import TopicPartition

TOPICS = ["a", "b", "c"]
COUNTS = st.fixed_dictionaries({topic: st.integers(0, 9) for topic in TOPICS})


def at(*names: str) -> list[TopicPartition]:
    """``a0`` is partition 0 of topic a."""
    return [TopicPartition(name[:-1], int(name[-1])) for name in names]


def all_of(counts: dict[str, int]) -> set[TopicPartition]:
    return {TopicPartition(topic, p) for topic, count in counts.items() for p in range(count)}


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> list[MemberView]:
    names = draw(st.lists(st.text("xyz", min_size=1, max_size=3), min_size=1, unique=True))
    topics = tuple(draw(st.lists(st.sampled_from(TOPICS), unique=True, min_size=1)))
    members = []
    for name in names:
        if not alike:
            topics = tuple(draw(st.lists(st.sampled_from(TOPICS), unique=True)))
        owned = draw(
            st.lists(st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 12)))
        )
        static = draw(st.none() | st.just(f"static-{name}"))
        members.append(MemberView(name, topics, static, tuple(owned), draw(st.integers(-1, 3))))
    return members


@given(members=groups(), counts=COUNTS, assignor=st.sampled_from(Assignor))
def test_each_partition_goes_to_one_subscriber(
    members: list[MemberView], counts: dict[str, int], assignor: Assignor
) -> None:
    found = assignor.assign(members, counts)
    assert set(found) == {member.member_id for member in members}
    given_out = [each for partitions in found.values() for each in partitions]
    assert len(given_out) == len(set(given_out))
    wanted = {topic for member in members for topic in member.topics}
    assert set(given_out) == {each for each in all_of(counts) if each.topic in wanted}
    for member in members:
        assert all(each.topic in member.topics for each in found[member.member_id])
        assert found[member.member_id] == sorted(found[member.member_id])
    assert assignor.assign(list(reversed(members)), counts) == found


class Counted(str):
    """A topic that counts how often one is compared with another."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str(self) == other

    __hash__ = str.__hash__


def comparisons(assignor: Assignor, topics: int) -> int:
    """Of members that all read so many topics, whose names are other objects in each."""
    members = [
        MemberView(f"m{number}", tuple(Counted(f"t{topic}") for topic in range(topics)))
        for number in range(5)
    ]
    counts = {Counted(f"t{topic}"): 1 for topic in range(topics)}
    Counted.compared = 0
    assignor.assign(members, counts)
    return Counted.compared


@pytest.mark.parametrize("assignor", Assignor)
def test_work_does_not_grow_with_the_square_of_the_topics(assignor: Assignor) -> None:
    assert comparisons(assignor, 800) < 3 * comparisons(assignor, 400)


@given(members=groups(alike=True), counts=COUNTS, assignor=st.sampled_from(Assignor))
def test_counts_are_balanced(
    members: list[MemberView], counts: dict[str, int], assignor: Assignor
) -> None:
    found = assignor.assign(members, counts)
    if assignor is Assignor.RANGE:  # by topic
        for topic in members[0].topics:
            sizes = [sum(p.topic == topic for p in partitions) for partitions in found.values()]
            assert max(sizes) - min(sizes) <= 1
    else:
        sizes = [len(partitions) for partitions in found.values()]
        assert max(sizes) - min(sizes) <= 1


@given(members=groups(), counts=COUNTS)
def test_sticky_moves_nothing_when_nothing_changed(
    members: list[MemberView], counts: dict[str, int]
) -> None:
    first = Assignor.STICKY.assign(members, counts)
    again = [
        MemberView(m.member_id, m.topics, m.instance_id, tuple(first[m.member_id]), 7)
        for m in members
    ]
    assert Assignor.STICKY.assign(again, counts) == first


@given(members=groups(alike=True), counts=COUNTS)
def test_sticky_gives_a_leavers_partitions_to_the_others(
    members: list[MemberView], counts: dict[str, int]
) -> None:
    first = Assignor.STICKY.assign(members, counts)
    stay = [
        MemberView(m.member_id, m.topics, m.instance_id, tuple(first[m.member_id]), 7)
        for m in members[1:]
    ]
    if stay:
        second = Assignor.STICKY.assign(stay, counts)
        assert all(set(first[m.member_id]) <= set(second[m.member_id]) for m in stay)


def test_range_by_example() -> None:
    members = [MemberView(name, ("a", "b")) for name in ("m1", "m2")]
    assert Assignor.RANGE.assign(members, {"a": 3, "b": 3}) == {
        "m1": at("a0", "a1", "b0", "b1"),
        "m2": at("a2", "b2"),
    }


def test_round_robin_by_example() -> None:
    members = [MemberView(name, ("a", "b")) for name in ("m1", "m2")]
    assert Assignor.ROUND_ROBIN.assign(members, {"a": 3, "b": 3}) == {
        "m1": at("a0", "a2", "b1"),
        "m2": at("a1", "b0", "b2"),
    }


def test_static_members_keep_their_place() -> None:
    members = [MemberView("z", ("a",), "one"), MemberView("y", ("a",), "two")]
    renamed = [MemberView("1", ("a",), "one"), MemberView("0", ("a",), "two")]
    before = Assignor.RANGE.assign(members, {"a": 3})
    after = Assignor.RANGE.assign(renamed, {"a": 3})
    assert (before["z"], before["y"]) == (after["1"], after["0"])


def test_a_claim_of_the_newest_generation_wins() -> None:
    members = [
        MemberView("old", ("a",), None, tuple(at("a0", "a1")), 3),
        MemberView("new", ("a",), None, tuple(at("a0")), 5),
    ]
    found = Assignor.STICKY.assign(members, {"a": 2})
    assert found == {"old": at("a1"), "new": at("a0")}
