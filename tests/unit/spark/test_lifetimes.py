"""Topics that take what an archive has, and keep it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.spark.archive_log import ArchiveFile
from paceline.spark.errors import OptionError
from paceline.spark.jobs.lifetimes import (
    AHEAD,
    ANY_TIME,
    Times,
    refusal,
    refusal_by_size,
    set_for,
    settings_for,
    times_of,
)
from paceline.wire.native.data import TopicInfo

NOW, DAY = 1_700_000_000_000, 86_400_000


def file(low: int, high: int) -> ArchiveFile:
    return ArchiveFile("p", "s", "t", 0, 0, 1, 2, 1, low, high, "")


def test_times_are_those_of_what_is_restored() -> None:
    files = [file(-1, -1), file(10, 20), file(-5, 7), file(30, 40)]
    assert times_of(files, None, None) == Times(-5, 40)
    assert times_of(files, 8, 30) == Times(10, 20)
    assert times_of(files, 12, 35) == Times(12, 34)
    assert times_of(files, 50, None) == Times(None, None)
    assert times_of([file(-1, -1)], None, None) == Times(None, None)


def test_what_is_set_must_be_known() -> None:
    """To whom it is not shown a topic looked as if it kept what others do."""
    topic = TopicInfo("t", 0, None, (), configs={"retention.ms": "5"})
    assert set_for(topic) == {"retention.ms": "5"}
    with pytest.raises(OptionError, match=r"t: .*describe-configs"):
        set_for(replace(topic, configs=None))


def test_a_topic_that_is_made_for_a_restore_keeps_all_of_it() -> None:
    kept = {"retention.ms": "-1", "retention.bytes": "-1"}
    assert settings_for(Times(0, NOW), NOW) == kept
    assert settings_for(Times(0, NOW + DAY), NOW) == {**kept, AHEAD: ANY_TIME}


@pytest.mark.parametrize(
    ("configs", "oldest", "newest", "said"),
    [
        ({}, NOW - 6 * DAY, NOW, ""),
        ({}, NOW - 8 * DAY, NOW, "usual default) would soon delete the oldest"),
        ({"retention.ms": "1000"}, NOW - DAY, NOW, "retention.ms=1000) would soon delete"),
        ({"retention.ms": "-1"}, 0, NOW, ""),
        ({"cleanup.policy": "compact"}, 0, NOW, ""),
        ({}, NOW, NOW + DAY, "does not take the newest"),
        ({AHEAD: ANY_TIME}, NOW, 2**62, ""),
        ({}, None, None, ""),
    ],
)
def test_what_other_topics_would_do(
    configs: dict[str, str], oldest: int | None, newest: int | None, said: str
) -> None:
    told = refusal("t", configs, Times(oldest, newest), NOW)
    assert said in told
    assert bool(told) == bool(said)


def test_a_topic_that_keeps_a_size_only_may_lose_what_it_gets() -> None:
    assert "(retention.bytes=0) deletes" in refusal_by_size("t", {"retention.bytes": "0"})
    for keeps in (
        {},
        {"retention.bytes": "-1"},
        {"retention.bytes": "9", "cleanup.policy": "compact"},
    ):
        assert not refusal_by_size("t", keeps)
