"""Topic configuration: every key, its bounds, and what is said about wrong values."""

from __future__ import annotations

from unittest import mock

import pytest

from paceline.errors import InvalidConfig
from paceline_node.settings import topic_config
from paceline_node.settings.flush_mode import FlushMode
from paceline_node.settings.topic_config import (
    KEYS,
    MIN_INSYNC_REPLICAS,
    CleanupPolicy,
    TopicConfig,
    effective,
    min_insync_replicas,
    validate,
)


def test_every_default_is_valid() -> None:
    for key in KEYS.values():
        assert key.check(key.default) is None, key.name
        assert key.doc


def test_defaults_are_the_settled_ones() -> None:
    config = TopicConfig.of({})
    assert config.segment_bytes == 1024**3
    assert config.retention_ms == 7 * 24 * 3600 * 1000
    assert config.retention_bytes == -1
    assert config.flush_mode is FlushMode.GROUP
    assert config.cleanup_policy is CleanupPolicy.DELETE


def test_topic_over_node_over_built_in() -> None:
    config = TopicConfig.of(
        {"segment.bytes": "2048"}, {"segment.bytes": "4096", "retention.bytes": "52428800"}
    )
    assert (config.segment_bytes, config.retention_bytes) == (2048, 52428800)


@pytest.mark.parametrize(
    "name",
    [key.name for key in KEYS.values() if not (key.choices or key.text_max or key.is_share)],
)
def test_bounds_of_whole_numbers(name: str) -> None:
    key = KEYS[name]
    assert key.check(str(key.low)) is None
    assert key.check(str(key.high)) is None
    for value in (key.low - 1, key.high + 1):
        problem = key.check(str(value))
        assert problem is not None
        assert problem.startswith(f"{name}={value}: expected ")


@pytest.mark.parametrize("value", ["0", "1", "0.5", ".25", "1.0", "0.000000001"])
def test_shares(value: str) -> None:
    validate({"min.cleanable.dirty.ratio": value}, replication_factor=1)
    assert 0 <= TopicConfig.of({"min.cleanable.dirty.ratio": value}).min_cleanable_dirty_ratio <= 1


@pytest.mark.parametrize("value", ["", ".", "1.1", "2", "-0.1", "1e-3", "nan", "0,5", " 0.5"])
def test_what_is_no_share(value: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        validate({"min.cleanable.dirty.ratio": value}, replication_factor=1)
    assert str(caught.value) == (
        f"min.cleanable.dirty.ratio={value}: expected a number from 0 to 1"
    )


def test_compaction_lags_must_leave_room() -> None:
    validate({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "10"}, replication_factor=1)
    with pytest.raises(InvalidConfig, match=r"min.compaction.lag.ms=11: above max.*=10"):
        validate(
            {"min.compaction.lag.ms": "11", "max.compaction.lag.ms": "10"}, replication_factor=1
        )


def test_texts_are_bounded() -> None:
    key = KEYS["segment.name"]
    assert key.check("any / text") is None
    assert key.check("x" * 512) is None
    assert key.check("x" * 513) == "segment.name: 513 characters, at most 512"


@pytest.mark.parametrize("value", ["", "x", "1.5", " 1", "+1", "1_0", "--1", "\u0663", "9" * 40])
def test_what_is_no_whole_number(value: str) -> None:
    with pytest.raises(InvalidConfig, match="expected a whole number"):
        validate({"segment.bytes": value}, replication_factor=3)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("flush.mode", "interval", "sometimes"),
        ("cleanup.policy", "compact,delete", "shred"),
        ("compression.type", "producer", "zstd"),
    ],
)
def test_choices(name: str, good: str, bad: str) -> None:
    validate({name: good}, replication_factor=1)
    with pytest.raises(InvalidConfig, match=f"{name}={bad}: expected one of .*{good}"):
        validate({name: bad}, replication_factor=1)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(InvalidConfig) as caught:
        validate({"nope": "1", "flush.mode": "x", "segment.ms": "0"}, replication_factor=1)
    assert str(caught.value).count(";") == 2


def test_typed_values_of_stored_nonsense_are_refused() -> None:
    with pytest.raises(InvalidConfig):
        TopicConfig.of({"segment.ms": "0"})


def test_min_isr_against_the_factor() -> None:
    validate({"min.insync.replicas": "3"}, replication_factor=3)
    with pytest.raises(
        InvalidConfig, match=r"min\.insync\.replicas=4: the replication factor is 3"
    ):
        validate({"min.insync.replicas": "4"}, replication_factor=3)
    assert min_insync_replicas({}) == 1


def test_a_key_that_there_is_not_is_told_with_the_one_that_may_be_meant() -> None:
    assert topic_config.problems({"retention.mss": "1"}) == [
        "retention.mss: unknown topic configuration, did you mean retention.ms?"
    ]
    assert topic_config.problems({"foo.bar": "1"}) == ["foo.bar: unknown topic configuration"]


def test_more_settings_than_there_are_keys_are_told_of_at_once() -> None:
    """Each was compared with all keys, for what may have been meant: minutes for a MB of names."""
    (said,) = topic_config.problems({f"min.insync.replica{n}": "1" for n in range(40_000)})
    assert said == f"40000 settings, of which a topic has {len(topic_config.KEYS)}"


def test_what_is_far_longer_than_a_key_is_compared_with_none() -> None:
    assert "did you mean" in topic_config.unknown("min.insync.replica")
    with mock.patch("difflib.get_close_matches", side_effect=AssertionError):
        assert "unknown" in topic_config.unknown("m" * 1000)


@pytest.mark.parametrize(
    ("stored", "of_node", "replicas", "source"),
    [
        ("2", "2", 3, "default"),
        ("1", "2", 1, "default"),
        ("3", "3", 3, "node"),
        ("1", "2", 3, "topic"),
        ("2", "3", 3, "topic"),
    ],
)
def test_the_source_of_min_insync_replicas_is_what_gives_it(
    stored: str, of_node: str, replicas: int, source: str
) -> None:
    """It is stored of every topic, whoever chose it."""
    name = MIN_INSYNC_REPLICAS
    held = effective({name: stored}, {name: of_node}, replication_factor=replicas)
    assert [(value, str(found)) for key, value, found in held if key.name == name] == [
        (stored, source)
    ]
