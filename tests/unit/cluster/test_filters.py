"""Which records ``consume`` prints."""

from __future__ import annotations

import os

import pytest

from paceline.client import ConsumedRecord
from paceline_cluster.cli.consume import consume
from paceline_cluster.cli.filters import wanted

TEXT = "ÿ".encode()
BYTE = b"\xff"


@pytest.mark.parametrize(("pattern", "found"), [(r"\xff", TEXT), (os.fsdecode(BYTE), BYTE)])
def test_a_pattern_is_of_text_and_a_byte_that_is_none_stands_for_itself(
    pattern: str, found: bytes
) -> None:
    """The second is what a shell makes of $'\\xff'."""
    only = wanted(None, pattern)
    assert only is not None
    values = [
        value for value in (TEXT, BYTE) if only(ConsumedRecord("t", 0, 0, 0, None, value, ()))
    ]
    assert values == [found]


def test_the_help_says_so() -> None:
    [grep] = [each for each in consume.params if each.name == "grep"]
    help_ = getattr(grep, "help", "")
    assert (
        r"as UTF-8 text, this is found: '\xff' is a character, $'\xff' in a shell the byte" in help_
    )
