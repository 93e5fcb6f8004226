"""Long lists in pages."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from paceline_node.http.api.documents import encoded
from paceline_node.loop_turns import SLICE_UNITS
from paceline_node.services.paging import Paged, cut_off, in_order, visible
from paceline_node.sliced_work import Work, at_once

NAMES = st.lists(st.text("abc", max_size=4), unique=True)


def most_at_once(work: Work[Any]) -> tuple[int, Any]:
    """The most units between two yields, and the result."""
    most = 0
    while True:
        try:
            most = max(most, next(work))
        except StopIteration as end:
            return most, end.value


@given(NAMES, st.none() | st.text("abc", max_size=4))
def test_order_is_that_of_the_names_behind_a_place(names: list[str], after: str | None) -> None:
    found = list(at_once(in_order(names, after)))
    assert found == sorted(each for each in names if after is None or each > after)


def test_many_names_are_sorted_in_stretches() -> None:
    names = [f"{number:07}" for number in range(20_000)][::-1]
    most, found = most_at_once(in_order(names, None))
    assert list(found) == sorted(names)
    assert 0 < most <= SLICE_UNITS


@given(NAMES, st.sets(st.text("abc", max_size=4)), st.integers(1, 5), st.integers(1, 5))
def test_pages_of_what_is_visible_join_up(
    names: list[str], hidden: set[str], limit: int, at_a_time: int
) -> None:
    """Whatever is hidden, and however few are asked for at a time."""

    async def ask(after: str | None) -> Paged[str]:
        return cut_off(list(at_once(in_order(names, after)))[: at_a_time + 1], at_a_time)

    async def pages() -> list[str]:
        found: list[str] = []
        after: str | None = None
        while True:
            page = await visible(ask, str, lambda each: each not in hidden, after, limit)
            found += page.items
            if not page.has_more:
                return found
            assert len(page.items) == limit
            after = page.items[-1]

    assert trio.run(pages) == sorted(set(names) - hidden)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"a": 1},
        {"list": []},
        {"a": 'ü\n"', "list": [{"x": None}, {"x": [1, 2]}], "b": {"c": [True]}, "next": None},
    ],
)
def test_a_document_is_encoded_as_it_is(document: dict[str, Any]) -> None:
    assert json.loads(at_once(encoded(document))) == document


def test_long_lists_are_encoded_in_stretches() -> None:
    document = {"partitions": [{"partition": number} for number in range(1000)], "next": None}
    most, text = most_at_once(encoded(document))
    assert json.loads(text) == document
    assert most <= SLICE_UNITS
