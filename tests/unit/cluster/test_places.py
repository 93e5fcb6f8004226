"""Places where consume begins."""

import pytest

from paceline.client import Position
from paceline_cluster.cli.places import parse_place, parse_time


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


@pytest.mark.parametrize("text", ["", "soon", "--5", "5-", "@", "@-1", "٣"])
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(ValueError, match="is no place in a topic: give start, end"):
        parse_place(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("0", 0), ("99", 99), ("2023-11-14T22:13:20Z", 1_700_000_000_000)]
)
def test_times(text: str, expected: int) -> None:
    assert parse_time(text) == expected


@pytest.mark.parametrize("text", ["", "-1", "now", "1960-01-01", "@5"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is no time: give ms"):
        parse_time(text)
