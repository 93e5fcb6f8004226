"""What matching names with a stranger's pattern costs."""

from __future__ import annotations

import pytest

from paceline_node.groups import topic_pattern
from paceline_node.groups.topic_pattern import TopicPattern


def test_matching_many_names_is_a_look_up_for_each_character(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Patterns of consumers times topics once took 12 s: each character was thought about anew."""
    closures = 0
    closure = topic_pattern._closure

    def counted(states: list[topic_pattern._State]) -> dict[topic_pattern._State, None]:
        nonlocal closures
        closures += 1
        return closure(states)

    monkeypatch.setattr(topic_pattern, "_closure", counted)
    pattern = TopicPattern(r"(team-[0-9]+|x+y*)\..*(a|b)*[a-z.-]+name")
    names = [f"team-{n % 37}.orders.{n}.events-name" for n in range(5000)]
    assert all(map(pattern.matches, names))
    assert closures < 500


def test_a_pattern_that_knows_too_many_sets_forgets_them_and_goes_on() -> None:
    pattern = TopicPattern("(a|b)*a" + "(a|b)" * 12)
    names = ["".join("ab"[n >> bit & 1] for bit in range(16)) for n in range(2000)]
    assert [pattern.matches(name) for name in names] == [name[3] == "a" for name in names]
    assert len(pattern._sets) <= 64
