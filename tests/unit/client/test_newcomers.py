"""What is committed with the offset at which a partition began."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.client.newcomers import count_noted, noted


@given(st.integers(0, 100_000))
def test_a_note_says_how_many_partitions_there_were(count: int) -> None:
    assert count_noted(noted(count)) == count


@pytest.mark.parametrize(
    "metadata", ["", "7", noted(7) + "x", noted(7)[:-1], "x" + noted(7), noted(-7), noted(10**12)]
)
def test_anything_else_is_of_a_group_that_has_begun_all(metadata: str) -> None:
    assert count_noted(metadata) == 0


@given(st.text())
def test_no_text_is_an_error(metadata: str) -> None:
    assert count_noted(metadata) == 0 or metadata == noted(count_noted(metadata))
