"""Places where consume begins."""

import time

import pytest

from paceline.client import Position
from paceline_cluster.cli.start_positions import parse_place, parse_time


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", Position.EARLIEST),
        ("end", Position.LATEST),
        ("0", Position.at(0)),
        ("42", Position.at(42)),
        ("-5", Position.tail(5)),
        ("@1700000000000", Position.since(1_700_000_000_000)),
        ("@2023-11-14T22:13:20Z", Position.since(1_700_000_000_000)),
        ("2023-11-14T23:13:20+01:00", Position.since(1_700_000_000_000)),
        ("2023-11-14 22:13:20", Position.since(1_700_000_000_000)),
        ("1960-01-01", Position.since(0)),
    ],
)
def test_places(text: str, expected: Position) -> None:
    assert parse_place(text) == expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("-90s", 90),
        ("-5m", 300),
        ("-2h", 7200),
        ("-1d", 86_400),
        ("-1w", 604_800),
        ("-1.5 h", 5400),
    ],
)
def test_how_long_ago(text: str, seconds: int) -> None:
    before = time.time()
    found = parse_place(text).timestamp_ms
    assert found is not None
    assert before - seconds - 1 <= found / 1000 <= time.time() - seconds
    assert abs(parse_time(text) - found) < 60_000
    assert parse_place("-99999999d") == Position.since(0)


@pytest.mark.parametrize("text", ["", "soon", "--5", "5-", "@", "@-1", "٣", "-1x", "-h", "2h"])
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(ValueError, match="is no place in a topic: give start, end"):
        parse_place(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("0", 0), ("99", 99), ("2023-11-14T22:13:20Z", 1_700_000_000_000)]
)
def test_times(text: str, expected: int) -> None:
    assert parse_time(text) == expected


@pytest.mark.parametrize("text", ["", "-1", "now", "1960-01-01", "@5", "-99999999d"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is no time: give ms"):
        parse_time(text)
