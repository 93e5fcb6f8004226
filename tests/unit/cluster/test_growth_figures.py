"""The figures of growth come out, at a small size: what they say depends on the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from paceline_cluster.bench import growth
from paceline_cluster.bench.figures import Figure


@pytest.mark.parametrize(
    "work", [growth.members, growth.groups, growth.transactional_ids, growth.producers]
)
def test_each_kind_of_growth_is_measured(work: Callable[[int], Iterator[Figure]]) -> None:
    figures = list(work(40))
    assert figures
    assert all(each.value >= 0 for each in figures)
    assert [each.unit for each in figures[:2]] == ["µs", "ms"]
