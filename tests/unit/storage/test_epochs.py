"""The leader epoch cache, with the vectors of replication/DESIGN 3.4."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_node.storage.epochs import EpochCache


def cache_of(log: list[int], start: int = 0) -> EpochCache:
    """The cache of a log that has these epochs at its offsets."""
    cache = EpochCache()
    for offset, epoch in enumerate(log, start):
        cache.assign(epoch, offset)
    return cache


@pytest.mark.parametrize(
    ("entries", "epoch", "start", "after"),
    [
        ([], 1, 0, [(1, 0)]),
        ([(1, 0)], 1, 0, [(1, 0)]),
        ([(1, 0)], 1, 5, [(1, 0)]),
        ([(1, 0)], 2, 5, [(1, 0), (2, 5)]),
        ([(1, 4)], 1, 2, [(1, 2)]),
        ([(1, 0), (2, 5)], 3, 5, [(1, 0), (3, 5)]),
        ([(1, 0), (2, 5)], 3, 3, [(1, 0), (3, 3)]),
        ([(1, 0), (2, 5)], 1, 9, [(1, 9)]),
        ([(1, 0), (2, 5), (4, 7)], 3, 6, [(1, 0), (2, 5), (3, 6)]),
        ([(1, 0), (2, 5)], 7, 0, [(7, 0)]),
    ],
)
def test_assign(
    entries: list[tuple[int, int]], epoch: int, start: int, after: list[tuple[int, int]]
) -> None:
    cache = EpochCache(entries)
    changed = cache.assign(epoch, start)
    assert cache.entries == after
    assert changed == (after != entries)


@pytest.mark.parametrize(
    ("offset", "after"),
    [(9, [(1, 0), (2, 5)]), (6, [(1, 0), (2, 5)]), (5, [(1, 0)]), (1, [(1, 0)]), (0, [])],
)
def test_truncate_end(offset: int, after: list[tuple[int, int]]) -> None:
    cache = EpochCache([(1, 0), (2, 5)])
    assert cache.truncate_end(offset) == (len(after) != 2)
    assert cache.entries == after


@pytest.mark.parametrize(
    ("offset", "after"),
    [
        (0, [(1, 0), (2, 5), (4, 8)]),
        (3, [(1, 3), (2, 5), (4, 8)]),
        (5, [(2, 5), (4, 8)]),
        (7, [(2, 7), (4, 8)]),
        (8, [(4, 8)]),
        (20, [(4, 20)]),
    ],
)
def test_truncate_start(offset: int, after: list[tuple[int, int]]) -> None:
    cache = EpochCache([(1, 0), (2, 5), (4, 8)])
    assert cache.truncate_start(offset) == (after != [(1, 0), (2, 5), (4, 8)])
    assert cache.entries == after


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (0, (0, 3)),  # nothing at or below: up to the first one known
        (1, (1, 5)),
        (2, (2, 8)),
        (3, (2, 8)),  # the largest below
        (4, (4, 11)),  # the last one ends with the log
        (5, None),
    ],
)
def test_end_offset_for(epoch: int, answer: tuple[int, int] | None) -> None:
    assert EpochCache([(1, 3), (2, 5), (4, 8)]).end_offset_for(epoch, 11) == answer


def test_an_empty_cache_knows_nothing() -> None:
    cache = EpochCache()
    assert (cache.last_epoch, cache.epoch_at(0), cache.end_offset_for(0, 0)) == (-1, -1, None)


def test_epoch_at() -> None:
    cache = EpochCache([(1, 3), (2, 5)])
    assert [cache.epoch_at(offset) for offset in (2, 3, 4, 5, 99)] == [-1, 1, 1, 2, 2]


def test_entries_must_ascend() -> None:
    for bad in ([(1, 0), (1, 5)], [(1, 5), (2, 5)], [(2, 0), (1, 5)]):
        with pytest.raises(ValueError, match="is not above"):
            EpochCache(bad)


# Leader's log, its epoch, follower's log, and the log ends the follower passes through.
VECTORS = {
    "in sync": ([1, 1, 2], 3, [1, 1, 2], []),
    "behind, same epoch": ([1, 1, 1, 1], 2, [1, 1], []),
    "behind, later epoch exists": ([1, 1, 2, 2], 3, [1, 1], []),
    "ahead, same epoch": ([1, 1], 2, [1, 1, 1, 1], [2]),
    "ahead, epoch unknown to leader": ([1, 1], 3, [1, 1, 2, 2], [2]),
    "fork": ([1, 1, 3, 3], 4, [1, 1, 2, 2], [2]),
    "fork, leader longer in old epoch": ([1, 1, 1], 4, [1, 2, 2], [1]),
    "no common epoch": ([2, 2], 4, [3, 3], [0]),
    "two rounds": ([1, 1, 3, 3, 5], 6, [1, 1, 1, 2, 2, 4, 4], [5, 2]),
    "leader empty": ([], 2, [1, 1], [0]),
    "short terms": ([1, 2, 4, 6], 7, [1, 2, 3, 3, 5, 5], [4, 2]),
}


@pytest.mark.parametrize("name", VECTORS)
def test_truncation_vectors(name: str) -> None:
    leader_log, leader_epoch, follower_log, ends = VECTORS[name]
    leader = cache_of(leader_log)
    leader.assign(leader_epoch, len(leader_log))
    assert truncations(leader, len(leader_log), follower_log) == ends


def truncations(leader: EpochCache, leader_end: int, follower_log: list[int]) -> list[int]:
    """Log ends through which a follower comes to a prefix of its leader's log."""
    follower = cache_of(follower_log)
    end = len(follower_log)
    seen: list[int] = []
    while follower.last_epoch >= 0:
        answer = leader.end_offset_for(follower.last_epoch, leader_end)
        assert answer is not None
        if answer.epoch == follower.last_epoch and answer.end >= end:
            break
        mine = follower.end_offset_for(answer.epoch, end)
        assert mine is not None
        new_end = min(mine.end, answer.end) if mine.epoch == answer.epoch else mine.end
        assert new_end < end
        end = new_end
        follower.truncate_end(end)
        seen.append(end)
    return seen


