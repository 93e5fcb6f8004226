"""What is committed with the offset at which a partition began."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.client.new_partitions import ages_heard, ages_told, count_noted, noted
from paceline.types import TopicId


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


T, U = TopicId(UUID(int=1)), TopicId(UUID(int=2))


@given(st.dictionaries(st.text(), st.tuples(st.sampled_from([T, U, None]), st.integers(0, 99))))
def test_members_hear_what_their_leader_knows(ages: dict[str, tuple[TopicId | None, int]]) -> None:
    assert ages_heard(ages_told(ages)) == ages


@given(
    st.binary()
    | st.recursive(
        st.none() | st.integers() | st.text() | st.floats(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ).map(lambda value: json.dumps({"paceline-ages": value}).encode())
)
def test_what_another_kind_of_leader_says_is_nothing(told: bytes) -> None:
    for _, count in ages_heard(told).values():
        assert count >= 0


def test_nothing_is_told_where_all_is_as_old_as_the_group() -> None:
    assert ages_told({}) is None
    assert ages_heard(None) == {}
