from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from paceline.spark.planning import ReadRange, backlog, limit_rows, proportional, split
from paceline.types import TopicPartition

RANGES = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=0, max_size=8
).map(
    lambda pairs: [
        ReadRange("t", number, start, start + size, "id", 3)
        for number, (start, size) in enumerate(pairs)
    ]
)


@given(RANGES, st.none() | st.integers(1, 40), st.none() | st.integers(10**4, 10**6))
def test_parts_cover_exactly_what_was_to_be_read(ranges, minimum, largest) -> None:
    parts = split(ranges, min_partitions=minimum, max_records=largest)
    assert parts == sorted(parts)
    assert all(part.size > 0 for part in parts)
    by_partition: dict[int, list[ReadRange]] = {}
    for part in parts:
        by_partition.setdefault(part.partition, []).append(part)
        assert (part.topic_id, part.epoch) == ("id", 3)
    for whole in ranges:
        mine = by_partition.get(whole.partition, [])
        if not whole.size:
            assert not mine
            continue
        assert mine[0].start == whole.start
        assert mine[-1].end == whole.end
        assert all(a.end == b.start for a, b in itertools.pairwise(mine))
    if largest is not None:
        assert all(part.size <= largest for part in parts)


def test_a_minimum_is_met_by_cutting_the_larger_ranges() -> None:
    ranges = [ReadRange("t", 0, 0, 10), ReadRange("t", 1, 0, 990)]
    parts = split(ranges, min_partitions=5)
    assert len(parts) == 5
    assert parts[0] == ReadRange("t", 0, 0, 10)
    assert {part.size for part in parts[1:]} <= {247, 248}


def test_a_range_is_not_cut_into_more_parts_than_records() -> None:
    parts = split([ReadRange("t", 0, 5, 8)], min_partitions=10)
    assert [(part.start, part.end) for part in parts] == [(5, 6), (6, 7), (7, 8)]


PLACES = st.dictionaries(
    st.builds(TopicPartition, st.just("t"), st.integers(0, 9)),
    st.tuples(st.integers(0, 1000), st.integers(0, 10**6)),
    max_size=9,
)


@given(PLACES, st.integers(1, 10**6))
def test_a_limit_starves_nobody_and_is_kept(places, limit) -> None:
    starts = {at: start for at, (start, _) in places.items()}
    ends = {at: start + size for at, (start, size) in places.items()}
    limited = limit_rows(starts, ends, limit)
    assert limited.keys() == ends.keys()
    for at, end in limited.items():
        assert starts[at] <= end <= ends[at]
        assert (end > starts[at]) == (ends[at] > starts[at])
    assert backlog(starts, limited) <= limit + len(places)


def test_shares_are_proportional() -> None:
    a, b, c = (TopicPartition("t", number) for number in range(3))
    starts, ends = {a: 0, b: 10, c: 5}, {a: 100, b: 310, c: 5}
    assert proportional(starts, ends, 40) == {a: 10, b: 30}
    assert limit_rows(starts, ends, 40) == {a: 10, b: 40, c: 5}
