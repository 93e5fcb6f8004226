"""Plural forms, as messages say them."""

from __future__ import annotations

import pytest

from paceline.counted import counted


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
