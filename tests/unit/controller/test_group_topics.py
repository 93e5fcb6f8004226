"""Lists of topics for groups whose consumers name none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.errors import InvalidGroup, InvalidTopic, PacelineError, PolicyViolation
from paceline.wire.native.admin import AlterGroup
from paceline_node.controller.context import ControllerSettings
from paceline_node.controller.group_topics import Lists, topics_of
from tests.unit.controller.bench import Bench


def test_a_list_is_set_replaced_and_removed() -> None:
    bench = Bench()
    bench.start(1)
    assert topics_of(bench.image.configs, "g") == ()
    bench.ask(AlterGroup("g", ("u", "t", "u")))
    bench.ask(AlterGroup("group.topics.g", ("v",)))
    assert topics_of(bench.image.configs, "g") == ("t", "u")
    assert Lists(bench.image.configs) == {"g": {"t", "u"}, "group.topics.g": {"v"}}
    before = bench.image.configs
    bench.ask(AlterGroup("g", ("t", "u")))
    assert bench.image.configs is before  # nothing to tell anybody
    bench.ask(AlterGroup("g"))
    assert Lists(bench.image.configs) == {"group.topics.g": {"v"}}


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
    assert Lists(bench.image.configs) == {}


def test_all_lists_together_have_a_bound_in_bytes() -> None:
    """They lie in the metadata of every node: 250 lists took 62 MB, and each was counted."""
    bench = Bench(settings=ControllerSettings(max_listed_bytes=1999))
    bench.start(1)
    long = tuple(f"t{number}".ljust(99, "x") for number in range(10))
    bench.ask(AlterGroup("g", long))
    with pytest.raises(PolicyViolation, match=r"at most 1999 \(groups.lists_bytes\)"):
        bench.ask(AlterGroup("h", long))
    bench.ask(AlterGroup("h", long[:9]))
    with pytest.raises(PolicyViolation):
        bench.ask(AlterGroup("h", long))
    bench.ask(AlterGroup("g", long[:5]))
    bench.ask(AlterGroup("h", long))
    assert Lists(bench.image.configs).bytes == 5 * 100 + 10 * 100


def test_a_smaller_bound_lets_lists_become_shorter() -> None:
    bench = Bench(settings=ControllerSettings(max_listed_bytes=300))
    bench.start(1)
    long = tuple(f"t{number}".ljust(99, "x") for number in range(10))
    bench.image = replace(bench.image, configs={"group.topics.g": ",".join(long)})
    bench.ask(AlterGroup("g", long[:9]))
    bench.ask(AlterGroup("g"))
    assert not Lists(bench.image.configs)
