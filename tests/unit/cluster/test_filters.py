"""Which records ``consume`` prints: text is searched as text, and any bytes may be asked for."""

from __future__ import annotations

import os

import pytest

from paceline.client import ConsumedRecord
from paceline_cluster.cli.envelope import compile_format, parse_header_option
from paceline_cluster.cli.filters import wanted
from paceline_cluster.cli.shape import parse_delimiter

ODD = os.fsdecode(b"k\xff")
"""An argument of the command line that is no UTF-8."""


def record(value: bytes | None, key: bytes | None = None) -> ConsumedRecord:
    return ConsumedRecord("orders", 0, 0, 0, key, value, ())


@pytest.mark.parametrize(
    ("pattern", "value", "is_found"),
    [
        ("^gr.n$", "grün".encode(), True),  # a character, not a byte
        ("[äö]", "ü".encode(), False),  # they share their first byte
        ("ä", "a: ä".encode(), True),
        (r"\w+é", "café".encode(), True),
        ("(?i)É", "café".encode(), True),
        ("x", b"\xff x", True),
        (ODD, b"a k\xff b", True),
        (ODD, b"a k\xfe b", False),
        ("", None, False),
    ],
)
def test_text_is_searched_as_text(pattern: str, value: bytes | None, is_found: bool) -> None:
    only = wanted(None, pattern)
    assert only is not None
    assert only(record(value)) is is_found


def test_a_key_may_be_any_bytes() -> None:
    only = wanted(ODD, None)
    assert only is not None
    assert only(record(b"v", b"k\xff"))
    assert not only(record(b"v", b"k"))
    assert not only(record(b"v"))


def test_what_is_written_or_printed_may_be_any_bytes() -> None:
    assert parse_delimiter(ODD) == b"k\xff"
    assert parse_header_option(f"name={ODD}") == ("name", b"k\xff")
    assert compile_format(f"%s{ODD}")(record(b"v")) == b"vk\xff"
