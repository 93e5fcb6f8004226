"""Plural forms, as messages say them."""

from __future__ import annotations

import pytest

from paceline.counted import counted, first_of


@pytest.mark.parametrize(
    ("count", "words", "told"),
    [
        (0, ("node",), "0 nodes"),
        (1, ("node",), "1 node"),
        (2, ("node",), "2 nodes"),
        (1, ("node votes", "nodes vote"), "1 node votes"),
        (3, ("node votes", "nodes vote"), "3 nodes vote"),
    ],
)
def test_one_is_no_plural(count: int, words: tuple[str, ...], told: str) -> None:
    assert counted(count, *words) == told


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (1, "a"),
        (5, "a; b; c; d; e"),
        (6, "a; b; c; d; e; and 1 more"),
        (7, "a; b; c; d; e; and 2 more"),
    ],
)
def test_what_is_left_out_of_many_is_counted(count: int, told: str) -> None:
    assert first_of("abcdefg"[:count]) == told


def test_names_have_commas_between_them() -> None:
    assert first_of("abcdefg", ", ") == "a, b, c, d, e, and 2 more"
