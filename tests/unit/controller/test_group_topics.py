"""Lists of topics for groups whose consumers name none (spec coordinator 2.2)."""

from __future__ import annotations

import pytest

from paceline.errors import InvalidGroup, InvalidTopic, PacelineError, PolicyViolation
from paceline.wire.native.admin import AlterGroup
from paceline_node.controller.group_topics import lists, topics_of
from tests.unit.controller.bench import Bench


def test_a_list_is_set_replaced_and_removed() -> None:
    bench = Bench()
    bench.start(1)
    assert topics_of(bench.image.configs, "g") == ()
    bench.ask(AlterGroup("g", ("u", "t", "u")))
    bench.ask(AlterGroup("group.topics.g", ("v",)))
    assert topics_of(bench.image.configs, "g") == ("t", "u")
    assert lists(bench.image.configs) == {"g": {"t", "u"}, "group.topics.g": {"v"}}
    before = bench.image.configs
    bench.ask(AlterGroup("g", ("t", "u")))
    assert bench.image.configs is before  # nothing to tell anybody
    bench.ask(AlterGroup("g"))
    assert lists(bench.image.configs) == {"group.topics.g": {"v"}}


@pytest.mark.parametrize(
    ("group", "topics", "error"),
    [
        ("", ("t",), InvalidGroup),
        ("g" * 256, ("t",), InvalidGroup),
        ("g", ("a,b",), InvalidTopic),
        ("g", ("__groups",), PolicyViolation),
        ("g", tuple(f"t{number}" for number in range(1001)), PolicyViolation),
    ],
)
def test_lists_that_cannot_be(
    group: str, topics: tuple[str, ...], error: type[PacelineError]
) -> None:
    bench = Bench()
    bench.start(1)
    with pytest.raises(error):
        bench.ask(AlterGroup(group, topics))
    assert lists(bench.image.configs) == {}