@given(st.lists(st.integers(0, 6), max_size=12).map(sorted), st.integers(0, 14), st.integers(0, 14))
def test_the_cache_says_what_the_log_says(log: list[int], cut: int, start: int) -> None:
    cache = cache_of(log)
    assert [cache.epoch_at(offset) for offset in range(len(log))] == log
    for epoch in set(log):
        end = cache.end_offset_for(epoch, len(log))
        assert end == (epoch, len(log) - log[::-1].index(epoch))
    cache.truncate_end(cut)
    kept = log[:cut]
    assert cache == cache_of(kept)
    if start < len(kept):
        cache.truncate_start(start)
        assert cache == cache_of(kept[start:], start)


def test_the_entries_of_a_range_are_those_that_cover_it() -> None:
    cache = EpochCache([(0, 0), (2, 10), (5, 20)])
    assert cache.between(10, 20) == [(2, 10)]
    assert cache.between(9, 10) == [(0, 0)]
    assert cache.between(15, 21) == [(2, 10), (5, 20)]
    assert EpochCache([(3, 7)]).between(5, 9) == [(3, 7)]
    assert EpochCache().between(0, 9) == []
    assert cache.span_at(10) == (2, 20)
    assert cache.span_at(30) == (5, float("inf"))
    assert EpochCache([(3, 7)]).span_at(6) == (-1, 7)


def test_terms_that_have_not_begun_are_no_terms() -> None:
    cache = EpochCache([(0, 0), (2, 10), (5, 20)])
    assert cache.lower(5) is None
    assert cache.lower(1) == 10
    assert cache.entries == [(0, 0)]
    alone = EpochCache([(1 << 24, 7)])
    assert alone.lower(3) == 7
    assert alone.entries == [(0, 7)]


LOGS = st.lists(st.integers(0, 6), min_size=1, max_size=12).map(sorted)


@given(mine=LOGS, theirs=LOGS, start=st.integers(0, 5))
def test_the_leaders_table_is_taken_where_it_says_something_else(
    mine: list[int], theirs: list[int], start: int
) -> None:
    table, other = cache_of(mine), cache_of(theirs, start)
    end = len(mine)
    both = range(start, end)
    differing = [at for at in both if table.epoch_at(at) != other.epoch_at(at)]
    conflict = table.conflict(other, end)
    if not differing:
        assert conflict is None
        return
    assert conflict == (differing[0], differing[-1] + 1)
    table.take(other, conflict[0], end)
    assert all(table.epoch_at(at) == other.epoch_at(at) for at in both)
    assert table.conflict(other, end) is None
    assert table == EpochCache(table.entries)
    assert table.entries[-1].start < end
