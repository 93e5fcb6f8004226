"""Wildcards match what they say, and no pattern takes longer than its name's and its own length."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.wire.cursus.errors import CursusError
from paceline.wire.cursus.wildcards import TopicWildcards


@given(st.text("ab.*?", min_size=1, max_size=12), st.text("ab.", max_size=12))
def test_they_match_as_the_shell_does(pattern: str, name: str) -> None:
    assert TopicWildcards(pattern).matches(name) == fnmatchcase(name, pattern)


@pytest.mark.parametrize("stars", [6, 20, 127])
def test_no_number_of_stars_keeps_the_matcher_busy(stars: int) -> None:
    """Twenty of these once took for ever."""
    wildcards = TopicWildcards("*a" * stars)
    assert not wildcards.matches("a" * 248 + "b")
    assert wildcards.matches("a" * 249)
    assert not TopicWildcards("*?a" * (stars // 2) + "*").matches("b" * 249)


def test_what_is_longer_than_any_name_is_refused() -> None:
    with pytest.raises(CursusError, match="invalid_topic_name"):
        TopicWildcards("*" * 256)
