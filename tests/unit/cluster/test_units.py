"""Sizes and times of topic settings as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.reference.commands import commands
from paceline_cluster.cli.main import main
from paceline_cluster.cli.units import Seconds, plain, told, told_bounds
from paceline_cluster.errors import Exit
from paceline_node.settings.topic_config import KEYS


@pytest.fixture(autouse=True)
def nothing_is_selected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever cluster this machine's user has chosen."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("name", "value", "number"),
    [
        ("retention.ms", "7d", 7 * 86_400_000),
        ("retention.ms", "10m", 600_000),
        ("retention.ms", "10min", 600_000),
        ("retention.ms", "1.5h", 5_400_000),
        ("retention.ms", "2w", 14 * 86_400_000),
        ("retention.ms", "30 s", 30_000),
        ("retention.ms", "250ms", 250),
        ("retention.ms", "-1", -1),
        ("retention.ms", "86400000", 86_400_000),
        ("retention.bytes", "1GiB", 2**30),
        ("retention.bytes", "1g", 2**30),
        ("retention.bytes", "1GB", 10**9),
        ("segment.bytes", "0.5MiB", 2**19),
        ("segment.bytes", "512k", 512 * 1024),
        ("segment.bytes", "2048B", 2048),
    ],
)
def test_units(name: str, value: str, number: int) -> None:
    assert plain(name, value) == str(number)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("retention.ms", "604800000", "604800000 (7 days)"),
        ("retention.ms", "-1", "-1 (never)"),
        ("retention.ms", str(2**63 - 1), "never"),
        ("retention.bytes", "-1", "-1 (unlimited)"),
        ("message.timestamp.after.max.ms", str(2**63 - 1), "unlimited"),
        ("segment.bytes", str(1024**3), "1073741824 (1 GiB)"),
        ("flush.interval.ms", "1000", "1000 (1 s)"),
        ("flush.interval.ms", "90000", "90000 (1.5 min)"),
        ("flush.interval.ms", "250", "250"),
        ("min.insync.replicas", "2", "2"),
        ("cleanup.policy", "delete", "delete"),
        ("of.a.later.version.ms", "1000", "1000"),
    ],
)
def test_values_for_people(name: str, value: str, said: str) -> None:
    """They were numbers of milliseconds, 9223372036854775807 among them."""
    assert told(name, value) == said


def test_bounds_for_people() -> None:
    assert told_bounds("retention.ms") == "-1 or more (ms)"
    assert told_bounds("min.insync.replicas") == KEYS["min.insync.replicas"].allowed


def test_what_has_no_unit_is_left_to_the_cluster() -> None:
    for name, value in (
        ("cleanup.policy", "compact"),
        ("min.insync.replicas", "2"),
        ("min.cleanable.dirty.ratio", "0.5"),
        ("no.such.setting", "7d"),
        ("access.readers", "7d"),
    ):
        assert plain(name, value) == value


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("retention.ms", "7x", "expected ms, or a number with ms, s, m, h, d or w: 7d"),
        ("retention.ms", "1GiB", "expected ms, or a number with ms, s, m, h, d or w: 7d"),
        ("retention.ms", "", "expected ms"),
        ("retention.ms", "0.0001s", "is no whole number of ms"),
        (
            "retention.bytes",
            "10d",
            "expected bytes, or a number with B, KB, MB, GB, TB, KiB, Mi",
        ),
        ("retention.bytes", "1.5", "is no whole number of bytes"),
    ],
)
def test_others_are_told_what_is_expected(
    name: str, value: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match=told):
        plain(name, value)
    assert main(["topic", "create", "t", "--config", f"{name}={value}"]) == Exit.USAGE
    assert f"{name}={value}: " in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["health", "--timeout", "5m"], Exit.DATA, "no cluster is selected"),
        (["health", "--timeout", "7x"], Exit.USAGE, "expected seconds, or a number with ms, s, m"),
        (["consume", "t", "--group", "g", "--session-timeout", "1h"], Exit.USAGE, "0.1 to 1800 s"),
        (["produce", "t", "--timeout", "0"], Exit.USAGE, "is not more than 0 s"),
        (["produce", "t", "--timeout", "1.5h"], Exit.DATA, "no cluster is selected"),
        (["topic", "list", "--connect-timeout", "500ms"], Exit.DATA, "no cluster is selected"),
        (["topic", "list", "--connect-timeout", "-1"], Exit.USAGE, "expected seconds"),
        (["consume", "t", "--from", "-1w"], Exit.DATA, "no cluster is selected"),
    ],
)
def test_times_of_options(
    words: list[str], code: Exit, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were bare seconds."""
    assert main(words) == code
    assert said in " ".join(capsys.readouterr().err.split())


def test_options_of_times_all_take_units() -> None:
    """What is measured in SECONDS is read by the one parser."""
    for path, command, _ in commands():
        for each in command.params:
            if each.metavar == "SECONDS":
                assert isinstance(each.type, Seconds), f"{path} {each.name}"


def test_every_setting_of_a_size_or_time_takes_them() -> None:
    for key in KEYS.values():
        if key.name.endswith((".ms", ".bytes")):
            assert plain(key.name, "1m") in ("60000", str(2**20)), key.name


@pytest.mark.parametrize("command", ["create", "alter"])
def test_a_setting_that_is_there_twice_is_refused(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last one won without a word."""
    words = ["topic", command, "logs", "--config", "retention.ms=1d", "--config"]
    assert main([*words, "retention.ms=2d"]) == Exit.USAGE
    assert "retention.ms is there twice" in capsys.readouterr().err
    assert main([*words, "retention.bytes=1GiB"]) == Exit.DATA
    assert "no cluster is selected" in capsys.readouterr().err


def test_a_setting_cannot_be_both_set_and_unset(capsys: pytest.CaptureFixture[str]) -> None:
    """The new value was dropped without a word."""
    words = ["topic", "alter", "logs", "--config", "retention.ms=1d", "--unset"]
    assert main([*words, "retention.ms"]) == Exit.USAGE
    assert "retention.ms: both in --config and in --unset" in capsys.readouterr().err
    assert main([*words, "retention.bytes"]) == Exit.DATA
    assert "no cluster is selected" in capsys.readouterr().err
